"""One replica: attention-DP ranks that step together, from one scheduling decision to the next.

A decision leads to one step with prompts, or to a stretch of decode rounds in which nothing changes: no sequence ends,
no rank runs out of blocks, no other rank becomes the slowest, and the step table stays on one segment. Over a stretch
the context grows by the same in each round, so j rounds take

    T(j) = j d + g j (j - 1) / 2        d the first round, g the growth of a round's time from one to the next

An arrival cuts a stretch at the first round whose decision knew of it. All ranks wait for the slowest: a step is priced
as if each had the work of the fullest, less what routed experts are spared by the others having less.

With prompts (T new tokens on a rank, b sequences that decode):
    prefill first   max( prefill(T), decode(b, c) ): a rank with prompts decodes nothing, the others go on decoding;
                    with drafts they wait, as drafted rounds and prompts do not share a step (`others_wait`)
    mixed           max( prefill(T + b q) + decode(b, c) - decode(b, least), decode(b, c) )
as the matrix products are shared, with q tokens of each sequence; `least` is a context that costs next to nothing.
Source: sgl-project/sglang, python/sglang/srt/managers/scheduler.py, get_next_batch_to_run.

Steps with prompts are launched kernel by kernel, rounds as one graph. Where decisions are ahead of results, the host
launches a step while the device still runs the one before, which spares it s, and prefill is

    prefill(T) = max( device(T), H - s )      s = max( duration of the step before - its host time, 0 )

A round has no host time, a step with prompts H; nothing is spared after idle time, nor without `lag_steps`.
Source: sgl-project/sglang, python/sglang/srt/managers/scheduler.py, event_loop_overlap.

Over pipeline stages a step holds the replica for its slowest stage, so the chunks of a prompt follow each other into
the pipeline; its first token is out, and it decodes, when the last chunk has come through all stages.
Source: vllm-project/vllm, vllm/v1/core/sched/scheduler.py, _update_after_schedule.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.serving.simulator.holding import Holding
from mlaplan.serving.simulator.rank import NOTHING, Prompts, Rank
from mlaplan.serving.simulator.record import Tally
from mlaplan.serving.simulator.sequence import Sequence
from mlaplan.serving.simulator.server import Server

TICK = 1e-9  # s: closer than this is at once, whatever the rounding of sums
LEAST_CONTEXT = 1.0


class Ended(NamedTuple):
    """What a step brought: (rank, sequence) with all of its prompt, and those whose output is done."""

    prompted: list[tuple[Rank, Sequence]]
    finished: list[tuple[Rank, Sequence]]
    drain_s: float  # until the step's tokens are out of the last stage


class Replica:
    """`begin` decides and says when the step ends; `cut` shortens a stretch; `end` brings its results."""

    def __init__(self, server: Server, tally: Tally, longest: int) -> None:
        self.server, self.tally = server, tally
        self.ranks = [Rank(server, place) for place in range(server.ranks)]
        self.round = 0
        self.version = 0  # of the step under way; others in the queue of events are void
        self.busy = False
        self.ends: list[tuple[int, int, Sequence, Rank]] = []  # heap by the round in which a sequence ends
        self.ring = 1 << (longest + 2).bit_length()  # rounds that a sequence can have ahead of it
        self.grow = np.zeros((server.ranks, self.ring), dtype=np.int64)  # blocks to take, by rank and round
        self.history: deque[float] = deque([0.0] * server.lag_steps, maxlen=max(server.lag_steps, 1))
        self.start_s = self.first_s = self.slope_s = self.drain_s = 0.0
        self.holding, self.cold_s = Holding(server.hold_rounds), server.cold_s
        self.spare_s = self.host_s = 0.0  # what the host was ahead when the step began; what it takes for it itself
        self.rounds = 0  # of the step under way; 0 with prompts alone
        self.decoding: list[Rank] = self.ranks  # that take part in them
        self.prompts: list[Prompts] = []
        self.received: list[tuple[Rank, Sequence]] = []  # handed over and now admitted: the transfer may start
        self.arrived: list[tuple[Rank, Sequence]] = []  # transferred: to decode from the next step on
        self.ready: list[tuple[Rank, Sequence]] = []  # through all stages: to decode from the next step on

    # ---- deciding ----

    def begin(self, now: float) -> float | None:
        """Starts a step: when it ends, None where there is nothing to do."""
        self.start_s = now
        for rank, s in self.arrived:
            rank.received(s)
            self.run(rank, s, now)
        self.arrived.clear()
        for rank, s in self.ready:
            self.run(rank, s, now)
        self.ready.clear()
        found = self._decide(now)
        if not found and not any(rank.running for rank in self.ranks):
            # an idle replica sees what is there at once
            self.history.extend([now] * self.server.lag_steps)
            self.spare_s = 0.0
            found = self._decide(now)
        running = any(rank.running for rank in self.ranks)
        self.busy = found or running
        if not self.busy:
            return None
        self.version += 1
        if found:
            return now + self._prompt_step()
        self._stretch()
        return now + self.after(self.rounds)

    def _decide(self, now: float) -> bool:
        """Requests that the decision knows of are admitted as far as the step reaches: whether it has prompts."""
        h = self.server
        known = (self.history[0] if h.lag_steps else now) + TICK
        self.prompts = []
        for rank in self.ranks:
            rank.see(known)
            if h.mixed and rank.running:
                self._make_room(rank)
            while rank.waiting and rank.waiting[0].handed and rank.admit(rank.waiting[0]):
                self.received.append((rank, rank.waiting.popleft()))
        held = self.holding.holds(self.ranks)
        for rank in self.ranks:
            if held or not (rank.waiting or rank.filling):
                self.prompts.append(NOTHING)
                continue
            decoding = len(rank.running) * (1 + h.drafts) if h.mixed else 0
            self.prompts.append(rank.prompts(h.chunk - decoding if h.chunk > decoding else 1))
        if not any(p.tokens for p in self.prompts):
            return False
        self.decoding = self._beside_prompts()
        return True

    def _beside_prompts(self) -> list[Rank]:
        """Ranks that decode in a step with prompts."""
        if self.server.mixed:
            return [rank for rank in self.ranks if rank.running]
        if self.server.others_wait:
            return []
        found = [rank for rank, p in zip(self.ranks, self.prompts, strict=True) if rank.running and not p.tokens]
        for rank in found:
            self._make_room(rank)
        return [rank for rank in found if rank.running]

    def _make_room(self, rank: Rank) -> bool:
        """Takes the blocks of the next round, preempting until they are there: whether it had to."""
        before = rank.preemptions
        place = (self.round + 1) & (self.ring - 1)  # the ring of a rank that sits a round out is turned by one
        while (need := int(self.grow[rank.place, place])) > rank.cache.available:
            self._preempt(rank, rank.newest())
        if need:
            self.grow[rank.place, place] = 0
            rank.cache.take(need)
            rank.future -= need
        return rank.preemptions > before

    def _preempt(self, rank: Rank, s: Sequence) -> None:
        rounds = self.round - rank.missed - s.start
        grown = self._forget(rank, s)
        rank.stop(s, rounds)
        rank.release(s, grown)
        rank.preemptions += 1
        self.tally.preempted(s)
        s.restart(rounds, 1 + self.server.drafts)
        rank.waiting.appendleft(s)

    def _forget(self, rank: Rank, s: Sequence) -> int:
        """Takes the rest of its growth out of the plan: how many blocks it has taken."""
        if s.grows is None:
            return 0
        taken = int(np.searchsorted(s.grows, self.round - rank.missed, side="right"))
        rest = s.grows[taken:] + rank.missed
        np.subtract.at(self.grow[rank.place], rest & (self.ring - 1), 1)
        rank.future -= len(rest)
        return taken

    def _places(self, rounds: int) -> slice | NDArray[np.int64]:
        """Where the ring holds the next rounds."""
        first = (self.round + 1) & (self.ring - 1)
        if first + rounds <= self.ring:
            return slice(first, first + rounds)
        return np.arange(first, first + rounds) & (self.ring - 1)

    # ---- a step with prompts ----

    def _prompt_step(self) -> float:
        """Time of the slowest rank."""
        h, longest, drain, most, total = self.server, 0.0, 0.0, 0, 0
        self.rounds = 1 if self.decoding else 0
        beside = {rank.place for rank in self.decoding}
        for rank, p in zip(self.ranks, self.prompts, strict=True):
            decoding = len(rank.running) * (1 + h.drafts) if rank.place in beside else 0
            total += p.tokens + decoding
            if p.tokens:
                step, whole = h.steps.prefill(p.tokens + decoding, p.pairs, p.keys + decoding)
                drain = max(drain, whole - step)
                if step > longest:
                    longest, most = step, p.tokens + decoding
        longest = max(longest - h.steps.spared(False, most, total / len(self.ranks)), h.steps.host_s - self.spare_s)
        if self.rounds:
            fullest, context = self._slowest()
            alone = h.steps.decode(fullest, context)[0] - self._spared(fullest)
            if h.mixed:
                longest += alone - h.steps.decode(fullest, LEAST_CONTEXT)[0] + self._spared(fullest)
            longest = max(longest, alone)
        longest, self.cold_s, self.host_s = longest + self.cold_s, 0.0, h.steps.host_s + self.cold_s
        self.first_s, self.slope_s, self.drain_s = longest, 0.0, drain
        return longest

    # ---- decode alone ----

    def _slowest(self) -> tuple[int, float]:
        """(sequences of the fullest rank, mean context as if the rank with most cached tokens had as many)."""
        fullest = max(len(rank.running) for rank in self.decoding)
        return fullest, max(rank.context for rank in self.decoding) / fullest

    def _spared(self, fullest: int) -> float:
        if len(self.ranks) == 1:
            return 0.0
        mean = sum(len(rank.running) for rank in self.decoding) / len(self.ranks)
        return self.server.steps.spared(True, fullest, mean)

    def _stretch(self) -> None:
        """As many rounds as nothing changes in."""
        h, self.host_s = self.server, 0.0
        roomier = False  # a preempted sequence may fit again at once
        for rank in self.ranks:
            if rank.running and not h.mixed:
                roomier |= self._make_room(rank)
        self.decoding = self.ranks
        if not any(rank.running for rank in self.ranks):  # only where a prompt under way holds all blocks
            self.rounds, self.first_s, self.slope_s, self.drain_s = 1, TICK, 0.0, 0.0
            return
        self._settle()
        n = 1 if roomier else self.ends[0][0] - self.round
        fullest = max(len(rank.running) for rank in self.ranks)
        slow = max(self.ranks, key=lambda rank: (rank.context, rank.growth))
        context = slow.context / fullest
        d, slope, until = h.steps.decode(fullest, context)
        d -= self._spared(fullest)
        growth = slow.growth / fullest
        if n > 1 and context + growth * n > until:
            n = max(min(n, int((until - context) / growth) + 1), 1)
        if n > 1:
            for rank in self.ranks:
                if rank.growth > slow.growth:
                    n = min(n, int((slow.context - rank.context) / (rank.growth - slow.growth)) + 1)
        for rank in self.ranks:
            most = -(-(1 + h.drafts) // h.block_tokens) * len(rank.running)  # blocks of a round
            if n > 1 and rank.running and rank.cache.available < n * most:
                taken = np.cumsum(self.grow[rank.place, self._places(n)])
                n = max(int(np.searchsorted(taken, rank.cache.available, side="right")), 1)
        n = min(n, self._unseen(), self.holding.left)
        self.rounds, self.first_s, self.slope_s, self.drain_s = n, d, slope * growth, 0.0

    def _settle(self) -> None:
        """Brings the first to end to the top: preempted ones are void, of a rank that sat rounds out it comes later."""
        while self.ends:
            at, number, s, rank = self.ends[0]
            ends = s.finish + rank.missed
            if s.finish < 0 or ends < at:
                heapq.heappop(self.ends)
            elif ends > at:
                heapq.heapreplace(self.ends, (ends, number, s, rank))
            else:
                return

    def _unseen(self) -> int:
        """Rounds until a decision knows of the first request that came before this step and is not yet seen."""
        times = [rank.incoming[0][0] for rank in self.ranks if rank.incoming]
        if not times:
            return self.ring
        known = [*list(self.history)[1:], self.start_s]
        # a request handed over by another pool may still be to come: then its arrival cuts the stretch
        return next((j for j, at_s in enumerate(known, 1) if at_s + TICK >= min(times)), self.ring)

    def after(self, j: int) -> float:
        """Time of the first j rounds."""
        return j * self.first_s + self.slope_s * (0.5 * j * (j - 1))

    def cut(self, at_s: float, lag: int) -> float | None:
        """Something came at `at_s`: when the stretch under way now ends, None where that stays as it is."""
        if self.rounds <= 1:
            return None
        gap = at_s - self.start_s - TICK
        low, high = 0, self.rounds  # the first round to start at or after the arrival
        while low < high:
            middle = (low + high) // 2
            if self.after(middle) >= gap:
                high = middle
            else:
                low = middle + 1
        n = max(low + lag, 1)
        if n >= self.rounds:
            return None
        self.rounds = n
        self.version += 1
        return self.start_s + self.after(n)

    # ---- results ----

    def end(self, now: float) -> Ended:
        """The step is over."""
        n, lag = self.rounds, self.server.lag_steps
        if lag:
            self.history.extend(self.start_s + self.after(max(n, 1) - i) for i in range(min(max(n, 1), lag), 0, -1))
            self.spare_s = max(self.first_s + self.slope_s * max(n - 1, 0) - self.host_s, 0.0)
        self.tally.step(self, now)
        self.holding.passed(n - 1)
        if n:
            for rank in self.decoding:
                rank.last_s = now
                rank.joined.clear()
        finished = self._advance(n) if n else []
        prompted = []
        for rank, p in zip(self.ranks, self.prompts, strict=True):
            if p.tokens:
                prompted += [(rank, s) for s in rank.computed(p)]
        self.prompts, self.rounds = [], 0
        return Ended(prompted, finished, self.drain_s)

    def _advance(self, n: int) -> list[tuple[Rank, Sequence]]:
        """`n` rounds of all that run; those that end leave."""
        if len(self.decoding) < len(self.ranks):
            for rank, p in zip(self.ranks, self.prompts, strict=True):
                if p.tokens and rank.running and not self.server.mixed:
                    rank.missed += n
                    self.grow[rank.place] = np.roll(self.grow[rank.place], n)
        places = self._places(n)
        taken = self.grow[:, places].sum(axis=1).tolist()
        self.grow[:, places] = 0
        self.round += n
        for rank, blocks in zip(self.ranks, taken, strict=True):
            if blocks:
                rank.cache.take(blocks)
                rank.future -= blocks
        for rank in self.decoding:
            rank.context += n * rank.growth
        out = []
        self._settle()
        while self.ends and self.ends[0][0] <= self.round:
            _, _, s, rank = heapq.heappop(self.ends)
            out.append((rank, s))
            rank.stop(s, s.rounds)
            rank.release(s, 0 if s.grows is None else len(s.grows))
            s.finish = -1
            self._settle()
        return out

    def run(self, rank: Rank, s: Sequence, now: float) -> None:
        """A sequence whose prompt is in the cache decodes from the next round on."""
        rank.joined.append(now)
        now_there = self.round - rank.missed  # rounds count for those that take part in them
        s.start, s.finish = now_there, now_there + s.rounds
        rank.run(s)
        heapq.heappush(self.ends, (self.round + s.rounds, s.number, s, rank))
        block = self.server.block_tokens
        if rank.end_blocks(s) > -(-s.prompt // block):
            s.grows = s.grow_rounds(now_there, block)
            np.add.at(self.grow[rank.place], (s.grows + rank.missed) & (self.ring - 1), 1)
