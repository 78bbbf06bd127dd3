"""A recommendation as markdown: the same sections, tables as GitHub renders them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report import plan_text, why_text, words
from mlaplan.report.tables import as_markdown

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer


def markdown(a: Answer) -> str:
    """Headings, ranked table, reasons as preformatted text, what was excluded, notes, commands."""
    model, chip = a.q.setting.model, a.q.setting.chip
    lines = [f"# {model.title} on {a.devices} x {chip.name}", "", f"{words.workload(a.q.workload)}.", ""]
    lines.append(f"Objective {plan_text.OBJECTIVES[a.objective]}.")
    if a.found.plans:
        columns, rows = plan_text.table(a)
        lines += ["", as_markdown([column.title.replace("\n", " ") for column in columns], rows)]
        if a.why is not None:
            reasons = why_text.reasons(a.q, a.found.plans, a.found.families, a.why)
            lines += ["", "## Why", "", "```", reasons, "```"]
    else:
        lines += ["", "```", plan_text.nothing(a), "```"]
    if a.found.rejected:
        reasons_of = plan_text.rule_reasons()
        counted = [
            (f"{count:,}", name, reasons_of.get(name.split()[0], "")) for name, count in a.found.rejected.items()
        ]
        lines += ["", "## Excluded", "", as_markdown(("strategies", "rule", "reason"), counted)]
    if a.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in a.notes)]
    if a.launch is not None:
        lines += ["", "## Launch", "", "```sh", plan_text.launch(a.launch), "```"]
    return "\n".join(lines)
