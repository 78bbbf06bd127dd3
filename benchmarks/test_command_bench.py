"""Wall time of whole commands, each in a fresh process: start-up, specs, search, report.

Byte code exists, as it does where `pip` installed the package: a first run, not counted, leaves it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

REPO = Path(__file__).resolve().parent.parent
RUNS = 7
LOAD = "--isl 4096 --osl 1024 --tpot 60ms --ttft 5s"
CASES = [
    ("--help", 0.25),
    (f"recommend deepseek-v3 h200-sxm --devices 16 {LOAD} --concurrency 512", 1.0),
    (f"recommend deepseek-v3 h200-sxm --devices 1024 {LOAD} --concurrency 32768", 3.0),
    (f"recommend deepseek-v3 h200-sxm --devices 1024 {LOAD}", 3.0),  # every batch is searched
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process that imports this tree and keeps its byte code."""
    out = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}
    out.pop("PYTHONDONTWRITEBYTECODE", None)
    return out


def run(words: str, environment: dict[str, str]) -> tuple[float, str]:
    """(wall seconds, stdout) of one command."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mlaplan", *words.split()],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    elapsed = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return elapsed, done.stdout


@pytest.mark.parametrize(("words", "bar_s"), CASES, ids=["help", "16 chips", "1024 chips", "1024 chips, any load"])
def test_wall_time_of_a_command(
    words: str, bar_s: float, environment: dict[str, str], note: Callable[[str], None]
) -> None:
    run(words, environment)
    seconds = [run(words, environment)[0] for _ in range(RUNS)]
    counts = ""
    if words.startswith("recommend"):
        answer = json.loads(run(f"{words} --format json", environment)[1])
        counts = f"; {answer['considered']:,} combinations, {answer['priced']:,} strategies priced"
    note(
        f"mlaplan {words}: {median(seconds):.2f} s wall, median of {RUNS}, "
        f"{min(seconds):.2f} to {max(seconds):.2f} (bar {bar_s} s){counts}"
    )
    assert median(seconds) <= bar_s
