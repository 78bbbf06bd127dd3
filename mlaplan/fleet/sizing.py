"""`size` for one kind of chip, in one straight line: instances, replicas, the simulator, other loads, other rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.fleet import size
from mlaplan.fleet.checked import Judge
from mlaplan.fleet.size import Instance, Load, Sized
from mlaplan.plan import price_per_hour
from mlaplan.search import Found

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.outcome import Limit
    from mlaplan.workload import Overrides

RATES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the rate that is asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """A rate and its limits for one kind of chip."""

    q: Question
    rate: float
    ttft: Limit | None
    tpot: Limit | None
    largest: int
    pins: Mapping[str, Any]
    given: Overrides
    simulate: bool
    seed: int
    told: Callable[[str], None]


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


def sized(a: Asked) -> Answer:
    """The fewest chips of this kind. Other rates are told by the formula, whatever decided."""
    found, tokens = Found(), a.given.tokens_per_step
    instances = size.best_instances(a.q, a.ttft, a.tpot, a.largest, a.pins, tokens, found)
    options = size.options(instances, a.rate)
    formula = best = options[0] if options else None
    judge = Judge(a.ttft, a.tpot, tokens, a.seed, a.told)
    if a.simulate and options:
        best = judge.fewest(options)
    loads: list[Load] = []
    if best is not None:
        loads = judge.loads(best) if a.simulate else size.loads(best, a.ttft, a.tpot, tokens)
    rates = [size.options(instances, share * a.rate)[0] for share in RATES] if instances else []
    return Answer(a, best, formula, options, loads, rates, price_per_hour(a.q, a.given), found.priced, judge.runs)


__all__ = ["Answer", "Asked", "Instance", "sized"]
