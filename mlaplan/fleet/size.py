"""Fewest chips for a request rate and percentile limits: the best instance of every size, and how many of them.

Every strategy of every instance size is priced with every batch that memory holds; `fleet.queueing` gives the largest
rate at which one keeps the limits. An instance size serves a rate with ceil(rate / that) replicas. Of the sizes the one
with fewest chips is taken, of equals the one with the lower rate per replica left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs.table import size
from mlaplan.fleet import instances, queueing
from mlaplan.fleet.operating import Curve, Point, rank
from mlaplan.search import Found
from mlaplan.strategy import from_row

if TYPE_CHECKING:
    from mlaplan.costs.table import Table
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.outcome import Limit
    from mlaplan.strategy import Strategy

ALONE = 1e-9  # requests per second of a rank that never meets another


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
    def server(self) -> int:
        """Chips that fail together: those of one host, which may be a part of a scale-up domain."""
        return self.instance.q.setting.chip.scale_up.host_chips

    @property
    def lost(self) -> int:
        """Most replicas that one failed server takes with it, each whole."""
        return min(touched(self.instance.chips, self.server), self.replicas)

    @property
    def with_spare(self) -> Sized:
        """So many more that as many are left when a server fails."""
        return replace(self, replicas=self.replicas + touched(self.instance.chips, self.server))

    def usd_per_mtok(self, price: float | None) -> float | None:
        """Dollars per million output tokens at this rate, idle time included."""
        if price is None:
            return None
        return price * self.chips / 3600.0 / (self.rate * self.instance.q.workload.osl) * 1e6


def touched(instance: int, server: int) -> int:
    """Most instances of so many chips, placed one after the other, that have a chip of the same server.

    Server k has the chips from k s to (k + 1) s: max over k of ceil((k + 1) s / n) - floor(k s / n).
    """
    return max(
        -(-(k + 1) * server // instance) - k * server // instance for k in range(instance // gcd(instance, server))
    )


@dataclass(slots=True)
class Nearest:
    """The shortest times of a request that meets no other, over all instances, each with its strategy; by the formula.

    with_ttft, with_tpot: of the strategies that keep that limit, the shortest of the other time.
    """

    ttft: tuple[float, Strategy] | None = None
    tpot: tuple[float, Strategy] | None = None
    with_ttft: tuple[float, Strategy] | None = None
    with_tpot: tuple[float, Strategy] | None = None
    held: int = 0  # strategies whose cache holds the longest request

    def see(self, q: Question, table: Table, ttft: Limit | None, tpot: Limit | None) -> None:
        """Takes what the rows have that is shorter."""
        self.held += size(table)
        percentiles = (ttft.percentile if ttft else 0.0, tpot.percentile if tpot else 0.0)
        x = queueing.state(ALONE, rank(q, table), *percentiles)
        first, each = (np.broadcast_to(c, size(table)) for c in (x.ttft_s, x.tpot_s))
        soon, quick = (c <= (limit.seconds if limit else np.inf) for c, limit in ((first, ttft), (each, tpot)))
        for name, column, of in (("ttft", first, None), ("tpot", each, None), ("with_ttft", each, soon),
                                 ("with_tpot", first, quick)):  # fmt: skip
            times = column if of is None else np.where(of, column, np.inf)
            i, best = int(np.argmin(times)), getattr(self, name)
            if np.isfinite(times[i]) and (best is None or times[i] < best[0]):
                setattr(self, name, (float(times[i]), from_row(table, i)))


@dataclass(slots=True)
class Ranked:
    """What the search found: the best instance of every size, and how near the limits anything comes."""

    instances: list[Instance] = field(default_factory=list)
    nearest: Nearest = field(default_factory=Nearest)


def best_instances(
    q: Question, ttft: Limit | None, tpot: Limit | None, largest: int, pins: Mapping[str, Any], tokens: float | None,
    found: Found, longest: int = 0,
) -> Ranked:  # fmt: skip
    """Of every instance size the strategy that keeps the limits at the highest rate, where one keeps them at all.

    longest: tokens that the cache of a rank must hold for one request.
    """
    out = Ranked()
    one = instances.alone(q)
    for n in instances.sizes(q.setting.chip, largest):
        best: tuple[float, Strategy] | None = None
        for part in instances.rows(one, n, pins, tokens, found):
            table = part.take(np.flatnonzero(part["kv_tokens"] >= longest))
            if not size(table):
                continue
            out.nearest.see(one, table, ttft, tpot)
            rate = highest_rate(one, table, ttft, tpot)
            i = int(np.argmax(rate))
            if rate[i] > 0 and (best is None or rate[i] > best[0]):
                best = float(rate[i]), from_row(table, i)
        if best is not None:
            out.instances.append(Instance(one, best[1], best[0]))
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
    return sorted(sized, key=fewer)


def fewer(s: Sized) -> tuple[int, int]:
    """Fewest chips first; of equals fewer replicas."""
    return s.chips, s.replicas


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
