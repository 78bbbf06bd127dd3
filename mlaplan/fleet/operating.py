"""One instance at a request rate: its percentiles, how full it is, and whether it keeps the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs.table import Table
from mlaplan.fleet import queueing
from mlaplan.fleet.instances import timed
from mlaplan.fleet.queueing import Rank
from mlaplan.pricing import price
from mlaplan.serving import steady
from mlaplan.serving.lockstep import Ranks
from mlaplan.space import batch_grid
from mlaplan.strategy import to_table

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.outcome import Limit
    from mlaplan.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Point:
    """ttft_s, tpot_s at the percentiles of the limits; both infinite where the load is too much."""

    rate: float  # of one instance
    ttft_s: float
    tpot_s: float
    prompt_share: float  # of a rank
    in_flight: float  # sequences in decode on a rank, mean
    peak: float  # and at the percentile of the TPOT limit
    slots: int
    hit_share: float = 0.0  # of prompt tokens, found in the cache
    grows: bool = False  # the queue gets longer and longer, in the simulator

    @property
    def stable(self) -> bool:
        return self.ttft_s < float("inf") and not self.grows

    def meets(self, ttft: Limit | None, tpot: Limit | None) -> bool:
        """Whether both limits hold."""
        good = self.stable and (ttft is None or self.ttft_s <= ttft.seconds * (1 + 1e-9))
        return good and (tpot is None or self.tpot_s <= tpot.seconds * (1 + 1e-9))


def rank(q: Question, table: Mapping[str, Any]) -> Rank:
    """Ranks of priced rows as queues."""
    e, work, batch = q.setting.engine, q.workload, np.asarray(table["batch"], dtype=float)
    step_tokens = steady.prefill_step_tokens(Table(table), work, table["per_round"])
    joint = steady.in_lockstep(table, work, e, batch, table["rounds"], table, step_tokens)
    balance = np.where(table["dp"] > 1, float(e.prefill_balance), 1.0)
    return Rank(
        table["decode_s"], table["per_round"], table["rounds"], table["prompt_s"] * balance / table["passes"],
        table["passes"], table["first_s"], table["dp"], joint, e.mixed_prefill, steady.front_end_s(e, work),
    )  # fmt: skip


class Curve:
    """One strategy over its batch, from which every operating point follows."""

    def __init__(self, q: Question, s: Strategy, tokens: float | None) -> None:
        self.s = s
        batches = [*(int(b) for b in batch_grid(s.batch)), s.batch]
        table = Table(to_table([replace(s, batch=b, replicas=1) for b in batches]))
        self.batches = np.array(batches, dtype=float)
        self.ranks = rank(q, timed(q, table.having(**price(q, table, tokens)), tokens))

    def at(self, rate: float, ttft: Limit | None, tpot: Limit | None) -> Point:
        """The instance at so many requests per second."""
        each = rate / self.s.dp
        percentiles = (ttft.percentile if ttft else 0.0, tpot.percentile if tpot else 0.0)
        # the batch that its own decode step leads to
        low, high = 1.0, float(self.s.batch)
        if float(queueing.state(each, self._of(high), *percentiles).peak) > high:
            full = queueing.prompt_share(each, self._of(high))
            nothing = float("inf")
            return Point(rate, nothing, nothing, min(float(full), 1.0), high, high, self.s.batch)
        for _ in range(queueing.HALVINGS):
            middle = 0.5 * (low + high)
            over = float(queueing.state(each, self._of(middle), *percentiles).peak) > middle
            low, high = (middle, high) if over else (low, middle)
        x = queueing.state(each, self._of(high), *percentiles)
        return Point(
            rate, float(x.ttft_s), float(x.tpot_s), float(x.prompt_share), float(x.in_flight), float(x.peak),
            self.s.batch,
        )  # fmt: skip

    def _of(self, batch: float) -> Rank:
        def at(column: Any) -> Any:
            if isinstance(column, Ranks):
                return Ranks(*map(at, column))
            if np.ndim(column) == 0:
                return column
            value = np.interp(batch, self.batches, np.asarray(column, dtype=float))
            return bool(value > 0.5) if column.dtype == bool else float(value)

        return Rank(*map(at, self.ranks))
