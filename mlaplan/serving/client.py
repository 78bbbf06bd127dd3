"""The closed-loop benchmark client against one engine: what its mean TTFT and TPOT are made of.

Published serving figures come from a client that starts `concurrency` requests at once, replaces each finished
one until `requests` are sent, and averages over all of them. So the burst at the start counts in TTFT, prefills
that stall or stretch decode count in TPOT, and the requests that drain at the end run in smaller batches.

Assumptions, where a source does not say otherwise:
  - ten requests for each one in flight; lengths uniform from 80 to 100 % of the nominal ones, drawn here from a
    low-discrepancy sequence, so that a run has no luck in it; means over requests, not medians
  - a request is admitted when the cache has room for its whole length: nothing is evicted later
  - prefill first (SGLang): waiting prompts are prefilled, up to the chunk budget a step, before decode goes on;
    a prompt longer than the budget holds decode up until it is done
  - mixed (vLLM, TensorRT-LLM): each step decodes every sequence once and spends the rest of the budget on prompts;
    both share the matrix products, t = prefill(new + decoding tokens) + decode(b, context) - decode(b, 1), and
    never less than decode alone; a prompt is cut where it does not fit, unless the engine was told not to
  - overlapped scheduling decides a step while the one before it runs: a request joins a step if it had arrived
    when the step `lag` before it began
  - the front end delays each request by a constant and a time per prompt token, requests beside each other
  - attention data-parallel ranks have equal shares of the requests and step together; prefill that lands unevenly
    on them divides the prefill rate by the engine's balance
  - a prefill step takes max(device, host): the tables carry the launches of eager layers
  - kernels are warm; `cold_s` holds the first step up where they may not be

Source: the clients of vLLM (`vllm bench serve`) and SGLang (`sglang.bench_serving`) with a concurrency limit.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass

from mlaplan.serving.step_tables import StepTables

WAVES = 10  # requests sent for each one in flight
SHORTEST = 0.8  # of the nominal length; uniform from there to all of it
TICK = 1e-9  # s: two events closer than this are at once, whatever the rounding of sums
GOLDEN, PLASTIC = 0.6180339887498949, 0.7548776662466927  # steps of the low-discrepancy sequences


@dataclass(frozen=True, slots=True)
class Client:
    """What the client sends; concurrency and requests are those of one attention-DP rank."""

    isl: int
    osl: int
    concurrency: int
    requests: int | None = None
    shortest: float = SHORTEST
    prefix_share: float = 0.0  # of each prompt, found in the cache

    def lengths(self) -> list[tuple[int, int]]:
        """(prompt, output) of every request, in the order they are sent."""
        count = self.requests or WAVES * self.concurrency
        span = 1.0 - self.shortest

        def drawn(nominal: int, step: float, i: int) -> int:
            return max(round(nominal * (self.shortest + span * math.fmod(0.5 + i * step, 1.0))), 1)

        return [(drawn(self.isl, GOLDEN, i), drawn(self.osl, PLASTIC, i)) for i in range(count)]


@dataclass(frozen=True, slots=True)
class Habits:
    """How the engine schedules, for one attention-DP rank."""

    mixed: bool
    chunk: int  # new tokens of a step; with `mixed`, decoding tokens come out of it
    slots: int  # most sequences in flight
    kv_tokens: int
    lag_steps: int = 1
    front_end_s: float = 0.0
    front_end_per_token_s: float = 0.0
    tokens_per_round: float = 1.0
    queries: int = 1  # tokens each sequence computes in a round
    balance: float = 1.0
    cold_s: float = 0.0  # before the first step: kernels compiled at their first shapes
    whole_prompts: bool = False  # a prompt that a step has no room for waits, unless no step has


@dataclass(frozen=True, slots=True)
class Result:
    """Means over all requests of one rank; rates over the whole run."""

    ttft_s: float
    tpot_s: float
    output_tok_s: float
    total_tok_s: float
    makespan_s: float
    mean_batch: float  # sequences in a decode round, weighted by time
    prefill_share: float  # of the run in which prompts are computed
    held_up_s: float  # mean wait for room in the cache or a slot


@dataclass(slots=True)
class _Request:
    prompt: int
    new: int  # prompt tokens to compute
    rounds: int
    output: int
    sent_s: float
    number: int
    left: int  # prompt tokens still to compute
    first_s: float = 0.0


class _Run:
    """One run of the client: a clock that jumps from event to event."""

    def __init__(self, client: Client, tables: StepTables, habits: Habits) -> None:
        self.tables, self.h = tables, habits
        self.todo = deque(client.lengths())
        self.new_share = 1.0 - client.prefix_share
        self.now = 0.0
        self.starts: deque[float] = deque([0.0] * max(habits.lag_steps, 0), maxlen=max(habits.lag_steps, 1))
        self.arrivals: list[tuple[float, int, _Request]] = []  # heap by the time the scheduler can see it
        self.waiting: deque[_Request] = deque()
        self.filling: deque[_Request] = deque()  # admitted, prompt not yet done
        self.running: list[tuple[int, int, _Request]] = []  # heap by the round in which it ends
        self.round, self.reserved, self.context_sum = 0, 0, 0.0
        self.cold_s = habits.cold_s
        self.number = 0
        self.prefill_s = self.batch_s = self.decode_s = self.tokens = self.held_up = 0.0
        self.ttft: list[float] = []
        self.tpot: list[float] = []
        for _ in range(min(client.concurrency, len(self.todo))):
            self._send()

    def _send(self) -> None:
        if not self.todo:
            return
        prompt, output = self.todo.popleft()
        new = max(round(prompt * self.new_share), 1)
        rounds = math.ceil((output - 1) / self.h.tokens_per_round)
        self.number += 1
        request = _Request(prompt, new, rounds, output, self.now, self.number, new)
        seen = self.now + self.h.front_end_s + self.h.front_end_per_token_s * prompt
        heapq.heappush(self.arrivals, (seen, self.number, request))

    def _admit(self) -> None:
        """Requests that the decision for the coming step knew of, as far as cache and slots hold them."""
        known = self.starts[0] if self.h.lag_steps else self.now
        while self.arrivals and self.arrivals[0][0] <= known + TICK:
            self.waiting.append(heapq.heappop(self.arrivals)[2])
        while self.waiting:
            wanted = self.waiting[0].prompt + self.waiting[0].output
            occupied = len(self.running) + len(self.filling)
            alone = occupied == 0
            if not alone and (occupied >= self.h.slots or self.reserved + wanted > self.h.kv_tokens):
                return
            self.reserved += wanted
            self.filling.append(self.waiting.popleft())

    def _step(self, seconds: float, rounds: int = 0) -> None:
        """The clock over one step, or over `rounds` equal decode rounds."""
        seconds, self.cold_s = seconds + self.cold_s, 0.0
        if self.h.lag_steps:
            each = seconds / max(rounds, 1)
            for i in range(min(max(rounds, 1), self.h.lag_steps)):
                self.starts.append(self.now + seconds - each * (min(max(rounds, 1), self.h.lag_steps) - i))
        self.now += seconds

    def _prompts(self, budget: int) -> tuple[int, list[_Request]]:
        """Takes up to `budget` new tokens from the prompts in turn: (tokens, prompts that are done with them)."""
        taken, done = 0, []
        while self.filling and taken < budget:
            first = self.filling[0]
            if self.h.whole_prompts and first.left > budget - taken and first.left <= self.h.chunk:
                break
            part = min(first.left, budget - taken)
            first.left -= part
            taken += part
            if first.left:
                break
            done.append(self.filling.popleft())
        return taken, done

    def _begin(self, done: list[_Request]) -> None:
        """First tokens out; the requests go on to decode."""
        for request in done:
            request.first_s = self.now
            self.ttft.append(self.now - request.sent_s)
            if request.rounds == 0:
                self._finish(request)
                continue
            heapq.heappush(self.running, (self.round + request.rounds, request.number, request))
            self.context_sum += request.prompt

    def _finish(self, request: _Request) -> None:
        self.reserved -= request.prompt + request.output
        self.tokens += request.output
        if request.output > 1:
            self.tpot.append((self.now - request.first_s) / (request.output - 1))
        self._send()

    def _decode(self, rounds: int) -> None:
        """`rounds` rounds of the running sequences; those that end leave."""
        grow = rounds * self.h.tokens_per_round
        self.context_sum += grow * len(self.running)
        self.round += rounds
        while self.running and self.running[0][0] <= self.round:
            _, _, request = heapq.heappop(self.running)
            self.context_sum -= request.prompt + request.rounds * self.h.tokens_per_round
            self._finish(request)

    def _prefill_step(self) -> None:
        """Prompts alone; decode waits."""
        tokens, done = self._prompts(self.h.chunk)
        seconds = self.tables.prefill(tokens) / self.h.balance
        self.prefill_s += seconds
        self._step(seconds)
        self._begin(done)

    def _mixed_step(self) -> None:
        """Every running sequence once, prompts in the rest of the budget."""
        b, mean = len(self.running), self.context_sum / max(len(self.running), 1)
        decoding = b * self.h.queries
        tokens, done = self._prompts(max(self.h.chunk - decoding, 1))
        seconds = self.tables.prefill(tokens + decoding) / self.h.balance
        if b:
            alone = self.tables.decode(b, mean)
            seconds = max(seconds + max(alone - self.tables.decode(b, 1.0), 0.0), alone)
        self.prefill_s += seconds
        self._step(seconds)
        if b:
            self._decode(1)
        self._begin(done)

    def _decode_rounds(self) -> None:
        """Rounds until the next sequence ends, or until a request may join."""
        b = len(self.running)
        mean = self.context_sum / b
        most = self.running[0][0] - self.round
        one = self.tables.decode(b, mean)
        if self.arrivals:
            gap = self.arrivals[0][0] - self.now
            most = min(most, max(math.ceil((gap - TICK) / one) + self.h.lag_steps, 1))
        half_way = mean + 0.5 * most * self.h.tokens_per_round
        seconds = most * self.tables.decode(b, half_way)
        self.decode_s += seconds
        self.batch_s += b * seconds
        if self.waiting:
            self.held_up += seconds * len(self.waiting)
        self._step(seconds, most)
        self._decode(most)

    def result(self) -> Result:
        total = len(self.todo) + len(self.arrivals)
        while len(self.ttft) < total or self.running:
            self._admit()
            if self.filling:
                (self._mixed_step if self.h.mixed else self._prefill_step)()
            elif self.running:
                self._decode_rounds()
            else:  # idle until the scheduler sees a request
                self.now = max(self.arrivals[0][0], self.now)
                self.starts.extend([self.now] * self.starts.maxlen if self.starts.maxlen else [])
        sent = sum(self.ttft)
        count = len(self.ttft)
        return Result(
            ttft_s=sent / count,
            tpot_s=sum(self.tpot) / len(self.tpot) if self.tpot else math.nan,
            output_tok_s=self.tokens / self.now,
            total_tok_s=math.nan,
            makespan_s=self.now,
            mean_batch=self.batch_s / self.decode_s if self.decode_s else 0.0,
            prefill_share=self.prefill_s / self.now,
            held_up_s=self.held_up / count,
        )


def run(client: Client, tables: StepTables, habits: Habits) -> Result:
    """What the client would report of one attention-DP rank."""
    from dataclasses import replace

    lengths = client.lengths()
    found = _Run(client, tables, habits).result()
    total = sum(prompt + output for prompt, output in lengths)
    return replace(found, total_tok_s=total / found.makespan_s)


__all__ = ["Client", "Habits", "Result", "run"]
