"""Fewest chips for a request rate and percentile limits: the best instance of every size, and how many of them.

Every strategy of every instance size is priced with every batch that memory holds; `fleet.queueing` gives the largest
rate at which one keeps the limits. An instance size serves a rate with ceil(rate / that) replicas. Of the sizes the one
with fewest chips is taken, of equals the one with the lower rate per replica left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs.factor import size
from mlaplan.fleet import instances, queueing
from mlaplan.fleet.operating import Curve, Point, rank
from mlaplan.search import Found
from mlaplan.strategy import from_row

if TYPE_CHECKING:
    from mlaplan.costs.factor import Table
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.outcome import Limit
    from mlaplan.strategy import Strategy

SERVER = 8  # chips that fail together; a larger scale-up domain is made of such servers


@dataclass(frozen=True, slots=True)
class Instance:
    """The strategy of one size that serves most, and the rate up to which it keeps the limits."""

    q: Question
    strategy: Strategy
    most_per_s: float

    @property
    def chips(self) -> int:
        return self.strategy.chips_per_replica


@dataclass(frozen=True, slots=True)
class Sized:
    """A number of replicas of one instance for a rate."""

    instance: Instance
    rate: float
    replicas: int

    @property
    def chips(self) -> int:
        return self.replicas * self.instance.chips

    @property
    def strategy(self) -> Strategy:
        return replace(self.instance.strategy, replicas=self.replicas)

    @property
    def lost(self) -> int:
        """Replicas that fail with one server."""
        per_node = min(self.instance.q.setting.chip.scale_up.chips_per_node, SERVER)
        return max(per_node // self.instance.chips, 1)

    def usd_per_mtok(self, price: float | None) -> float | None:
        """Dollars per million output tokens at this rate, idle time included."""
        if price is None:
            return None
        return price * self.chips / 3600.0 / (self.rate * self.instance.q.workload.osl) * 1e6


def best_instances(
    q: Question, ttft: Limit | None, tpot: Limit | None, largest: int, pins: Mapping[str, Any], tokens: float | None,
    found: Found,
) -> list[Instance]:  # fmt: skip
    """Of every instance size the strategy that keeps the limits at the highest rate, where one keeps them at all."""
    out = []
    one = instances.alone(q)
    for n in instances.sizes(q.setting.chip, largest):
        best: tuple[float, Strategy] | None = None
        for table in instances.rows(one, n, pins, tokens, found):
            rate = highest_rate(one, table, ttft, tpot)
            i = int(np.argmax(rate)) if size(table) else 0
            if size(table) and rate[i] > 0 and (best is None or rate[i] > best[0]):
                best = float(rate[i]), from_row(table, i)
        if best is not None:
            out.append(Instance(one, best[1], best[0]))
    return out


def highest_rate(q: Question, table: Table, ttft: Limit | None, tpot: Limit | None) -> np.ndarray:
    """Requests per second of one instance up to which each row keeps both limits, 0 where it never does. [1/s]"""
    rate = queueing.highest_rate(rank(q, table), table["batch"], _pair(ttft), _pair(tpot))
    return np.asarray(rate * table["dp"])


def _pair(limit: Limit | None) -> tuple[float, float] | None:
    return None if limit is None else (limit.percentile, limit.seconds)


def options(found: list[Instance], rate: float) -> list[Sized]:
    """As many of each instance as the rate needs, fewest chips first; of equals fewer replicas."""
    sized = [Sized(one, rate, max(ceil(rate / one.most_per_s - 1e-9), 1)) for one in found]
    return sorted(sized, key=lambda s: (s.chips, s.replicas))


# (name, of the rate, servers that failed)
SHARES = (("-20 %", 0.8, 0), ("as asked", 1.0, 0), ("+20 %", 1.2, 0), ("server lost", 1.0, 1))


@dataclass(frozen=True, slots=True)
class Load:
    """The fleet under another load, or with fewer replicas."""

    name: str
    rate: float
    replicas: int
    point: Point | None  # None where no replica is left
    meets: bool


def loads(s: Sized, ttft: Limit | None, tpot: Limit | None, tokens: float | None) -> list[Load]:
    """As asked, 20 % below and above it, and with one server failed, by the formula."""
    curve = Curve(s.instance.q, s.instance.strategy, tokens)
    out = []
    for name, factor, lost in SHARES:
        replicas, rate = s.replicas - lost * s.lost, factor * s.rate
        point = curve.at(rate / replicas, ttft, tpot) if replicas > 0 else None
        out.append(Load(name, rate, max(replicas, 0), point, point is not None and point.meets(ttft, tpot)))
    return out
