"""What the memory of a chip holds, and how much cache each layout leaves room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report import explain_text, why_text
from mlaplan.report.page import pictures
from mlaplan.report.page.elements import Element, Section, table

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer


def memory(a: Answer) -> Section:
    """Memory by item and KV capacity by layout."""
    best = a.found.plans[0]
    items = explain_text.memory_block(a.q, best)
    last = frozenset({len(items.rows) - 2, len(items.rows) - 1})
    found: list[Element] = table("Memory of one chip, of the fullest stage", items, marked=last)
    assert a.why is not None
    held = why_text.capacity(a.q, best, a.why)
    mine = frozenset(i for i, row in enumerate(held.rows) if row[0].endswith("*"))
    found += table("KV capacity by layout", held, marked=mine)
    found.append(pictures.memory(a))
    return Section("memory", "Memory and cache", found)
