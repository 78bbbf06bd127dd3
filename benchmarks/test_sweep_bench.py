"""Sweeps end to end: strategies priced per CPU second from a study to its file, against pricing alone.

The grid is a part of the issue of a user: DeepSeek-V3 on H200 with every load from 1 to 4096 in flight. "End to end" is
everything after the start of Python: reading specs, enumeration, rules, prices, the best of each point, its bands, the
parts and the joined file.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlaplan import pricing, search
from mlaplan.costs.factor import Memo
from mlaplan.costs.table import size
from mlaplan.sweep import study
from mlaplan.sweep.points import Points
from mlaplan.sweep.run import Means, Outcome, to_file
from mlaplan.sweep.study import Study

REPO = Path(__file__).resolve().parents[1]
BAR_PER_SECOND = 1_000_000
GRID: dict[str, Any] = {
    "model": "deepseek-v3", "chips": ["h200-sxm"], "devices": "16,64", "isl": "1k:128k:log4", "osl": "512",
    "concurrency": "1:4096:x2",
}  # fmt: skip


def asked(**given: Any) -> Study:
    return study.build(study.of_options({**GRID, **given}))


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def swept(folder: Path, form: str, workers: int = 1, **given: Any) -> tuple[Outcome, float, float]:
    """What a sweep did, in how many CPU seconds and wall seconds."""
    start, wall = cpu_s(), time.perf_counter()
    outcome = to_file(asked(**given), folder / f"out.{form}", form, Means(workers))
    return outcome, cpu_s() - start, time.perf_counter() - wall


def pricing_alone(**given: Any) -> float:
    """Strategies per CPU second of `pricing.priced` over the tables of some points of the grid, each with its memo."""
    s = asked(**given)
    points, rows, seconds = Points(s), 0, 0.0
    for index in range(0, s.size, max(s.size // 6, 1)):
        q, devices = points[index].q, points[index].devices
        assert q is not None
        found, memo = search.Found(), Memo()
        for choices in search.blocks(q, devices, {}, found):
            table = search.batched(q, choices, {}, found, memo)
            for start in range(0, size(table), search.BLOCK_ROWS):
                block = table.take(slice(start, start + search.BLOCK_ROWS))
                begin = time.process_time()
                for _ in pricing.priced(q, block, None, memo):
                    pass
                seconds += time.process_time() - begin
                rows += size(block)
    return rows / seconds


def test_best_plans_to_parquet(tmp_path: Path, note: Callable[[str], None]) -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    alone = pricing_alone()
    outcome, cpu, _ = swept(tmp_path, "parquet")
    rate = outcome.priced / cpu
    note(f"sweep: {outcome.points} points, {outcome.priced:,} strategies, {rate:,.0f} per CPU second end to end (bar "
         f"{BAR_PER_SECOND:,}); {rate / alone:.2f} times pricing alone, {alone:,.0f} per CPU second")  # fmt: skip
    assert rate >= BAR_PER_SECOND


def test_lengths_alone(tmp_path: Path, note: Callable[[str], None]) -> None:
    """No two points share their steps: the worst grid for a sweep."""
    outcome, cpu, _ = swept(tmp_path, "csv", concurrency="512", isl="1k:128k:log8")
    alone = pricing_alone(concurrency="512", isl="1k:128k:log8")
    rate = outcome.priced / cpu
    note(f"sweep: of lengths alone {rate:,.0f} strategies per CPU second, {rate / alone:.2f} times pricing alone")
    assert rate >= 0.5 * alone


def test_every_plan(tmp_path: Path, note: Callable[[str], None]) -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    given = {"plans": "all", "devices": "16", "isl": "4k", "osl": "1k", "concurrency": "64,512"}
    outcome, cpu, _ = swept(tmp_path, "parquet", **given)
    note(f"sweep --all: {outcome.rows:,} rows of 62 columns to Parquet, {outcome.rows / cpu:,.0f} per CPU second")
    assert outcome.rows / cpu >= 10_000


def test_workers(tmp_path: Path, note: Callable[[str], None]) -> None:
    """The work grows by the start of the processes and by what they no longer share, and by nothing else."""
    one, cpu_1, wall_1 = swept(tmp_path, "csv", 1)
    two, cpu_2, wall_2 = swept(tmp_path, "csv", 2)
    assert one.priced == two.priced
    note(f"sweep --workers 2: {cpu_2 / cpu_1:.2f} times the CPU seconds of one, {wall_1 / wall_2:.2f} times as fast on "
         f"{os.cpu_count()} cores")  # fmt: skip
    assert cpu_2 <= 1.5 * cpu_1


SCRIPT = """
import resource
from pathlib import Path
from mlaplan.sweep import study
from mlaplan.sweep.run import Means, to_file
asked = {"model": "deepseek-v3", "chips": ["h200-sxm"], "devices": "8", "isl": "1k:32k:log%d"}
asked["concurrency"] = "1:256:x4"
to_file(study.build(study.of_options(asked)), Path("out.csv"), "csv", Means(chunk=10))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_is_flat(tmp_path: Path, note: Callable[[str], None]) -> None:
    peaks = []
    for steps in (8, 48):  # both hold every choice of chunks, whose choices are kept
        env = {**os.environ, "PYTHONPATH": str(REPO)}
        done = subprocess.run([sys.executable, "-c", SCRIPT % steps], cwd=tmp_path, env=env, check=True,
                              capture_output=True, text=True)  # fmt: skip
        peaks.append(int(done.stdout) / 1024)
    note(f"sweep: {peaks[0]:.0f} MiB at most for 40 points, {peaks[1]:.0f} MiB for 240")
    assert peaks[1] < 1.15 * peaks[0]
