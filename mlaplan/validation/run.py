"""One run of the validation: points of the sets asked for, scored, with the bars they decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mlaplan.validation import bars as bar
from mlaplan.validation import compare, flags, kernel_bars, silicon
from mlaplan.validation.kernel_bars import NO_SILICON
from mlaplan.validation.points import published
from mlaplan.validation.score import Scored, score

if TYPE_CHECKING:
    from mlaplan.validation.bars import Bar
    from mlaplan.validation.compare import ScoredDecision, ScoredRatio
    from mlaplan.validation.points import Point

SETS = ("kernels", "collectives", "steps", "served", "decisions")


@dataclass(frozen=True, slots=True)
class Run:
    """What was compared, and the bars; notes: what could not be compared."""

    sets: tuple[str, ...]
    scored: list[Scored]
    bars: list[Bar]
    ratios: list[ScoredRatio] = field(default_factory=list)
    decisions: list[ScoredDecision] = field(default_factory=list)
    rejected: list[tuple[Point, list[str]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def missed(self) -> list[Bar]:
        return [b for b in self.bars if b.met is False]


def run(sets: Sequence[str] = SETS) -> Run:
    """Scores the points of these sets; the bars are those whose points are among them."""
    wanted = tuple(s for s in SETS if s in sets)
    notes = []
    points = [p for p in published() if p.set in wanted]
    if "served" in wanted:
        points += silicon.points()
        if silicon.path() is None:
            notes.append(f"the rows of DeepSeek-R1 on 8 H200: {NO_SILICON}")
    scored = score(points)
    found = [b for b in bar.of_points(scored, NO_SILICON) if b.set in wanted or (b.set == "all" and _whole(wanted))]
    ratios = compare.ratios() if "served" in wanted else []
    decisions = compare.decisions() if "decisions" in wanted else []
    rejected = flags.rejected() if "decisions" in wanted else []
    if ratios:
        found.append(bar.on_ratios(ratios))
    if "decisions" in wanted:
        found += [bar.on_decisions(decisions), bar.on_rejected(rejected)]
    stand_ins = sorted({p.engine for p in points if p.measure != "operator"} - set(_engines()))
    if stand_ins:
        notes.append(f"priced with the generic engine for want of a profile: {', '.join(stand_ins)}")
    if {"kernels", "collectives"} & set(wanted):
        found = [b for b in kernel_bars.bars() if b.set in wanted] + found
    return Run(wanted, scored, found, ratios, decisions, rejected, notes)


def _whole(sets: Sequence[str]) -> bool:
    """The band's coverage is a statement on all end-to-end points."""
    return "steps" in sets and "served" in sets


def _engines() -> set[str]:
    from mlaplan.engines.load import engine_names, engine_versions

    return {*engine_names(), *(f"{n}@{v}" for n in engine_names() for v in engine_versions(n))}
