"""A split under Poisson arrivals: what its TTFT is beside the one for arrivals that come evenly.

    TTFT    = W_prefill + S + W_decode + exposed transfer + F        W: `waiting`, of both pools
    prefill   x DP_p servers that take t_p each;   decode   y DP_d b sequences that stay n t_d(b) each

At its capacity a pool is always busy and a queue of random arrivals grows without end; so where the load is left open,
or a closed loop keeps a pool busy, this is told for a share of that rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlaplan.serving import waiting
from mlaplan.serving.steady import front_end_s

if TYPE_CHECKING:
    from mlaplan.fleet.split import Split

PERCENTILE = 95.0
SHARE = 0.8  # of the rate, where a pool has nothing to spare
BUSY = 0.95  # load of a pool from which on it has nothing to spare


@dataclass(frozen=True, slots=True)
class Poisson:
    """The split at a rate of random arrivals. share: of the rate that it was planned at."""

    share: float
    requests_per_s: float
    prefill_load: float
    decode_load: float
    prefill_wait_s: float
    decode_wait_s: float
    ttft_s: float
    ttft_p95_s: float


def busiest(s: Split) -> float:
    """Load of the busier pool at the rate that the split was planned at."""
    return max(s.requests_per_s / s.prefill_capacity, s.requests_per_s / s.decode_capacity)


def poisson(s: Split, share: float | None = None) -> Poisson:
    """The split with random arrivals at its rate, or at 80 % of it where that leaves a pool nothing to spare."""
    if share is None:
        share = SHARE if busiest(s) > BUSY else 1.0
    rate = share * s.requests_per_s
    p, d = s.prefill, s.decode
    loads = rate / s.prefill_capacity, rate / s.decode_capacity
    servers = p.instances * p.strategy.dp, d.instances * d.strategy.dp * d.strategy.batch
    services = s.prompt_s, s.stay_s
    waits = [float(waiting.mean_s(*one)) for one in zip(loads, servers, services, strict=True)]
    tails = [float(waiting.percentile_s(*one, PERCENTILE)) for one in zip(loads, servers, services, strict=True)]
    fixed = s.prefill_at(loads[0]) + s.exposed_s + float(front_end_s(p.q.setting.engine, d.q.workload))
    # the percentile of a sum: the longer tail over the mean of the other
    tail = max(tails[0] + waits[1], waits[0] + tails[1])
    return Poisson(share, rate, loads[0], loads[1], waits[0], waits[1], sum(waits) + fixed, tail + fixed)
