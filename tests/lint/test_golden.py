"""Inputs and what is said of them, word for word; and files of which nothing above info may be said.

Each input in `golden` is a reported mistake in words of our own. MLAPLAN_UPDATE=1 writes the outputs anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlaplan.report.check_text import text
from tests.lint.conftest import report_of

HERE = Path(__file__).parent
GOLDEN = sorted(path for path in (HERE / "golden").iterdir() if path.suffix != ".txt")
CLEAN = sorted((HERE / "clean").iterdir())


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden(path: Path) -> None:
    report = report_of(path.read_text(), path.name)
    said = text(report) + "\n"
    kept = path.with_name(path.name + ".txt")
    if os.environ.get("MLAPLAN_UPDATE"):
        kept.write_text(said)
    assert said == kept.read_text()
    assert report.findings


@pytest.mark.parametrize("path", CLEAN, ids=lambda path: path.name)
def test_clean(path: Path) -> None:
    report = report_of(path.read_text(), path.name)
    assert report.deployments
    bad = [one.head() for one in report.findings if one.severity != "info"]
    assert not bad, bad


def test_every_output_has_its_input() -> None:
    assert {path.name + ".txt" for path in GOLDEN} == {path.name for path in (HERE / "golden").glob("*.txt")}
