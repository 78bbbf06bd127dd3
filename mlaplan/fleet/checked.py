"""The simulator's word on a size: what is offered, through replicas of an instance, event by event.

The formula of `fleet.queueing` ranks what there is; the simulator then finds how many replicas of the first instances
keep the limits. Of n replicas a few are run with their part of the load (`fleet.offered`). What they are like goes by
requests per second and replica alone where arrivals are even, so that a load at which an instance has kept or missed
the limits decides every other rate and number of replicas too, and none of the answers contradicts another.

Requests of the first and of the last residence time, in which the fleet fills and drains, do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.errors import MlaplanError
from mlaplan.fleet.offered import TURNS
from mlaplan.fleet.operating import Point
from mlaplan.fleet.size import SHARES, Load, Sized, fewer
from mlaplan.serving.simulator.outcome import Limit, at
from mlaplan.serving.simulator.run import simulate
from mlaplan.serving.simulator.server import Fleet, Pool, Server
from mlaplan.simulation import Longest, server_of

if TYPE_CHECKING:
    from mlaplan.fleet.offered import Offered
    from mlaplan.serving.simulator.outcome import Outcome
    from mlaplan.strategy import Strategy

PLACES, MOST_REPLICAS = 8, 4  # attention-DP ranks of the replicas that are run, or so many replicas
FEWEST_REQUESTS, MOST_REQUESTS = 1000, 4000
RESIDENCES = 4  # of a request's time in the fleet that are run
CANDIDATES = 3  # instances that are simulated
STEPS = 8  # down, of equal size
MOST_TIMES = 8  # the formula's replicas, up to which more are tried
HOPELESS = 1.1  # times the load per replica at which a fleet of other size misses the limits: not tried
GROWTH, FEW = 0.03, 8  # of the requests of half a run that come and still wait at its end, and at least so many
SLACK = 1e-9  # of two loads that are the same

Alike = tuple[int, float]


def fewest(passing: int, meets: Callable[[int], bool], below: int = 0, pace: float = 0.15) -> int:
    """The fewest above `below` that pass, under a number that does: by steps of a share of it down, then by halves.

    It takes for granted that more pass where fewer do, and that `below` does not. Past the first STEPS they double.
    """
    failing, step, taken = below, 1, 0
    while passing - failing > 1:
        step = 2 * step if taken >= STEPS else max(round(pace * passing), 1)
        tried = max(passing - step, failing + 1) if failing == below else (passing + failing) // 2
        taken += 1
        if meets(tried):
            passing = tried
        else:
            failing = tried
    return passing


@dataclass(slots=True)
class Judge:
    """Simulates fleets under limits, each once. told: is called with a line before every run."""

    ttft: Limit | None
    tpot: Limit | None
    tokens: float | None
    offered: Offered
    seed: int = 0
    told: Callable[[str], None] | None = None
    runs: int = 0
    points: dict[tuple[Strategy, Alike, float], Point] = field(default_factory=dict)
    servers: dict[Strategy, Server | None] = field(default_factory=dict)
    # requests per second and replica, by instance and what makes fleets alike: most that passed, least that failed
    known: dict[tuple[Strategy, Alike], list[float]] = field(default_factory=dict)
    missed: tuple[Sized, Point] | None = None  # the largest fleet that was tried in vain

    # ---- one fleet ----

    def point(self, s: Sized) -> Point:
        """The fleet's percentiles at its rate; in_flight is the mean batch of a decode round."""
        key = self._key(s)
        if key not in self.points:
            self.points[key] = self._point(s)
        return self.points[key]

    def _point(self, s: Sized) -> Point:
        strategy, nothing = s.instance.strategy, float("inf")
        server = self._server(s)
        if server is None:
            return Point(s.rate / s.replicas, nothing, nothing, 1.0, 0.0, 0.0, strategy.batch)
        out = self.run(s, server)
        begin, end = out.sent_s[0], out.sent_s[-1]
        quarter = (end - begin) / 4
        edge = min(self._stay(server), quarter)
        counted = (out.sent_s >= begin + edge) & (out.sent_s <= end - edge)
        first, each = (
            nothing if out.refused.any() else at(column[counted], limit or Limit(0.0, nothing))
            for column, limit in ((out.ttft_s, self.ttft), (out.tpot_s, self.tpot))
        )
        busy = out.serve.prefill_s / max(self.simulated(s) * float(end - begin), 1e-12)
        hits = out.serve.hit_tokens / max(out.serve.prompt_tokens, 1)
        return Point(
            s.rate / s.replicas, first, each, min(busy, 1.0), out.serve.mean_batch, float("nan"), strategy.batch, hits,
            _grows(out),
        )  # fmt: skip

    def run(self, s: Sized, server: Server) -> Outcome:
        """The requests of a few of its replicas."""
        k = self.simulated(s)
        part = k / s.replicas
        count = int(np.clip(RESIDENCES * part * s.rate * self._stay(server), FEWEST_REQUESTS, MOST_REQUESTS))
        requests = self.offered.sample(count, s.rate, part, self.seed, s.instance.strategy.dp > 1)
        if self.told is not None:
            self.told(
                f"simulating {len(requests):,} requests at {part * s.rate:.3g}/s on {k} of {s.replicas:,} x "
                f"{s.instance.strategy.label()}"
            )
        self.runs += 1
        return simulate(requests, Fleet(Pool(server, k, self.offered.routing)), seed=self.seed)

    def simulated(self, s: Sized) -> int:
        """Replicas that are run."""
        return min(s.replicas, ceil(PLACES / s.instance.strategy.dp), MOST_REPLICAS)

    def _stay(self, server: Server) -> float:
        """A request's time in the fleet at the limits; without one at a full batch that prompts slow to half. [s]"""
        isl, osl = self.offered.means
        each = self.tpot.seconds if self.tpot else 2 * server.steps.decode(server.slots, isl + osl / 2)[0]
        return (self.ttft.seconds if self.ttft else each) + osl * each

    def _server(self, s: Sized) -> Server | None:
        """One replica, priced once; None where its cache holds no request."""
        strategy = s.instance.strategy
        if strategy not in self.servers:
            try:
                found = server_of(
                    s.instance.q, strategy, Longest(*self.offered.longest(self.seed)), tokens_given=self.tokens
                )
                self.servers[strategy] = replace(found, prefix_cache=self.offered.prefix_cache)
            except MlaplanError:
                self.servers[strategy] = None
        return self.servers[strategy]

    # ---- whether it keeps the limits ----

    def _key(self, s: Sized) -> tuple[Strategy, Alike, float]:
        return s.instance.strategy, self._alike(s), round(s.rate / s.replicas, 12)

    def _alike(self, s: Sized) -> Alike:
        """Fleets of one instance of which this is the same do the same at equal requests per second and replica."""
        if not self.offered.even:
            return s.replicas, 1.0
        k = self.simulated(s)
        return k, min(s.replicas / k, TURNS) if s.instance.strategy.dp > 1 and not self.offered.whole else 1.0

    def meets(self, s: Sized) -> bool:
        """Whether the limits hold, by what is known of the instance where that is enough."""
        each = s.rate / s.replicas
        known = self.known.setdefault((s.instance.strategy, self._alike(s)), [0.0, float("inf")])
        if each <= known[0] * (1 + SLACK):
            return True
        if each >= known[1] * (1 - SLACK):
            return False
        return self.confirmed(s)

    def confirmed(self, s: Sized) -> bool:
        """Whether the limits hold in a run of this very fleet."""
        each, point = s.rate / s.replicas, self.point(s)
        good = point.meets(self.ttft, self.tpot)
        known = self.known.setdefault((s.instance.strategy, self._alike(s)), [0.0, float("inf")])
        if good:
            known[0] = max(known[0], each)
        else:
            known[1] = min(known[1], each)
            known[0] = min(known[0], each * (1 - SLACK)) if known[0] >= each else known[0]
            if self.missed is None or s.chips > self.missed[0].chips:
                self.missed = s, point
        return good

    # ---- the fewest ----

    def fewest(self, options: list[Sized], confirm: bool = True) -> Sized | None:
        """The fewest chips of these sizes; confirm: the answer is run itself, whatever is known of the instance."""
        best: Sized | None = None
        for one in sorted(options, key=lambda s: fewer(self._expected(s))):
            found = self._walk(one, best.chips if best else None, confirm)
            if found is not None and (best is None or found.chips < best.chips):
                best = found
        return best

    def _walk(self, s: Sized, chips: int | None, confirm: bool) -> Sized | None:
        """Down from a number of replicas that passes, or up from one that does not, to below so many chips."""

        def meets(n: int) -> bool:
            return self.meets(replace(s, replicas=n))

        most = MOST_TIMES * s.replicas if chips is None else (chips - 1) // s.instance.chips
        (passed, failed), expected = self._near(s), self._expected(s).replicas
        if most < 1 or (chips is not None and (s.rate / most > HOPELESS * failed or not meets(most))):
            return None
        n, failing, pace = min(expected, most), 0, 0.03 if passed else 0.15
        while not meets(n):
            failing = n
            if n == most:
                return None
            n = min(max(n + 1, round((1 + pace) * n)), most)
        n = fewest(n, meets, failing, pace)
        while confirm and n <= most and not self.confirmed(replace(s, replicas=n)):
            n += 1
        return replace(s, replicas=n) if n <= most else None

    def _expected(self, s: Sized) -> Sized:
        """The formula's replicas, or what a load that has passed leads to."""
        passed, _ = self._near(s)
        return replace(s, replicas=max(ceil(s.rate / passed - SLACK), 1)) if passed else s

    def _near(self, s: Sized) -> tuple[float, float]:
        """Requests per second and replica that some fleet of the instance kept the limits at, and some missed them."""
        known = [bounds for (strategy, _), bounds in self.known.items() if strategy == s.instance.strategy]
        own = self.known.get((s.instance.strategy, self._alike(s)))
        passed = own[0] if own is not None and own[0] > 0 else max((x[0] for x in known), default=0.0)
        return passed, min((x[1] for x in known), default=float("inf"))

    def loads(self, s: Sized) -> list[Load]:
        """As asked, 20 % below and above it, and with one server failed."""
        out = []
        for name, factor, lost in SHARES:
            replicas, rate = s.replicas - lost * s.lost, factor * s.rate
            point = self.point(replace(s, replicas=replicas, rate=rate)) if replicas > 0 else None
            out.append(
                Load(name, rate, max(replicas, 0), point, point is not None and point.meets(self.ttft, self.tpot))
            )
        return out


def _grows(out: Outcome) -> bool:
    """Whether more come than are served: over the middle half of the arrivals those without a first token get more.

    By more than a share of the arrivals in between, and by more than a few.
    """
    sent, first = out.sent_s, out.sent_s + np.where(np.isfinite(out.ttft_s), out.ttft_s, np.inf)
    times = sent[0] + (sent[-1] - sent[0]) * np.array([0.25, 0.75])
    waiting = [int(np.sum((sent <= t) & (first > t))) for t in times]
    come = int(np.sum((sent > times[0]) & (sent <= times[1])))
    return waiting[1] - waiting[0] > max(GROWTH * come, FEW)
