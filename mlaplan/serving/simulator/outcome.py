"""What a run was like: times of every request, the state over time, and totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Limit(NamedTuple):
    """A service level: `percentile` of the requests within `seconds`; percentile 0 stands for the mean."""

    percentile: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a column; NaN where there is nothing."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, column: NDArray[np.float64]) -> Spread:
        found = column[np.isfinite(column)]
        if not len(found):
            return cls(*[float("nan")] * 5)
        p50, p95, p99 = np.percentile(found, [50, 95, 99])
        return cls(float(found.mean()), float(p50), float(p95), float(p99), float(found.max()))


@dataclass(frozen=True, slots=True)
class Series:
    """State of a pool over time, sampled at steps: sums over its ranks."""

    time_s: NDArray[np.float64]
    running: NDArray[np.float64]  # sequences that decode
    waiting: NDArray[np.float64]  # requests not yet admitted
    held: NDArray[np.float64]  # share of the cache that requests in flight hold
    cached: NDArray[np.float64]  # share that only keeps prefixes of finished ones


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """What one pool did. Means are over time while the pool had work."""

    series: Series
    mean_batch: float  # sequences per rank in a decode round
    mean_held: float
    peak_held: float
    preemptions: int
    evictions: int  # prefix blocks that left the cache
    hit_tokens: int  # prompt tokens found in the cache
    prompt_tokens: int  # of all prompts looked up, recomputed ones apart
    computed_tokens: int  # prompt tokens computed, recomputation included
    prefill_s: float  # replica seconds in steps with prompts
    decode_s: float  # replica seconds in steps without
    busy_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Columns over the requests, NaN where a request was refused; times in seconds.

    ttft_s: from sending to the first token. tpot_s: mean time between later tokens. queue_s: from the scheduler's
    sight to the first admission. end_s: finish on the clock. refused: longer than the cache of a rank.
    itl_s, itl_weight: distinct times between two outputs of a sequence and how often they occurred.
    """

    sent_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    queue_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    hit_tokens: NDArray[np.int64]
    preempted: NDArray[np.int64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    itl_s: NDArray[np.float64]
    itl_weight: NDArray[np.float64]
    serve: PoolOutcome
    prefill: PoolOutcome | None
    events: int

    @property
    def refused(self) -> NDArray[np.bool_]:
        return np.isnan(self.end_s)

    @property
    def makespan_s(self) -> float:
        """From the first request sent to the last token."""
        return float(np.nanmax(self.end_s) - self.sent_s[0]) if not self.refused.all() else 0.0

    @property
    def output_tok_s(self) -> float:
        return float(self.output[~self.refused].sum()) / self.makespan_s if self.makespan_s else 0.0

    @property
    def total_tok_s(self) -> float:
        done = ~self.refused
        return float((self.prompt + self.output)[done].sum()) / self.makespan_s if self.makespan_s else 0.0

    @property
    def requests_per_s(self) -> float:
        return float((~self.refused).sum()) / self.makespan_s if self.makespan_s else 0.0

    def within(self, ttft: Limit | None, tpot: Limit | None) -> NDArray[np.bool_]:
        """Requests that keep the times of the limits, whatever their percentile; refused ones do not."""
        good = ~self.refused
        for column, limit in ((self.ttft_s, ttft), (self.tpot_s, tpot)):
            if limit is not None:
                good &= ~(column > limit.seconds)  # a single output token has no time between tokens
        return good

    def meets(self, ttft: Limit | None, tpot: Limit | None) -> bool:
        """Whether each limit holds at its percentile, and nothing was refused."""
        if self.refused.any():
            return False
        return all(
            at(column, limit) <= limit.seconds
            for column, limit in ((self.ttft_s, ttft), (self.tpot_s, tpot))
            if limit is not None
        )


def at(column: NDArray[np.float64], limit: Limit) -> float:
    """The column's value that a limit speaks of; 0 where there is none."""
    found = column[np.isfinite(column)]
    if not len(found):
        return 0.0
    return float(found.mean() if limit.percentile == 0 else np.percentile(found, limit.percentile))
