"""What is kept of a run while it goes: state over time, time shares, times between outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.serving.simulator.outcome import PoolOutcome, Series

if TYPE_CHECKING:
    from mlaplan.serving.simulator.replica import Replica
    from mlaplan.serving.simulator.sequence import Sequence

MOST_SAMPLES = 2048
GAP_WIDTH = 0.005  # times between outputs are told apart by half a percent


class Tally:
    """Of one pool."""

    def __init__(self, requests: int) -> None:
        self.preemptions = [0] * requests
        self.gaps: dict[int, float] = {}
        self.samples: list[tuple[float, float, float, float, float]] = []
        self.apart_s = 0.0  # samples are at least this far from each other
        self.busy_s = self.prefill_s = self.decode_s = self.rounds_s = self.batch_s = self.held_s = 0.0
        self.peak = 0

    def preempted(self, s: Sequence) -> None:
        self.preemptions[s.number] += 1

    def step(self, replica: Replica, now: float) -> None:
        """A step ends, before its results count."""
        took, n = now - replica.start_s, replica.rounds
        running = sum(len(rank.running) for rank in replica.decoding) if n else 0
        held = sum(rank.cache.held for rank in replica.ranks)
        self.busy_s += took
        self.held_s += held * took
        self.peak = max(self.peak, held)
        if any(p.tokens for p in replica.prompts):
            self.prefill_s += took
        else:
            self.decode_s += took
        if n:
            self.rounds_s += took
            self.batch_s += running * took
        if n and running:
            self._outputs(replica, now, n, running)

    def _outputs(self, replica: Replica, now: float, n: int, running: int) -> None:
        first = replica.start_s + replica.after(1)
        waiting: dict[float, int] = {}  # sequences by the time of their last output
        for rank in replica.decoding:
            for since in rank.joined:
                waiting[since] = waiting.get(since, 0) + 1
            if (older := len(rank.running) - len(rank.joined)) > 0:
                waiting[rank.last_s] = waiting.get(rank.last_s, 0) + older
        for since, count in waiting.items():
            self._gap(first - since, count)
        if n > 1:
            self._gap((now - first) / (n - 1), running * (n - 1))

    def _gap(self, seconds: float, count: float) -> None:
        place = math.floor(math.log(max(seconds, 1e-9)) / GAP_WIDTH)
        self.gaps[place] = self.gaps.get(place, 0.0) + count

    def sample(self, now: float, replicas: list[Replica]) -> None:
        """The state of the pool now, unless that was kept a moment ago."""
        if self.samples and now - self.samples[-1][0] < self.apart_s:
            return
        ranks = [rank for replica in replicas for rank in replica.ranks]
        capacity = max(sum(rank.cache.capacity for rank in ranks), 1)
        self.samples.append((
            now, float(sum(len(rank.running) for rank in ranks)),
            float(sum(len(rank.waiting) + len(rank.incoming) for rank in ranks)),
            sum(rank.cache.held for rank in ranks) / capacity, sum(rank.cache.kept for rank in ranks) / capacity,
        ))  # fmt: skip
        if len(self.samples) >= MOST_SAMPLES:
            self.samples = self.samples[::2]
            self.apart_s = 2.0 * (now - self.samples[0][0]) / MOST_SAMPLES

    def outcome(self, replicas: list[Replica]) -> PoolOutcome:
        ranks = [rank for replica in replicas for rank in replica.ranks]
        per_replica = sum(rank.cache.capacity for rank in replicas[0].ranks) or 1
        columns = np.array(self.samples or [(0.0,) * 5]).T
        return PoolOutcome(
            series=Series(*columns),
            mean_batch=self.batch_s / self.rounds_s / len(replicas[0].ranks) if self.rounds_s else 0.0,
            mean_held=self.held_s / self.busy_s / per_replica if self.busy_s else 0.0,
            peak_held=self.peak / per_replica,
            preemptions=sum(rank.preemptions for rank in ranks),
            evictions=sum(rank.cache.evictions for rank in ranks),
            hit_tokens=sum(rank.hit_tokens for rank in ranks),
            prompt_tokens=sum(rank.asked_tokens for rank in ranks),
            computed_tokens=sum(rank.computed_tokens for rank in ranks),
            prefill_s=self.prefill_s, decode_s=self.decode_s, busy_s=self.busy_s,
        )  # fmt: skip

    def between_outputs(self) -> tuple[np.ndarray, np.ndarray]:
        """(times, how often each occurred), to half a percent."""
        places = sorted(self.gaps)
        return np.exp((np.array(places) + 0.5) * GAP_WIDTH), np.array([self.gaps[p] for p in places])
