"""What is sent to a fleet, and the part of it that a few of its replicas get.

Of n equal replicas k are simulated, which get the part p = k / n of the requests. Routers that look at loads are
between chance and turns; taken is what serves less. One rank a replica: by chance, as requests that come together may
meet on it. Several ranks in lockstep: in turn, as requests that come together share a step where they do meet.

    drawn lengths, chance     gamma gaps at rate p R, thinned towards Poisson: B' = 1 / (1 + p (1 / B - 1))
    drawn lengths, in turn    sums of 1 / p gaps: B' = B / p; more than `TURNS` gaps are taken to be as regular
    a trace                   its requests at rate R, each kept with chance p, or one of 1 / p; a request finds what
                              was kept before it, as where the next turn of a conversation goes to any rank
    routed by prefix          the whole trace at rate p R: conversations stay together; bursts and the way back to a
                              prefix are as long as on k replicas, which is no better than on n

A trace that is shorter than a run is repeated with other prompts: nothing of the repetition is found in the first.
Source: thinning of point processes, Cox and Isham, Point Processes, 1980, sec. 4.3: I' - 1 = p (I - 1) of the index of
dispersion I, which is 1 / B for gamma gaps of shape B.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log, log1p, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.serving.simulator import load
from mlaplan.serving.simulator.load import Lengths
from mlaplan.serving.simulator.requests import HASH_TOKENS, Requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mlaplan.serving.simulator.server import Routing

LENGTHS_DRAWN = 20_000  # for the longest of a distribution without an end
TURNS = 4.0  # gaps in a sum, at most
TAIL = 1e-12
THINNEST = 1 / 64  # chance with which requests of a trace are kept: at less they come as a Poisson stream anyhow


@dataclass(frozen=True, slots=True)
class Offered:
    """Requests by their lengths or by a trace, and how they come.

    isl, osl: lengths that are drawn, or the mean of a trace. burstiness: shape of the gaps; None for Poisson, or for
    the trace's own gaps. prefix: tokens that each of `groups` groups begins with. words: where requests come from.
    """

    isl: Lengths
    osl: Lengths
    words: str
    trace: Requests | None = None
    burstiness: float | None = None
    routing: Routing = "least_loaded"
    prefix_cache: bool = True
    prefix: int = 0
    groups: int = 1

    @property
    def even(self) -> bool:
        """Whether the load of some replicas goes with requests per second and replica alone."""
        if self.trace is not None:
            return self.whole
        return self.burstiness in (None, 1.0)

    @property
    def whole(self) -> bool:
        """Whether the simulated replicas get the whole trace, more slowly."""
        return self.routing == "cache_aware" and self.trace is not None

    @property
    def shares(self) -> bool:
        """Whether requests find what others have sent, as far as nobody said how much."""
        return self.prefix_cache and self.trace is not None and self.trace.hash_ids is not None

    @property
    def means(self) -> tuple[int, int]:
        """Whole tokens of a prompt and an output on average."""
        return max(round(self.isl.mean), 1), max(round(self.osl.mean), 1)

    def longest(self, seed: int) -> tuple[int, int]:
        """(the longest prompt, the longest request in all) that is to be expected. [tokens]"""
        if self.trace is not None:
            return int(self.trace.prompt.max()), int((self.trace.prompt + self.trace.output).max())
        rng = np.random.default_rng(seed)
        prompt, output = (int(_drawn(one, LENGTHS_DRAWN, rng).max()) for one in (self.isl, self.osl))
        return prompt, prompt + output

    def sample(self, count: int, rate: float, part: float, seed: int, in_turn: bool = False) -> Requests:
        """About `count` requests of those that arrive at `rate`, of which `part` of the fleet gets its part."""
        if self.trace is not None:
            return self._of_trace(self.trace, count, rate, part, seed, in_turn)
        own = self.burstiness or 1.0
        shape = own * min(1.0 / part, TURNS) if in_turn else 1.0 / (1.0 + part * (1.0 / own - 1.0))
        rng = np.random.default_rng(seed)
        # a thousand gaps or lengths are some percent off their mean, and so would the answer be
        prompt, output = _drawn(self.isl, count, rng), _drawn(self.osl, count, rng)
        found = Requests(load.arrivals(count, part * rate, shape, rng), prompt, output).at_rate(part * rate)
        if not self.prefix:
            return found
        return replace(found, hash_ids=_grouped(found.prompt, self.prefix, self.groups, seed))

    def _of_trace(self, own: Requests, count: int, rate: float, part: float, seed: int, in_turn: bool) -> Requests:
        rng = np.random.default_rng(seed)
        kept = 1.0 if self.whole else max(part, THINNEST)
        rate = part * rate / kept
        rows = ceil(count / kept)
        times = ceil(rows / len(own))
        chosen = np.arange(rows)
        if kept < 1.0:
            turns = np.floor(np.arange(rows + 1) * kept + 1e-9)
            chosen = np.flatnonzero(np.diff(turns) > 0 if in_turn else rng.random(rows) < kept)
        if self.burstiness is not None:
            arrival = load.arrivals(rows, rate, self.burstiness, rng)[chosen]
        else:
            gaps = own.arrival_s - own.arrival_s[0]
            period = gaps[-1] * len(own) / max(len(own) - 1, 1)  # one mean gap more than from the first to the last
            arrival = (gaps[chosen % len(own)] + (chosen // len(own)) * period) * (len(own) / period / rate)
        at = chosen % len(own)
        ids = own.hash_ids
        if ids is not None:
            most = 1 + max((max(row, default=0) for row in ids), default=0) if times > 1 else 0
            ids = [_renamed(ids[i], int(n) * most) for i, n in zip(at.tolist(), chosen // len(own), strict=True)]
        return Requests(arrival, own.prompt[at], own.output[at], ids)


def _drawn(one: Lengths, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """One length from each of `count` equal parts of the distribution, in any order."""
    if one.kind == "value":
        return one.draw(count, rng)
    share = (rng.permutation(count) + rng.random(count)) / count
    if one.kind == "uniform":
        return (one.a + np.floor(share * (one.b - one.a + 1))).astype(np.int64)
    s2 = log1p(one.b * one.b)
    score = np.array([NormalDist().inv_cdf(min(max(x, TAIL), 1 - TAIL)) for x in share.tolist()])
    return np.clip(np.rint(np.exp(log(one.a) - s2 / 2 + sqrt(s2) * score)), 1, load.MOST_TOKENS).astype(np.int64)


def _renamed(ids: Sequence[int], by: int) -> Sequence[int]:
    return [i + by for i in ids] if by else ids


def _grouped(prompts: NDArray[np.int64], prefix: int, groups: int, seed: int) -> list[list[int]]:
    """Hash ids of prompts that begin with the prefix of their group, in whole blocks, and go on each in its own way."""
    shared = prefix // HASH_TOKENS
    of = np.random.default_rng(seed + 1).integers(0, groups, len(prompts)).tolist()
    out, fresh = [], groups * shared
    for group, tokens in zip(of, prompts.tolist(), strict=True):
        blocks = -(-tokens // HASH_TOKENS)
        head = min(shared, (tokens - 1) // HASH_TOKENS)  # the last token is always computed
        out.append([*range(group * shared, group * shared + head), *range(fresh, fresh + blocks - head)])
        fresh += blocks - head
    return out


def plain(one: Lengths) -> Lengths:
    """A distribution of one length as that length."""
    alike = (one.kind == "uniform" and one.a == one.b) or (one.kind == "lognormal" and one.b == 0)
    return Lengths("value", one.a) if alike else one
