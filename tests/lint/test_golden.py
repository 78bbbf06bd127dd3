"""Inputs and what is said of them, word for word; and files of which nothing above info may be said.

Each input in `golden` is a reported mistake in words of our own. MLAPLAN_UPDATE=1 writes the outputs anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlaplan.lint.deployment import Asked
from mlaplan.lint.run import Checker, Report
from mlaplan.report.check_text import text
from tests.lint.conftest import report_of

HERE = Path(__file__).parent
GOLDEN = sorted(path for path in (HERE / "golden").iterdir() if path.suffix != ".txt" and path.is_file())
FOLDERS = sorted(path for path in (HERE / "golden").iterdir() if path.is_dir())  # with a chip or a model of their own
CLEAN = sorted((HERE / "clean").iterdir())


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden(path: Path) -> None:
    report = report_of(path.read_text(), path.name)
    held(report, path)


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.name)
def test_golden_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    checker = Checker(Asked())
    checker.file(f"{path.name}/serve.sh", Path(path.name), explicit=True)
    held(checker.finish([], []), path)


def held(report: Report, path: Path) -> None:
    """What is said is what is kept beside the input."""
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
    assert {path.name + ".txt" for path in GOLDEN + FOLDERS} == {path.name for path in (HERE / "golden").glob("*.txt")}
