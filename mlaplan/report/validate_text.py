"""The validation as text: errors by group, the bars, what is missed and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report.tables import aligned, wrapped
from mlaplan.report.validate_data import groups

if TYPE_CHECKING:
    from mlaplan.validation.bars import Bar
    from mlaplan.validation.run import Run
    from mlaplan.validation.score import Summary

GROUP_HEAD = ("points", "held out", "MAPE", "bias", "median", "p90", "worst", "in band")
MARKS = {True: "met", False: "MISSED", None: "-"}


def report(run: Run, by: str) -> str:
    """Tables of groups and bars, then the misses."""
    parts = []
    found = groups(run, by)
    if found:
        rows = [[name, *group_cells(s)] for name, s in found]
        parts.append(f"Predicted against measured, by {by}\n" + aligned(rows, header=[by, *GROUP_HEAD], indent=2))
    if run.bars:
        rows = [[MARKS[b.met], b.id, b.limit, b.value] for b in run.bars]
        parts.append("Bars\n" + aligned(rows, header=["", "bar", "limit", "reached"], indent=2))
    if run.missed:
        parts.append("Missed\n" + "\n".join(_miss(b) for b in run.missed))
    if run.notes:
        parts.append("Not compared\n" + "\n".join(f"  {note}" for note in run.notes))
    return "\n\n".join(parts)


def group_cells(s: Summary) -> list[str]:
    """The cells of one group."""
    return [
        str(s.count), str(s.held_out), f"{s.mape:.1%}", f"{s.bias:+.0%}", f"{s.median:.1%}", f"{s.p90:.0%}",
        f"{s.worst:+.0%} {s.worst_id}", f"{s.coverage:.0%}",
    ]  # fmt: skip


def _miss(b: Bar) -> str:
    head = wrapped(f"{b.title}: {b.value}, asked {b.limit}", label="  ", width=100)
    return "\n".join([head, *(wrapped(line, label="    - ", width=100) for line in b.why)])
