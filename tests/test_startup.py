"""What each verb imports: names, not times, since a slow import hides on a fast machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
HEAVY = {"numpy", "pandas", "matplotlib", "rich", "pydantic", "yaml", "ml_dtypes"}


def imported(arguments: list[str], folder: Path) -> set[str]:
    """Top-level packages that one command imports, in a fresh interpreter in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "mlaplan", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}
    assert "mlaplan" in names  # the trace is there
    return names


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["recommend", "--help"], set()),
        (["check", str(REPO / "hardware" / "h200-sxm.yaml")], {"yaml", "pydantic"}),
        (["check", str(REPO / "models" / "deepseek-v3.yaml")], {"yaml", "pydantic"}),
        (["list", "chips"], {"yaml", "pydantic"}),
        (["list", "models"], {"yaml", "pydantic"}),
        (["show", "h200-sxm"], {"yaml", "pydantic"}),
        (["show", "deepseek-v3"], {"yaml", "pydantic"}),
        (["new", "chip", "mine"], {"pydantic"}),
    ],
    ids=lambda value: " ".join(value).replace(str(REPO), "") if isinstance(value, list) else "",
)
def test_a_verb_imports_no_more_than_it_needs(arguments: list[str], needed: set[str], tmp_path: Path) -> None:
    assert imported(arguments, tmp_path) & HEAVY <= needed


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ("", {"yaml"}),
        ("--model deepseek-v3", {"yaml", "pydantic", "numpy"}),  # the planner's rules on degrees
    ],
)
def test_checking_a_script_takes_numpy_only_for_rules_that_compute(
    options: str, needed: set[str], tmp_path: Path
) -> None:
    (tmp_path / "serve.sh").write_text("# vLLM 0.33.0\nvllm serve some/model --tensor-parallel-size 8\n")
    assert imported(["check", "serve.sh", *options.split()], tmp_path) & HEAVY <= needed


def test_pricing_takes_numpy_and_no_table_or_plot_library(tmp_path: Path) -> None:
    words = "explain deepseek-v3 h200-sxm --tp 8 --batch 8 --context 4096 --format json"
    found = imported(words.split(), tmp_path)
    assert "numpy" in found
    assert not found & {"pandas", "matplotlib"}
