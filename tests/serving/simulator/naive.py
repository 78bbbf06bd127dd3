"""The simulator's rules once more, as plainly as they can be said: every step by itself, every block counted anew.

One pool of one replica. No heap, no ring, no skipped step; the cache is a dictionary with time stamps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mlaplan.serving.simulator.requests import HASH_TOKENS, Requests
from mlaplan.serving.simulator.server import Server

TICK = 1e-9


@dataclass(eq=False)
class Job:
    number: int
    prompt: int
    left: int
    rounds: int
    ids: list[int]
    place: int = 0
    seen: float = 0.0
    done: int = 0
    used: list[int] = field(default_factory=list)
    decoded: int = 0  # rounds
    turn: int = 0
    again: bool = False

    def tokens(self) -> int:
        """In the cache, or about to be: a prompt takes its blocks at once."""
        return self.prompt + (-(-self.decoded * (self.left - 1) // self.rounds) if self.decoded else 0)

    def next_tokens(self) -> int:
        return self.prompt + -(-(self.decoded + 1) * (self.left - 1) // self.rounds)


class Rank:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.capacity = server.kv_tokens // server.block_tokens
        self.reuse = server.prefix_cache and HASH_TOKENS % server.block_tokens == 0
        self.per = HASH_TOKENS // server.block_tokens if self.reuse else 0
        self.entries: dict[int, tuple[int, int]] = {}  # hash block: (when it was let go, minus its place in the prompt)
        self.users: dict[int, set[int]] = {}
        self.incoming: list[Job] = []
        self.waiting: list[Job] = []
        self.filling: list[Job] = []
        self.running: list[Job] = []
        self.draining: list[tuple[float, Job]] = []  # (when the first token is out, job)
        self.extra: dict[int, int] = {}  # job: tokens about to be written by the step under way
        self.lengths: dict[int, int] = {}  # prompts as they were sent
        self.letting_go = self.turns = self.preemptions = self.evictions = 0

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.server.block_tokens)

    def admitted(self) -> list[Job]:
        return self.filling + [j for _, j in self.draining] + self.running

    def held_by(self, j: Job) -> int:
        return self.blocks(self.extra.get(j.number, j.tokens())) - len(j.used) * self.per

    def private(self) -> int:
        return sum(self.held_by(j) for j in self.admitted())

    def free(self) -> int:
        return self.capacity - self.private() - len(self.entries) * self.per

    def unused(self) -> list[int]:
        return [i for i in self.entries if not self.users[i]]

    def make_free(self, blocks: int) -> None:
        while self.free() < blocks:
            oldest = min(self.unused(), key=lambda i: self.entries[i])
            del self.entries[oldest], self.users[oldest]
            self.evictions += 1

    def available(self) -> int:
        return self.free() + len(self.unused()) * self.per

    def end(self, j: Job) -> int:
        return self.blocks(j.prompt + j.left - 1)

    def admit(self, j: Job) -> bool:
        h = self.server
        if len(self.admitted()) >= h.slots:
            return False
        full = j.ids[: self.original(j) // HASH_TOKENS]
        most = min(len(full), (j.prompt - 1) // HASH_TOKENS) if self.reuse else 0
        hit = []
        for i in full[:most]:
            if i not in self.entries:
                break
            hit.append(i)
        whole = self.blocks(j.prompt)
        own = whole - len(hit) * self.per
        room = self.available() - len([i for i in hit if not self.users[i]]) * self.per
        wanted = own
        if self.admitted():
            future = sum(self.end(k) - self.blocks(self.extra.get(k.number, k.tokens())) for k in self.admitted())
            wanted += math.ceil(h.watermark * self.capacity) + math.ceil(h.set_aside * (future + self.end(j) - whole))
        if wanted > room:
            return False
        for i in hit:
            self.users[i].add(j.number)
        self.make_free(own)
        j.used, j.done = hit, len(hit) * HASH_TOKENS
        self.turns += 1
        j.turn = self.turns
        return True

    def original(self, j: Job) -> int:
        return self.lengths[j.number]

    def let_go(self, j: Job) -> None:
        self.letting_go += 1
        place = {i: n for n, i in enumerate(j.used)}
        for i in j.used:
            self.users[i].discard(j.number)
            if not self.users[i]:
                self.entries[i] = (self.letting_go, -place[i])
        j.used = []

    def name(self, j: Job) -> None:
        full = j.ids[: self.original(j) // HASH_TOKENS]
        for i in full[: j.done // HASH_TOKENS] if self.reuse else []:
            if i not in self.entries:
                self.entries[i], self.users[i] = (0, 0), {j.number}
                j.used.append(i)


def run(
    requests: Requests, server: Server, rounds: list[int], concurrency: int | None = None
) -> dict[str, list[float]]:
    """ttft, end and preemptions by request, and totals."""
    n = len(requests)
    ids = requests.hash_ids or [[]] * n
    ranks = [Rank(server) for _ in range(server.ranks)]
    for rank in ranks:
        rank.lengths = dict(enumerate(requests.prompt.tolist()))
    nan = float("nan")
    out = {name: [nan] * n for name in ("sent", "first", "end")}
    preempted, hits, turn = [0] * n, [0] * n, 0
    coming: list[Job] = []
    sent = 0
    h = server

    def send(now: float) -> None:
        nonlocal sent
        i, sent = sent, sent + 1
        out["sent"][i] = now
        j = Job(i, int(requests.prompt[i]), int(requests.output[i]), rounds[i], list(ids[i]))
        j.seen = now + h.front_end_s + h.front_end_per_token_s * j.prompt
        coming.append(j)
        coming.sort(key=lambda k: (k.seen, k.number))

    def over(now: float) -> None:
        if concurrency is not None and sent < n:
            send(now)

    for i in range(n if concurrency is None else min(concurrency, n)):
        send(0.0 if concurrency is not None else float(requests.arrival_s[i]))

    def route(until: float, at_once: bool) -> None:
        """Requests that came, each to the rank with the least to do."""
        nonlocal turn, finished
        while coming and (coming[0].seen < until or (at_once and coming[0].seen == until)):
            j = coming.pop(0)
            if ranks[0].end(j) > ranks[0].capacity:
                finished += 1
                over(j.seen)
                continue
            loads = [len(r.incoming) + len(r.waiting) + len(r.admitted()) for r in ranks]
            place = next(p % len(ranks) for p in range(turn, turn + len(ranks)) if loads[p % len(ranks)] == min(loads))
            turn += 1
            ranks[place].incoming.append(j)

    now, starts, finished, spare = 0.0, [0.0] * h.lag_steps, 0, 0.0
    while finished < n:
        route(now, True)
        for r in ranks:
            r.running += [j for at, j in r.draining if at <= now + TICK]
            r.draining = [(at, j) for at, j in r.draining if at > now + TICK]
        for attempt in range(2):
            known = (starts[0] if h.lag_steps and attempt == 0 else now) + TICK
            if attempt == 1:
                starts, spare = [now] * h.lag_steps, 0.0
            steps = []
            for r in ranks:
                while r.incoming and r.incoming[0].seen <= known:
                    r.waiting.append(r.incoming.pop(0))
                if h.mixed:
                    claim(r, preempted)
                budget = h.chunk - len(r.running) * (1 + h.drafts) * h.mixed
                steps.append(parts(r, budget if budget > 0 else 1, hits))
            prompts = any(p for p in steps)
            if prompts or any(r.running for r in ranks):
                break
        else:
            later = [c.seen for c in coming[:1]] + [at for r in ranks for at, _ in r.draining]
            if not later:
                raise AssertionError("nothing to do and not all is done")
            now = min(later)
            continue
        # who decodes: all, or with prompts that go first those ranks that have none; none with drafts
        takes_part = [h.mixed or not prompts or not (p or h.drafts) for p in steps]
        for r, does in zip(ranks, takes_part, strict=True):
            if does and not h.mixed:
                claim(r, preempted)
        decoding = [len(r.running) if does else 0 for r, does in zip(ranks, takes_part, strict=True)]
        rounds_now = any(decoding)
        began = now
        b = max(decoding)
        context = 0.0
        if b:
            contexts = [sum(j.prompt + j.decoded * (j.left - 1) / j.rounds for j in r.running) for r in ranks]
            context = max(c for c, does in zip(contexts, takes_part, strict=True) if does) / b
        took, most, total, drain = 0.0, 0, 0, 0.0
        spared = h.steps.spared(True, b, sum(decoding) / len(ranks))
        for p, running in zip(steps, decoding, strict=True):
            new = sum(t for _, _, t in p)
            own = running * (1 + h.drafts) if prompts else 0
            total += new + own
            if new:
                pairs = sum(t * (s + t / 2) for _, s, t in p)
                keys = sum(s + t for _, s, t in p)
                step, whole = h.steps.prefill(new + own, pairs, keys + own)
                drain = max(drain, whole - step)
                if step > took:
                    took, most = step, new + own
        launching = h.steps.host_s if prompts else 0.0
        took = max(took - h.steps.spared(False, most, total / len(ranks)), launching - spare)
        if prompts and rounds_now:
            alone = h.steps.decode(b, context)[0] - spared
            took = max(took + (alone - (h.steps.decode(b, 1.0)[0] - spared)) * h.mixed, alone)
        elif not prompts:
            took = h.steps.decode(b, context)[0] - spared if b else TICK
        if h.lag_steps:
            starts = [*starts, began][1:]
            spare = max(took - launching, 0.0)
        now += took
        route(now, False)
        # results: outputs that end, then prompts that are done
        ended: list[tuple[int, Job, Rank]] = []
        for r, does in zip(ranks, takes_part, strict=True):
            if does:
                for j in r.running:
                    j.decoded += 1
                    if j.decoded == j.rounds:
                        ended.append((j.number, j, r))
                r.extra = {}
        for _, j, r in sorted(ended, key=lambda e: e[0]):
            r.running.remove(j)
            r.let_go(j)
            out["end"][j.number] = now
            finished += 1
            over(now)
        for r, p in zip(ranks, steps, strict=True):
            for j, start, t in p:
                j.done = start + t
                r.name(j)
        for r, p in zip(ranks, steps, strict=True):
            for j, start, t in p:
                if start + t < j.prompt:
                    continue
                r.filling.remove(j)
                if out["first"][j.number] != out["first"][j.number]:
                    out["first"][j.number] = now + drain
                if j.left == 1:
                    r.let_go(j)
                    out["end"][j.number] = now + drain
                    finished += 1
                    over(now + drain)
                elif drain:
                    r.draining.append((now + drain, j))
                else:
                    r.running.append(j)
    out["preempted"], out["hits"] = preempted, hits
    out["evictions"] = [sum(r.evictions for r in ranks)]
    return out


def claim(r: Rank, preempted: list[int]) -> None:
    """Blocks for one more round of all that run; the newest makes room."""
    while r.running:
        need = sum(r.blocks(j.next_tokens()) - r.blocks(j.tokens()) for j in r.running)
        if need <= r.available():
            r.make_free(need)
            r.extra = {j.number: j.next_tokens() for j in r.running}
            return
        j = max(r.running, key=lambda k: k.turn)
        r.running.remove(j)
        r.let_go(j)
        r.preemptions += 1
        preempted[j.number] += 1
        out = 1 + (j.tokens() - j.prompt)
        j.prompt, j.left, done = j.prompt + out, j.left - out, j.decoded
        j.rounds = max(j.rounds - done - 1, math.ceil((j.left - 1) / (1 + r.server.drafts)), 0)
        j.done = j.decoded = 0
        j.again = True
        r.waiting.insert(0, j)


def parts(r: Rank, budget: int, hits: list[int]) -> list[tuple[Job, int, int]]:
    """(prompt, tokens it had, tokens of it in the step)."""
    out: list[tuple[Job, int, int]] = []
    for j in list(r.filling):
        if budget:
            t = min(j.prompt - j.done, budget)
            out.append((j, j.done, t))
            budget -= t
    while budget and r.waiting and r.admit(r.waiting[0]):
        j = r.waiting.pop(0)
        if not j.again:
            hits[j.number] = j.done
        r.filling.append(j)
        t = min(j.prompt - j.done, budget)
        out.append((j, j.done, t))
        budget -= t
    return out
