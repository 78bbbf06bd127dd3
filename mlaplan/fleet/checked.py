"""The simulator's word on a size: requests of a Poisson stream through its replicas, event by event.

The formula of `fleet.queueing` ranks what there is; the simulator then finds how many replicas of the first instances
keep the limits, walking down or up from the formula's number. Of many replicas four are run at their share of the
rate. Requests of the first residence time find a fleet that is not yet full and do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.errors import MlaplanError
from mlaplan.fleet.operating import Point
from mlaplan.fleet.size import SHARES, Load, Sized
from mlaplan.serving.simulator.outcome import Limit, at
from mlaplan.serving.simulator.run import simulate
from mlaplan.simulation import Longest, fleet_of, uniform_requests

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_REPLICAS = 4
FEWEST_REQUESTS, MOST_REQUESTS = 1000, 4000
RESIDENCES = 4  # of a request's time in the fleet that are run
CANDIDATES = 3  # instances that are simulated
STEPS = 8  # down, one by one
ABOVE = 3  # replicas beyond the formula's that are tried


def fewest(passing: int, meets: Callable[[int], bool]) -> int:
    """The fewest from 1 on that pass, below a number that does: one by one, then by steps twice as long each.

    Past the first STEPS it takes for granted that more pass where fewer do: it asks some log2 of the number, not all.
    """
    failing, taken, step = 0, 0, 1
    while passing - failing > 1:
        step = step if taken < STEPS else 2 * step
        tried = (passing + failing) // 2 if failing else max(passing - step, 1)
        if meets(tried):
            passing = tried
        else:
            failing = tried
        taken += 1
    return passing


@dataclass(slots=True)
class Judge:
    """Simulates fleets under limits, each once. told: is called with a line before every run."""

    ttft: Limit | None
    tpot: Limit | None
    tokens: float | None
    seed: int = 0
    told: Callable[[str], None] | None = None
    runs: int = 0

    def point(self, s: Sized) -> Point:
        """The fleet's percentiles at its rate; in_flight is the mean batch of a decode round."""
        q, work = s.instance.q, s.instance.q.workload
        replicas = min(s.replicas, MOST_REPLICAS)
        rate = s.rate * replicas / s.replicas
        stay = (self.ttft.seconds if self.ttft else 1.0) + work.osl * (self.tpot.seconds if self.tpot else 0.05)
        count = int(np.clip(RESIDENCES * rate * stay, FEWEST_REQUESTS, MOST_REQUESTS))
        if self.told is not None:
            self.told(f"simulating {count:,} requests on {replicas} of {s.replicas} x {s.instance.strategy.label()}")
        self.runs += 1
        requests = uniform_requests(work.isl, work.osl, count, rate, self.seed)
        strategy = replace(s.instance.strategy, replicas=replicas)
        nothing = float("inf")
        try:
            fleet = fleet_of(q, strategy, Longest.of(requests), tokens_given=self.tokens)
        except MlaplanError:  # the cache holds no request
            return Point(rate, nothing, nothing, 1.0, 0.0, 0.0, strategy.batch)
        out = simulate(requests, fleet, seed=self.seed)
        full = out.sent_s >= min(stay, 0.5 * float(out.sent_s[-1]))
        first, each = (
            nothing if out.refused.any() else at(column[full], limit or Limit(0.0, nothing))
            for column, limit in ((out.ttft_s, self.ttft), (out.tpot_s, self.tpot))
        )
        busy = out.serve.prefill_s / max(replicas * out.makespan_s, 1e-12)
        return Point(rate / replicas, first, each, min(busy, 1.0), out.serve.mean_batch, float("nan"), strategy.batch)

    def meets(self, s: Sized) -> bool:
        return self.point(s).meets(self.ttft, self.tpot)

    def fewest(self, options: list[Sized]) -> Sized | None:
        """The fewest chips of the first few sizes that the simulator lets pass."""
        best: Sized | None = None
        for one in sorted(options, key=lambda s: (s.chips, s.replicas))[:CANDIDATES]:
            found = self._walk(one, best.chips if best else None)
            if found is not None and (best is None or found.chips < best.chips):
                best = found
        return best

    def _walk(self, s: Sized, below: int | None) -> Sized | None:
        """Down from a number of replicas that passes, or up from one that does not, to below so many chips."""

        def with_replicas(n: int) -> Sized:
            return replace(s, replicas=n)

        if below is not None:
            most = (below - 1) // s.instance.chips
            if most < 1:
                return None
            s = with_replicas(min(s.replicas, most))
        if self.meets(s):
            return with_replicas(fewest(s.replicas, lambda n: self.meets(with_replicas(n))))
        for n in range(s.replicas + 1, s.replicas + ABOVE + 1):
            if below is not None and n * s.instance.chips >= below:
                return None
            if self.meets(with_replicas(n)):
                return with_replicas(n)
        return None

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
