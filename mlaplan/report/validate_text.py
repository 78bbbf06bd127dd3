"""The validation as text: errors by group, the bars, what is missed and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import wrapped
from mlaplan.report.validate_data import groups

if TYPE_CHECKING:
    from mlaplan.validation.bars import Bar
    from mlaplan.validation.run import Run
    from mlaplan.validation.score import Summary

GROUP_HEAD = ("points", "held out", "MAPE", "bias", "median", "p90", "worst", "in band")
MARKS = {True: "met", False: "MISSED", None: "-"}


def report(run: Run, by: str, width: int | None = None) -> str:
    """Tables of groups and bars, then the misses. Tables are whole, or fold to a terminal of `width` columns."""
    parts = []
    found = groups(run, by)
    if found:
        parts.append(f"Predicted against measured, by {by}\n{_groups(found, by, width)}")
    if run.bars:
        rows = [[MARKS[b.met], b.id, b.limit, b.value] for b in run.bars]
        columns = [text(name) for name in ("", "bar", "limit", "reached")]
        parts.append("Bars\n" + grid(columns, rows, indent=2, fold=(2, 3), width=width))
    if run.missed:
        parts.append("Missed\n" + "\n".join(_miss(b) for b in run.missed))
    if run.notes:
        parts.append("Not compared\n" + "\n".join(wrapped(note, label="  ") for note in run.notes))
    return "\n\n".join(parts)


def _groups(found: list[tuple[str, Summary]], by: str, width: int | None) -> str:
    """A line for each group; its worst point has a line of its own where both are wider than the terminal."""
    rows = [[name, *group_cells(s)] for name, s in found]
    columns = [text(by), *(Column(head) for head in GROUP_HEAD)]
    columns[GROUP_HEAD.index("worst") + 1] = text("worst")
    whole = grid(columns, rows, indent=2, width=None)
    if width is None or max(map(len, whole.splitlines())) <= width:
        return whole
    short = [[*row[:7], f"{s.worst:+.0%}", row[8]] for row, (_, s) in zip(rows, found, strict=True)]
    columns[7] = Column("worst")
    head, *lines = grid(columns, short, indent=2, width=None).splitlines()
    told = [f"{line}\n    worst: {s.worst_id}" for line, (_, s) in zip(lines, found, strict=True)]
    return "\n".join([head, *told])


def group_cells(s: Summary) -> list[str]:
    """The cells of one group."""
    return [
        str(s.count), str(s.held_out), f"{s.mape:.1%}", f"{s.bias:+.0%}", f"{s.median:.1%}", f"{s.p90:.0%}",
        f"{s.worst:+.0%} {s.worst_id}", f"{s.coverage:.0%}",
    ]  # fmt: skip


def _miss(b: Bar) -> str:
    head = wrapped(f"{b.title}: {b.value}, asked {b.limit}", label="  ")
    return "\n".join([head, *(wrapped(line, label="    - ") for line in b.why)])
