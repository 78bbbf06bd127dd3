"""What one strategy serves: ranks, one or several, that step together."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

NAN = float("nan")


class Load(NamedTuple):
    request_s: float
    wait_s: float
    service_s: float
    share: float
    round_s: float


Steps = Callable[[int], tuple[dict[str, float], int]]  # of a batch, at the cut of the plan


def served(
    e: Any, st: Any, work: Any, tokens: float, x: dict[str, float], step_tokens: int, steps: Steps
) -> dict[str, float]:
    """X = min(mu / (c' tau), b / (W + S + n t_d)), and by Little's law what follows from it."""
    ranks, chips = st.dp * st.replicas, st.tp * st.dp * st.pp * st.replicas
    offered = None if work.concurrency is None else work.concurrency / ranks
    b = float(st.batch) if offered is None else min(float(st.batch), offered)
    n = (work.osl - 1) / tokens
    front = float(e.front_end_s) + float(e.front_end_per_token_s) * work.isl
    t_d = x["decode_s"]
    if x["decode_gain_s"]:
        t_d -= x["decode_gain_s"] * (1 - min(max(b, 1 / st.dp), 1.0)) / (1 - 1 / st.dp)
        x = x | {"decode_s": t_d}
    together = Together(e, st, work, x, step_tokens, b, n, front)
    away = t_d
    if front and st.dp == 1 and st.batch > 1 and math.ceil(front / t_d) < math.ceil(front / (t_d * (1 - 1 / st.batch))):
        away = steps(st.batch - 1)[0]["decode_s"]  # one sequence fewer while a request is in the front end
    load = together.closed(away)
    left = max(b, 1.0) * load.request_s - load.service_s - load.wait_s
    decoding = max(left, n * t_d)
    if e.mixed_prefill:
        decoding = min(decoding, n * load.round_s)
        load = load._replace(wait_s=load.wait_s + max(left - decoding, 0.0))
    stay = load.service_s + load.wait_s + decoding
    rate = b / stay
    queue = 0.0 if offered is None else max(offered - st.batch, 0.0) / rate
    total, tpot, wait, service, share, there = rate * ranks, NAN, load.wait_s, load.service_s, load.share, b
    if n > 0:
        tpot = decoding / (n * tokens)
    if work.rate is not None:
        arriving = work.rate / ranks
        total = min(total, work.rate)
        free, flying = settled(e, st, work, n, front, arriving, steps)
        there = min(flying, b)
        busy = flying / b if flying <= b else arriving / rate
        if busy < 1.0:
            busy = min(busy, 1.0 - 1e-9)
            held = free.service_s + n * free.round_s if flying <= b else stay
            queue = held / (2.0 * b * st.dp) * busy ** (math.sqrt(2.0 * (b * st.dp + 1.0)) - 1.0) / (1.0 - busy)
        if flying <= b:
            wait, service, share = free.wait_s, free.service_s, free.share
            tpot = free.round_s / tokens if n > 0 else NAN
        else:
            wait = together.at(arriving).wait_s
    return {
        "ttft_s": wait + queue + service + front,
        "queue_s": wait + queue,
        "tpot_s": tpot,
        "requests_per_s": total,
        "capacity_per_s": rate * ranks,
        "tok_s_chip": total * work.osl / chips,
        "tok_s_user": 1.0 / tpot,
        "prefill_share": min(max(share, 0.0), 1.0),
        "sequences": there,
    }


def settled(e: Any, st: Any, work: Any, n: float, front: float, rate: float, steps: Steps) -> tuple[Load, float]:
    """g = 1/D + l n tau(g), tau linear between 1/D, 1, 2, 3, 4, 6, 8...: (what a rank is like, sequences in flight)."""
    top = max(4096, st.batch)
    grid = [m for k in range(40) for m in (1 << k, 3 << k >> 1)]
    grid = sorted({m for m in grid if m < top} | {min(1 << k for k in range(40) if 1 << k >= top)})

    def at(place: int) -> tuple[Load, float]:
        x, step_tokens = steps(grid[max(place - 1, 0)])
        sequences, others = float(grid[place - 1]), float(grid[place - 1] - (st.dp == 1))
        if place == 0:
            sequences, others = 1 / st.dp, 0.0
            x = x | {"decode_s": x["decode_s"] - x["decode_gain_s"]}
        load = Together(e, st, work, x, step_tokens, sequences, n, front, others).at(rate)
        return load, 1 / st.dp + rate * n * load.round_s - sequences

    low, high = 0, len(grid)
    while high - low > 1:
        middle = (low + high) // 2
        if at(middle)[1] > 0.0:
            low = middle
        else:
            high = middle
    (below, under), (above, over) = at(low), at(high)
    part = 1.0 if over > 0.0 else under / (under - over) if under > over else 0.0
    load = Load(*(u + part * (v - u) for u, v in zip(below, above, strict=True)))
    return load, math.inf if over > 0.0 else rate * (load.service_s + n * load.round_s)


class Together:
    """D ranks that step together: slots in which some rank has a unit of a prompt are long for all."""

    def __init__(
        self, e: Any, st: Any, work: Any, x: dict[str, float], step_tokens: int, b: float, n: float, front: float,
        others: float | None = None,
    ) -> None:  # fmt: skip
        self.d, self.b, self.n, self.front = st.dp, b, n, front
        self.t_d, self.core = x["decode_s"], x["decode_core_s"]
        self.even, self.lone, self.host = x["prefill_even_s"], x["prefill_lone_s"], x["prefill_host_s"]
        self.ahead = 1.0 if e.launches_ahead and st.pp == 1 else 0.0
        self.drain = x["prefill_pass_s"] - x["prefill_s"] + x["prefill_late_s"]
        self.pieces = (work.isl - work.prefix_tokens) / step_tokens
        self.passes = max(self.pieces, 1.0)
        self.mixed, self.stalls = e.mixed_prefill, st.mtp > 0 and not e.mixed_prefill
        if self.mixed:
            self.room = max(st.prefill_chunk - b * (1.0 + st.mtp), 1.0) / step_tokens
        else:
            self.room = max(st.prefill_chunk // step_tokens, 1)
        self.least = min(max(self.t_d - self.core, 0.0), self.lone)
        self.ride = (self.even - self.least) * b * (1.0 + st.mtp) / step_tokens if n > 0 else 0.0
        self.uneven = 0.0
        if self.mixed and n > 0:
            decoding = (max(b - 1.0, 0.0) if others is None else others) * (1 + st.mtp)
            self.leave_over(work.isl - work.prefix_tokens, step_tokens, st.prefill_chunk, decoding)
        self.several = self.room >= 2
        self.others = b * st.dp > 1.0

    def leave_over(self, new: int, step_tokens: int, chunk: int, decoding: float) -> None:
        """One step more than the chunk alone would need, where decoding tokens take so much of it."""
        left = max(chunk - decoding, math.ceil(chunk / 2))
        c = math.ceil(new / left)
        if c <= math.ceil(new / chunk):
            return
        rest = new - (c - 1) * left
        one = self.least + (self.lone - self.least) * left / step_tokens

        def each(whole: float) -> tuple[float, float]:
            full, last = (self.least + (whole - self.least) * t / step_tokens for t in (left, rest))
            if self.ahead:  # the host is as far ahead of the last as a whole step takes longer than its launches
                return full, max(last, min(one, 2.0 * self.host - one))
            return max(full, self.host), max(last, self.host)

        def mean(whole: float) -> float:
            full, last = each(whole)
            return ((c - 1) * full + last) / c

        full, last = each(self.lone)
        self.drain *= last / self.lone
        self.uneven = (full - last) * math.sqrt(c - 1.0) / c
        self.even, self.lone = mean(self.even), mean(self.lone)
        self.pieces = self.passes = float(c)
        self.room = max(chunk - decoding, 1.0) * c / new

    def after_round(self, some: float) -> float:
        """Chance that the step before one with prompts was a decode round."""
        return (1.0 if self.stalls else 1.0 - some) / self.passes

    def step(self, everyone: float, most: float, decoding: bool = True, after: float = 0.0) -> float:
        def launched(device: float) -> float:
            held = max(device, self.host)
            return held - self.ahead * after * (held - max(device, self.host - self.t_d))

        spread = (self.even - self.lone) * max(everyone - most, 0.0) / max(self.d - 1.0, 1.0)
        prompts = self.least + (self.lone - self.least) * most + spread
        if not self.mixed or not decoding:
            return launched(prompts)
        return launched(prompts + self.ride) + min(self.core, self.t_d)

    def own(self, mu: float, most: float, some: float) -> float:
        """All steps with one's own prompt."""
        if not self.others:
            return self.passes * self.step(1.0, 1.0, False)
        fullest = max(most / max(some, 1e-12), 1.0) if self.several else 1.0
        everyone = 1.0 + (self.d if self.several else self.d - 1.0) * mu
        return self.passes * self.step(everyone, fullest, after=self.after_round(some))

    def units(self) -> float:
        """mu of a closed loop."""
        wanted = self.pieces * self.b
        if self.mixed:
            return min(wanted / (self.passes + 1.0 + self.n), self.room)
        if self.stalls:
            return wanted / max(self.n, 1.0)
        a = self.passes + 1.0
        if self.several:
            mu = math.log1p(wanted / max(self.n, 1e-9))
            for _ in range(5):
                grown = self.n * math.exp(mu)
                mu -= (mu * (a + grown) - wanted) / (a + grown * (1.0 + mu))
            return min(mu, self.room)
        whole = a + self.n + wanted
        return min(2.0 * wanted / (whole + math.sqrt(max(whole * whole - 4.0 * a * wanted, 0.0))), 1.0)

    def decodes(self, mu: float) -> float:
        return math.exp(-mu) if self.several else max(1.0 - mu, 0.0)

    def closed(self, away: float) -> Load:
        mu, d = self.units(), self.d
        if self.several:
            some, most = -math.expm1(-d * mu), largest(d, mu)
        else:
            some = most = -math.expm1(d * math.log1p(-min(mu, 1.0 - 1e-12)))
        before = self.after_round(some) if self.others else 0.0
        long = self.step(d * mu / max(some, 1e-300), most / max(some, 1e-300), after=before)
        tau = (1.0 - some) * self.t_d + some * max(long, self.t_d)
        share = 1.0 - (self.t_d if self.mixed else (1.0 - some) * self.t_d) / tau
        each = tau if self.mixed else tau / self.decodes(mu) if self.decodes(mu) else float("inf")
        if self.stalls:
            turns = largest(d, mu / self.passes)
            after = self.passes * turns * self.step(d * mu / self.passes / max(turns, 1e-300), 1.0, after=before)
            after = some * long if self.several else after
            tau = self.t_d + after
            share, each = after / tau, tau
        own = self.own(mu, most, some)
        wait = min(mu / 2.0, max(self.b - 1.0, 0.0)) * own
        if self.others:
            steps = 1.0 + (math.ceil(self.front / away) - 1.0) * (1.0 - some) if self.front else 0.0
            wait += max(steps * tau - self.front, 0.0) + tau
        taken = self.pieces * tau / mu * min(self.b, 1.0) if self.others else 0.0
        return Load(taken, wait, own + self.drain, share, each)

    def at(self, rate: float) -> Load:
        """An open loop: runs of long steps begin after a short one in which prompts came."""
        d, units, most, some = self.d, self.pieces, min(self.pieces, 1.0), 1.0
        for _ in range(3):
            long = self.step(units, most, after=self.after_round(some))
            long = long if self.stalls else max(long, self.t_d)
            a = min(d * rate * long, 50.0 / self.passes)
            begins = -math.expm1(-d * rate * self.t_d)
            some = begins / (-math.expm1(-a) / math.expm1(a * self.passes) + begins)
            if d == 1 and not self.several:
                work = rate * self.pieces
                some = work * self.t_d / max(1.0 - work * (long - self.t_d), work * self.t_d)
            tau = some * long + (1.0 - some) * self.t_d
            units = max(d * rate * self.pieces * tau / some, min(self.pieces, 1.0))
            if self.several:
                came = min(rate * long, 256.0)
                most = min(self.pieces, 1.0) * largest(d, came) / -math.expm1(-d * came)
        mu = rate * self.pieces * tau
        decoding = 1.0 if self.mixed else 1.0 - some if self.stalls else self.decodes(mu)
        decoding = decoding if mu < self.room else 0.0
        each = tau / max(decoding, 1e-9)
        share = 1.0 - self.t_d / tau if self.mixed else some * long / tau
        rest = (some * (long**2 + self.uneven**2) + (1.0 - some) * self.t_d**2) / (2.0 * tau)
        meets = -math.expm1(-d * rate * (self.n * each + self.passes * tau))
        own = self.own(mu, some * most, some)
        room = max(self.room, 1.0)
        places = float(math.floor(room))
        rho = min(rate * own * min(self.pieces, 1.0) / room, 1.0 - 1e-9)
        queue = own / (2.0 * room) * rho ** (math.sqrt(2.0 * (places + 1.0)) - 1.0) / (1.0 - rho)
        return Load(self.pieces * tau / mu, queue + meets * (rest + tau), own + self.drain, share, each)


NODES = [1e-3 * 256e3 ** (i / 159) for i in range(160)]


def largest(ranks: int, mu: float) -> float:
    """Mean of the largest of so many Poisson numbers, linear between tabulated means."""
    if mu <= NODES[0]:
        return node(ranks, 0) * mu / NODES[0]
    i = min(next((i for i, m in enumerate(NODES) if m >= mu), len(NODES) - 1), len(NODES) - 1)
    u = min((mu - NODES[i - 1]) / (NODES[i] - NODES[i - 1]), 1.0)
    return node(ranks, i - 1) + u * (node(ranks, i) - node(ranks, i - 1))


@cache
def node(ranks: int, i: int) -> float:
    mu, above, total = NODES[i], 0.0, 0.0
    for j in reversed(range(int(mu + 12 * math.sqrt(mu) + 24))):
        total += -math.expm1(ranks * math.log1p(-above)) if above < 1.0 else 1.0
        above += math.exp(j * math.log(mu) - mu - math.lgamma(j + 1.0))
    return total
