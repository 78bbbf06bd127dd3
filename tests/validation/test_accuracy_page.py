"""docs/accuracy.md is what `validate` writes: its numbers are those of today's model, within a tolerance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlaplan.report import validate_md
from mlaplan.report.validate_data import groups
from mlaplan.validation.run import Run, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"
TOLERANCE = 0.03  # of the mean error: a refit that moves less needs no new page
SETS = ("kernels", "collectives", "steps")


@pytest.fixture(scope="module")
def today() -> Run:
    return run(SETS)


def table(heading: str) -> dict[str, list[str]]:
    """Rows of the table under a heading, by their first cell."""
    section = PAGE.read_text("utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row for row in rows[2:]}


def test_numbers_are_up_to_date(today: Run) -> None:
    written = table("Predicted against measured, by group")
    for name, found in groups(today, "group"):
        if name in ("ascend", "context-parallel", "served", "rejected"):
            continue  # in part served: not run here
        assert name in written, f"{name}: write docs/accuracy.md anew"
        told = float(written[name][3].rstrip("%")) / 100
        assert told == pytest.approx(found.mape, abs=TOLERANCE), f"{name}: write docs/accuracy.md anew"
        assert int(written[name][1]) == found.count


def test_the_page_has_every_part() -> None:
    text = PAGE.read_text("utf-8")
    for part in ("## Bars", "## Ratios", "## Decisions", "## Where the model is off, and why",
                 "## Beside other tools", "## Points of the end-to-end bar"):  # fmt: skip
        assert part in text, part
    assert ("### What is missed" in text) == ("| MISSED |" in text)
    assert "(accuracy.svg)" in text and PAGE.with_name("accuracy.svg").is_file()


@pytest.mark.parametrize("met", [True, False])
def test_misses_are_told_with_their_causes(today: Run, met: bool) -> None:
    of = replace(today.bars[0], met=met, why=("far.point measured 1, predicted 2",))
    page = validate_md.document(replace(today, bars=[of, *today.bars[1:]]))
    assert (f"- **{of.title}**: {of.value}, asked {of.limit}.\n  - far.point measured 1, predicted 2" in page) != met
    assert f"| {of.title} | {of.limit} | {of.value} | {'met' if met else 'MISSED'} |" in page


def test_figures_of_other_tools_have_sources() -> None:
    for row in validate_md.words()["others"]:
        assert row["source"] and row["error"].endswith("%")
