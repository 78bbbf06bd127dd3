"""One strategy as rows: csv (one operator a line, SI) and markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlaplan.report import explain_text, words
from mlaplan.report.tables import as_markdown
from mlaplan.units import format_bytes_both, format_seconds

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question

HEADER = ("operator", "time", "share", "bound", "FLOP", "memory bytes", "link bytes")


def rows(e: Explanation) -> list[dict[str, Any]]:
    """One row per operator of each step."""
    from mlaplan.costs.breakdown import op_dict

    out = []
    for name, p in (("decode", e.decode), ("prefill", e.prefill)):
        for op in sorted(p.ops, key=lambda op: -op.time_s) if p else []:
            out.append({"phase": name, **op_dict(op), "share": op.time_s / p.step_s.value if p else 0.0})
    return out


def markdown(q: Question, e: Explanation, change: list[str]) -> str:
    """Headings and tables of the whole explanation."""
    s = e.strategy
    lines = [f"# {q.setting.model.title} on {q.setting.chip.name}: {s.label()}", "", words.choices(s), ""]
    lines.append("Fits." if e.fits else "**Does not fit.**")
    lines += [f"- {code} {slug}: {why}" for code, slug, why in e.reasons]
    lines += [f"- {one}" for one in change]
    parts = [(explain_text.ITEMS.get(name, name), format_bytes_both(size)) for name, size in e.memory.items.items()]
    parts += [
        ("total", format_bytes_both(e.memory.total_bytes)),
        ("usable", format_bytes_both(e.memory.usable_bytes)),
        ("cache tokens a rank", f"{e.memory.kv_tokens:,}"),
    ]
    lines += ["", "## Memory per chip", "", as_markdown(("part", "size"), parts)]
    for name, p in (("Decode", e.decode), ("Prefill", e.prefill)):
        if p is not None:
            lines += ["", f"## {name}", "", _step(p), "", as_markdown(HEADER, _operators(p))]
    if e.served is not None:
        lines += ["", "## Served", "", "```", explain_text.served(q, e.served), "```"]
    return "\n".join(lines)


def _step(p: Phase) -> str:
    return f"One step takes {words.span(p.step_s, format_seconds)}, {words.percent(p.comm_share)} of it communication."


def _operators(p: Phase) -> Sequence[tuple[str, ...]]:
    from mlaplan.costs.machine import bound_of

    return [
        (
            op.name,
            format_seconds(op.time_s),
            words.percent(op.time_s / p.step_s.value),
            bound_of(op),
            words.flops(op.flops),
            words.size(op.bytes),
            words.size(op.link_bytes),
        )
        for op in sorted(p.ops, key=lambda op: -op.time_s)
    ]
