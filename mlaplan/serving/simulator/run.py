"""`simulate`: requests through a fleet, event by event.

Events at one time happen in the order in which they depend on each other: steps end, transfers arrive, prompts are
handed over, requests arrive, decisions are made. Of equals the one set down first goes first, so a run is the same
every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlaplan.serving.simulator.outcome import Outcome
from mlaplan.serving.simulator.record import Tally
from mlaplan.serving.simulator.replica import Replica
from mlaplan.serving.simulator.router import Router
from mlaplan.serving.simulator.sequence import Sequence, drawn_rounds

if TYPE_CHECKING:
    from mlaplan.serving.simulator.rank import Rank
    from mlaplan.serving.simulator.requests import Requests
    from mlaplan.serving.simulator.server import Fleet, Pool

Progress = Callable[[int, int], None]  # (requests done, requests in all)
END, ARRIVED, READY, PROMPTED, ASKED, DECIDE = range(6)
NO_IDS: tuple[int, ...] = ()


class _Pool:
    """Replicas of a pool with their router and what is kept of them."""

    def __init__(self, pool: Pool, requests: int, longest: int) -> None:
        self.server, self.tally = pool.server, Tally(requests)
        self.replicas = [Replica(pool.server, self.tally, longest) for _ in range(pool.replicas)]
        self.route = Router(self.replicas, pool.routing)


class _Run:
    def __init__(
        self,
        requests: Requests,
        fleet: Fleet,
        concurrency: int | None,
        seed: int,
        progress: Progress | None,
    ) -> None:
        n = self.count = len(requests)
        self.requests, self.fleet, self.progress = requests, fleet, progress
        # what the cache cannot hold is refused, and needs neither room nor draws
        output = np.minimum(requests.output, fleet.serve.server.kv_tokens + 1)
        longest = int(output.max(initial=1))
        self.serve = _Pool(fleet.serve, n, longest)
        self.prefill = _Pool(fleet.prefill, n, 1) if fleet.prefill else None
        self.first = self.prefill or self.serve
        self.pool_of = {id(r): pool for pool in (self.serve, self.prefill) if pool for r in pool.replicas}
        self.holder = {id(rank): r for pool in (self.serve, self.prefill) if pool for r in pool.replicas
                       for rank in r.ranks}  # fmt: skip
        d = fleet.serve.server
        rng = np.random.default_rng(seed)
        self.rounds = drawn_rounds(output - 1, d.drafts, d.acceptance, rng).tolist()
        self.prompt, self.output = requests.prompt.tolist(), requests.output.tolist()
        self.sent, self.first_s, self.end_s, self.seen, self.admitted = ([float("nan")] * n for _ in range(5))
        self.hits = [0] * n
        self.done = self.events = self.counter = self.next = 0
        self.heap: list[tuple[float, int, int, Any, int]] = []
        self.closed = concurrency is not None
        for i in range(n if concurrency is None else min(concurrency, n)):
            self.next = i + 1
            self._send(i, 0.0 if self.closed else float(requests.arrival_s[i]))

    def _push(self, at_s: float, kind: int, what: Any, version: int = 0) -> None:
        self.counter += 1
        heapq.heappush(self.heap, (at_s, kind, self.counter, what, version))

    def _send(self, i: int, now: float) -> None:
        h = self.first.server
        self.sent[i] = now
        self._push(now + h.front_end_s + h.front_end_per_token_s * self.prompt[i], ASKED, i)

    # ---- events ----

    def _asked(self, now: float, i: int) -> None:
        """The scheduler of some rank gets a request."""
        r = self.requests
        ids = NO_IDS if r.hash_ids is None else r.hash_ids[i]
        self.seen[i] = now
        s = Sequence(i, self.prompt[i], self.output[i], self.rounds[i], ids)
        if r.cached is not None:
            s.cached = int(r.cached[i])
        rank = self.serve.replicas[0].ranks[0]
        alone = self.first.replicas[0].ranks[0]
        if not rank.fits(s) or -(-s.prompt // alone.server.block_tokens) > alone.cache.capacity:
            self._over(now)
            return
        if self.prefill:
            s.left, s.rounds = 1, 0
        self._enqueue(now, self.first, s)

    def _enqueue(self, now: float, pool: _Pool, s: Sequence) -> None:
        replica, rank = pool.route(s)
        rank.incoming.append((now, s))
        self._wake(now, replica)

    def _wake(self, now: float, replica: Replica, lag: int | None = None) -> None:
        """Something has come to a replica, which its decisions know of `lag` steps later."""
        if not replica.busy:
            replica.busy = True  # one decision, however much comes at once
            self._push(now, DECIDE, replica)
        elif (sooner := replica.cut(now, replica.server.lag_steps if lag is None else lag)) is not None:
            self._push(sooner, END, replica, replica.version)

    def _decide(self, now: float, replica: Replica) -> None:
        pool = self.pool_of[id(replica)]
        ends = replica.begin(now)
        if ends is not None:
            self._push(ends, END, replica, replica.version)
        for p in replica.prompts:
            for s, _ in p.parts:
                self._admitted(now, s, pool)
        for rank, s in replica.received:
            self._hand_over(now, replica, rank, s)
        replica.received.clear()
        pool.tally.sample(now, pool.replicas)

    def _admitted(self, now: float, s: Sequence, pool: _Pool) -> None:
        i = s.number
        if pool is self.first and self.admitted[i] != self.admitted[i]:
            self.admitted[i] = now
            self.hits[i] = s.hits

    def _hand_over(self, now: float, replica: Replica, rank: Rank, s: Sequence) -> None:
        """The receiving rank has room: what it lacks of the prompt's cache is sent."""
        assert self.fleet.transfer_s is not None
        self._push(now + self.fleet.transfer_s(s.prompt - s.hits), ARRIVED, (replica, rank, s))

    def _arrived(self, now: float, replica: Replica, rank: Rank, s: Sequence) -> None:
        assert s.origin is not None
        source, held = s.origin
        source.release(held, 0)
        self._wake(now, self.holder[id(source)])
        self._token(now, s)
        if s.left == 1:
            rank.received(s)
            rank.release(s, 0)
            self._finish(now, s)
        else:
            replica.arrived.append((rank, s))
        self._wake(now, replica)

    def _end(self, now: float, replica: Replica) -> None:
        found = replica.end(now)
        for _, s in found.finished:
            self._finish(now, s)
        for rank, s in found.prompted:
            if self.prefill and replica in self.prefill.replicas:
                self._push(now + found.drain_s, PROMPTED, (rank, s))
                continue
            self._token(now + found.drain_s, s)
            if s.left == 1:
                rank.release(s, 0)
                self._finish(now + found.drain_s, s)
            elif found.drain_s > 0:
                self._push(now + found.drain_s, READY, (replica, rank, s))
            else:
                replica.run(rank, s, now)
        self._push(now, DECIDE, replica)

    def _ready(self, now: float, replica: Replica, rank: Rank, s: Sequence) -> None:
        """Its first token is out of the last stage: it can decode."""
        replica.ready.append((rank, s))
        self._wake(now, replica, lag=0)

    def _prompted(self, now: float, rank: Rank, s: Sequence) -> None:
        """Its prompt is done in the prefill pool: the decode pool gets it, and this rank holds it until it is there."""
        i = s.number
        ids = NO_IDS if self.requests.hash_ids is None else self.requests.hash_ids[i]
        other = Sequence(i, self.prompt[i], self.output[i], self.rounds[i], ids)
        other.handed, other.origin = True, (rank, s)
        self._enqueue(now, self.serve, other)

    def _token(self, now: float, s: Sequence) -> None:
        if self.first_s[s.number] != self.first_s[s.number]:
            self.first_s[s.number] = now

    def _finish(self, now: float, s: Sequence) -> None:
        self.end_s[s.number] = now
        self._over(now)

    def _over(self, now: float) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.count)
        if self.closed and self.next < self.count:
            self.next += 1
            self._send(self.next - 1, now)

    # ---- all of it ----

    def run(self) -> Outcome:
        heap, pop = self.heap, heapq.heappop
        while heap:
            now, kind, _, what, version = pop(heap)
            self.events += 1
            if kind == END:
                if what.version == version:
                    self._end(now, what)
            elif kind == DECIDE:
                self._decide(now, what)
            elif kind == ASKED:
                self._asked(now, what)
            elif kind == PROMPTED:
                self._prompted(now, *what)
            elif kind == READY:
                self._ready(now, *what)
            else:
                self._arrived(now, *what)
        return self._outcome()

    def _outcome(self) -> Outcome:
        sent, first, end, seen, admitted = (
            np.array(c) for c in (self.sent, self.first_s, self.end_s, self.seen, self.admitted)
        )
        output = self.requests.output
        tpot: NDArray[np.float64] = np.full(len(end), np.nan)
        several = output > 1
        tpot[several] = (end - first)[several] / (output[several] - 1)
        gaps, weights = self.serve.tally.between_outputs()
        return Outcome(
            sent_s=sent, ttft_s=first - sent, tpot_s=tpot, queue_s=admitted - seen, end_s=end,
            hit_tokens=np.array(self.hits), preempted=np.array(self.serve.tally.preemptions),
            prompt=self.requests.prompt, output=output, itl_s=gaps, itl_weight=weights,
            serve=self.serve.tally.outcome(self.serve.replicas),
            prefill=self.prefill.tally.outcome(self.prefill.replicas) if self.prefill else None,
            events=self.events,
        )  # fmt: skip


def simulate(
    requests: Requests, fleet: Fleet, *, concurrency: int | None = None, seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:  # fmt: skip
    """Runs the requests through the fleet.

    concurrency: that many are sent at once and each finished one is replaced, so that arrivals play no part (closed
    loop); without it they are sent as they arrive (open loop). seed: of the tokens that drafts yield.
    """
    return _Run(requests, fleet, concurrency, seed, progress).run()
