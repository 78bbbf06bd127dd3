"""`size` for one kind of chip, in one straight line: instances, replicas, the simulator, other loads, other rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlaplan.fleet import size
from mlaplan.fleet.checked import CANDIDATES, Judge
from mlaplan.fleet.size import Instance, Load, Nearest, Ranked, Sized
from mlaplan.plan import price_per_hour
from mlaplan.search import Found

if TYPE_CHECKING:
    from mlaplan.fleet.offered import Offered
    from mlaplan.fleet.operating import Point
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.outcome import Limit
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Overrides

SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the rate that is asked for: the other rates where none are given


@dataclass(frozen=True, slots=True)
class Asked:
    """A load, its rate and its limits for one kind of chip. q has the mean lengths."""

    q: Question
    offered: Offered
    rate: float
    ttft: Limit | None
    tpot: Limit | None
    largest: int
    pins: Mapping[str, Any]
    given: Overrides
    simulate: bool
    seed: int
    told: Callable[[str], None]
    others: tuple[float, ...] | None = None  # further rates to answer for

    @property
    def rates(self) -> list[float]:
        """Rates of the table, rising."""
        others = [share * self.rate for share in SHARES] if self.others is None else self.others
        return sorted({self.rate, *others})


@dataclass(frozen=True, slots=True)
class Answer:
    """best: the fewest chips; formula: what the queueing formula alone would have taken; options: by instance size."""

    asked: Asked
    best: Sized | None
    formula: Sized | None
    options: list[Sized]
    loads: list[Load]
    rates: list[Sized]
    price: float | None  # dollars per chip and hour
    priced: int  # strategies
    runs: int  # simulations
    nearest: Nearest
    missed: tuple[Sized, Point] | None  # the largest fleet that the simulator let fail
    hit_share: float  # of prompt tokens, that the search took to be found

    @property
    def point(self) -> Point | None:
        """The answer under the load as asked."""
        return next((x.point for x in self.loads if x.name == "as asked"), None)


def sized(a: Asked) -> Answer:
    """The fewest chips of this kind, and of other rates, by the simulator unless it is not asked."""
    found, tokens = Found(), a.given.tokens_per_step
    judge = Judge(a.ttft, a.tpot, tokens, a.offered, a.seed, a.told)
    ranked, hits = _ranked(a, a.q, found), 0.0
    if a.simulate and a.offered.shares and ranked.instances:
        # what prompts find of each other is the simulator's to say, and the search goes on with it
        hits = judge.point(size.options(ranked.instances, a.rate)[0]).hit_share
        ranked = _ranked(a, _finding(a.q, hits), found)
    options = size.options(ranked.instances, a.rate)
    formula = best = options[0] if options else None
    loads: list[Load] = []
    rates = [size.options(ranked.instances, rate)[0] for rate in a.rates] if options else []
    if a.simulate and options:
        tried = _candidates(options, rates)
        best = judge.fewest([s for s in options if s.instance.strategy in tried])
        if best is not None:
            rates = _rates(a, judge, [s.instance for s in options if s.instance.strategy in tried], best)
            loads = judge.loads(best)
    elif best is not None:
        loads = size.loads(best, a.ttft, a.tpot, tokens)
    return Answer(
        a, best, formula, options, loads, rates, price_per_hour(a.q, a.given), found.priced, judge.runs, ranked.nearest,
        judge.missed, hits,
    )  # fmt: skip


def _ranked(a: Asked, q: Question, found: Found) -> Ranked:
    longest = a.offered.longest(a.seed)[1]
    return size.best_instances(q, a.ttft, a.tpot, a.largest, a.pins, a.given.tokens_per_step, found, longest)


def _finding(q: Question, share: float) -> Question:
    """The question with this share of every prompt found in the cache."""
    return replace(
        q, workload=replace(q.workload, prefix_tokens=min(round(share * q.workload.isl), q.workload.isl - 1))
    )


def _candidates(options: list[Sized], rates: list[Sized]) -> set[Strategy]:
    """Instances to simulate: the formula's first few, and its first at every other rate."""
    return {s.instance.strategy for s in (*options[:CANDIDATES], *rates)}


def _rates(a: Asked, judge: Judge, instances: list[Instance], best: Sized) -> list[Sized]:
    """The fewest chips of these instances at every rate."""
    out = []
    for rate in a.rates:
        one = best if rate == a.rate else judge.fewest(size.options(instances, rate), confirm=False)
        if one is not None:
            out.append(one)
    return out


__all__ = ["Answer", "Asked", "Instance", "sized"]
