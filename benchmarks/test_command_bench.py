"""Wall time of whole commands, each in a fresh process: start-up, specs, search, report."""

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
]


def run(words: str) -> tuple[float, str]:
    """(wall seconds, stdout) of one command."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mlaplan", *words.split()],
        env={**os.environ, "PYTHONPATH": str(REPO)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    elapsed = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return elapsed, done.stdout


@pytest.mark.parametrize(("words", "bar_s"), CASES, ids=["help", "16 chips", "1024 chips"])
def test_wall_time_of_a_command(words: str, bar_s: float, note: Callable[[str], None]) -> None:
    seconds = [run(words)[0] for _ in range(RUNS)]
    counts = ""
    if words.startswith("recommend"):
        answer = json.loads(run(f"{words} --format json")[1])
        counts = f"; {answer['considered']:,} combinations, {answer['priced']:,} strategies priced"
    note(
        f"mlaplan {words}: {median(seconds):.2f} s wall, median of {RUNS}, "
        f"{min(seconds):.2f} to {max(seconds):.2f} (bar {bar_s} s){counts}"
    )
    assert median(seconds) <= bar_s
