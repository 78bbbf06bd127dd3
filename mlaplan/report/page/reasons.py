"""Why the plan wins: its step by operator, what a token costs, the alternatives, what the rules removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report import plan_text, why_text, words
from mlaplan.report.page import pictures
from mlaplan.report.page.elements import Element, Items, Section, Text, table

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer

SMALL = 0.005  # operators below this share of the step are one line


def why(a: Answer) -> Section:
    """The winner's step operator by operator with what binds each, and its largest terms."""
    best = a.found.plans[0]
    step = table("Operators of the step by falling time", why_text.breakdown(a.q, best, SMALL))
    found: list[Element] = [
        Text("The largest terms of the step, and what binds them:"),
        Items(why_text.largest(a.q, best), numbered=True),
        pictures.breakdown(a),
        *step,
    ]
    if a.why is not None and a.why.sides is not None:
        sides = a.why.sides
        found += table(f"Bytes of one block by TP or DP of attention over {sides.group} chips", why_text.sides(sides))
    return Section("why", "Why this plan", found)


def alternatives(a: Answer) -> Section:
    """The next best shapes, where the second loses, and the best of every other way to divide the model."""
    ranked = plan_text.ranked_block(a)
    caption = f"The best {words.times(len(ranked.rows), 'shape')}, one strategy of each"
    found: list[Element] = table(caption, ranked, marked=frozenset({0}), head=1)
    assert a.why is not None  # there is a plan
    found += table("What an output token costs, in chip-microseconds", why_text.costs(a.why))
    if len(a.found.families) > 1:
        ways = why_text.other_ways(a.q, a.found.plans[0], a.found.families)
        found += table("The best of every other way to divide the model, and what it misses or loses", ways)
    if a.why.crossover is not None:
        found.append(Text(why_text.crossover(a.q, a.why.crossover)))
    return Section("alternatives", "Alternatives", found)


def excluded(a: Answer) -> Section:
    """How many strategies each rule removed."""
    if not a.found.rejected:
        return Section("excluded", "Excluded by rule", [Text("No rule removed a strategy.")])
    total = sum(a.found.rejected.values())
    caption = f"{total:,} strategies were removed, each by the first rule that it breaks"
    block = plan_text.excluded_block(a)
    rule = Text("A rule in full, with its sources: `mlaplan rules CODE`.")
    return Section("excluded", "Excluded by rule", [*table(caption, block, head=1), rule])
