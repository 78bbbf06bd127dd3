"""A small study that takes a fraction of a second, and ways to run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mlaplan.sweep import study
from mlaplan.sweep.study import Study

REPO = Path(__file__).resolve().parents[2]
MODEL, CHIP = str(REPO / "tests" / "fixtures" / "toy-model.yaml"), str(REPO / "tests" / "fixtures" / "toy-chip.yaml")
GRID: dict[str, Any] = {"devices": "2,4", "isl": "128:1k:x2", "osl": "16,64", "concurrency": "1:64:x4", "tpot": "1ms"}


def toy(sets: tuple[str, ...] = (), **given: Any) -> Study:
    """A study of the toy model on the toy chip; None takes a part of the grid away."""
    asked = {"model": MODEL, "chips": [CHIP], **GRID, **given}
    return study.build(study.of_options(asked, sets))


def words(**given: Any) -> list[str]:
    """The same as a command line."""
    asked = {**GRID, **given}
    flags = [word for name, value in asked.items() if value is not None for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "mlaplan", "sweep", MODEL, CHIP, *flags]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "80", "NO_COLOR": "1"}


def run(arguments: list[str], folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, check=False, **more
    )
