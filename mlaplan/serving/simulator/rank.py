"""One attention-DP rank: its cache, its queue, the sequences it runs; whom it admits and whom it preempts."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from mlaplan.serving.simulator.cache import Cache
from mlaplan.serving.simulator.requests import HASH_TOKENS
from mlaplan.serving.simulator.sequence import Sequence
from mlaplan.serving.simulator.server import Server


class Prompts(NamedTuple):
    """Parts of prompts in one step: (sequence, tokens), and what they cost (`Steps.prefill`)."""

    parts: list[tuple[Sequence, int]]
    tokens: int
    pairs: float
    keys: float


NOTHING = Prompts([], 0, 0.0, 0.0)


class Rank:
    """First come, first served; the newest sequence is preempted first and then goes to the head of the queue."""

    def __init__(self, server: Server, place: int = 0) -> None:
        self.server, self.place = server, place
        self.cache = Cache(server.kv_tokens // server.block_tokens, server.block_tokens, server.prefix_cache)
        self.spare = math.ceil(server.watermark * self.cache.capacity)
        self.incoming: deque[tuple[float, Sequence]] = deque()  # (when the scheduler sees it, request)
        self.waiting: deque[Sequence] = deque()
        self.filling: deque[Sequence] = deque()  # admitted, prompt not yet done
        self.running: dict[int, Sequence] = {}
        self.in_flight = 0  # admitted and not ended
        self.future = 0  # blocks that those running and filling will take until they end
        self.context = 0.0  # cached tokens of those running, and by how much they grow in a round
        self.growth = 0.0
        self.missed = 0  # rounds of the replica in which it decoded nothing though it had sequences
        self.last_s = 0.0  # end of its last round
        self.joined: list[float] = []  # first tokens since
        self.admissions = self.preemptions = 0
        self.hit_tokens = self.asked_tokens = self.computed_tokens = 0

    @property
    def load(self) -> int:
        """Requests here, whatever their state."""
        return len(self.incoming) + len(self.waiting) + self.in_flight

    def see(self, known_s: float) -> None:
        """Requests that came by `known_s` join the queue."""
        while self.incoming and self.incoming[0][0] <= known_s:
            self.waiting.append(self.incoming.popleft()[1])

    # ---- admission ----

    def room(self, s: Sequence) -> tuple[int, int] | None:
        """(hash blocks found, further blocks) of a prompt that may be admitted now; None where there is no room."""
        if self.in_flight >= self.server.slots:
            return None
        cache, block = self.cache, self.server.block_tokens
        # the last token is always computed, for its logits
        found = cache.found(s.full, min(len(s.full), (s.prompt - 1) // HASH_TOKENS))
        whole, end = -(-s.prompt // block), self.end_blocks(s)
        own = whole - found * cache.per_hash
        wanted = own
        if self.in_flight:  # alone it may take all there is
            wanted += self.spare + math.ceil(self.server.set_aside * (self.future + end - whole))
        return (found, own) if wanted <= cache.available - cache.unused_among(s.full[:found]) else None

    def admit(self, s: Sequence) -> bool:
        """Takes a slot and the blocks of a prompt, those in the cache included; False where there is no room."""
        place = self.room(s)
        if place is None:
            return False
        found, own = place
        hit = s.full[:found]
        self.cache.use(hit)
        self.cache.take(own)
        s.used, s.blocks = list(hit), own
        self.in_flight += 1
        self.future += self.end_blocks(s) - -(-s.prompt // self.server.block_tokens)
        self.admissions += 1
        s.order = self.admissions
        s.hits = max(found * HASH_TOKENS, min(s.cached, s.prompt - 1))
        s.done = s.prompt if s.handed else s.hits
        if not s.again:
            self.hit_tokens += s.hits
            self.asked_tokens += s.prompt
        return True

    @property
    def has_prompt(self) -> bool:
        """Whether a step could take some of a prompt."""
        if self.filling:
            return True
        return bool(self.waiting) and not self.waiting[0].handed and self.room(self.waiting[0]) is not None

    def end_blocks(self, s: Sequence) -> int:
        """Blocks that a sequence holds when it ends."""
        return -(-(s.prompt + max(s.left - 1, 0)) // self.server.block_tokens)

    def fits(self, s: Sequence) -> bool:
        """Whether the cache could hold it alone."""
        return self.end_blocks(s) <= self.cache.capacity

    def prompts(self, budget: int) -> Prompts:
        """Parts of prompts for one step, up to `budget` new tokens, admitting as many requests as it reaches."""
        parts: list[tuple[Sequence, int]] = []
        tokens, pairs, keys = 0, 0.0, 0.0
        while tokens < budget:
            if not self.filling:
                if not self.waiting or self.waiting[0].handed or not self.admit(self.waiting[0]):
                    break
                self.filling.append(self.waiting.popleft())
            s = self.filling[0]
            left = s.prompt - s.done
            if self.server.whole_prompts and budget - tokens < left <= self.server.chunk:
                break
            part = min(left, budget - tokens)
            pairs += part * (s.done + part / 2.0)
            s.done += part
            keys += s.done
            tokens += part
            parts.append((s, part))
            if s.done < s.prompt:
                break
            self.filling.popleft()
        return Prompts(parts, tokens, pairs, keys) if parts else NOTHING

    def computed(self, found: Prompts) -> list[Sequence]:
        """After the step: prompt blocks that are full now can be found by others. The sequences with all of it."""
        self.computed_tokens += found.tokens
        if self.cache.reuse:
            for s, part in found.parts:
                self._name(s, (s.done - part) // HASH_TOKENS, s.done // HASH_TOKENS)
        return [s for s, _ in found.parts if s.done == s.prompt]

    def received(self, s: Sequence) -> None:
        """A handed-over prompt is here: its blocks can be found."""
        if self.cache.reuse:
            self._name(s, len(s.used), len(s.full))

    def _name(self, s: Sequence, first: int, end: int) -> None:
        for i in s.full[first:end]:
            if self.cache.name(i):
                s.used.append(i)
                s.blocks -= self.cache.per_hash

    # ---- running ----

    def run(self, s: Sequence) -> None:
        """Its prompt is done: it decodes from the next round on."""
        self.running[s.number] = s
        self.context += s.prompt
        self.growth += (s.left - 1) / s.rounds

    def stop(self, s: Sequence, rounds: int) -> None:
        """It no longer decodes, after so many rounds."""
        del self.running[s.number]
        if not self.running:  # rounding must not pile up
            self.context = self.growth = 0.0
            return
        each = (s.left - 1) / s.rounds
        self.context -= s.prompt + rounds * each
        self.growth -= each

    def release(self, s: Sequence, grown: int) -> None:
        """Its blocks back, `grown` of them taken since its prompt was done."""
        self.cache.leave(s.used)
        self.cache.give(s.blocks + grown)
        self.in_flight -= 1

    def newest(self) -> Sequence:
        """Whom a preemption takes."""
        return max(self.running.values(), key=lambda s: s.order)
