"""Percentiles of TTFT and TPOT of one instance at a request rate: an approximation that a search can afford.

Each of D attention-DP ranks gets a Poisson stream of l requests per second, all of the same length. A prompt takes c
steps of s seconds; a step in which a rank has a prompt lasts d = s + t_d where the engine mixes decode into it, else s.
Several ranks step together, so a prompt on one of them holds up all: `serving.lockstep` says how long a step is then.

    U      = l c s                                    D = 1: share of time that prompts take
    U      = 1 - t_d r / tau                          D > 1: rounds r a step, mean step tau of `lockstep.open_loop`
    N      = l n t_d / (1 - U)                        sequences in flight on a rank, Little's law
    b_p    = N + z_p sqrt(N)                          their percentile, as Poisson
    TPOT_p = t_d(b_p) / (a (1 - U))                   the whole output spent at that batch
    W_p    = c d ln(C / (1 - p)) / x, 0 for r = l c d <= 1 - p        M/D/1: P(W > t) falls as C exp(-x t / (c d)),
             C = (1 - r) / (x + r - 1),  r (e^x - 1) = x > 0          the mean is r c d / (2 (1 - r))
    TTFT_p = W_p + S + F                              S: a prompt's own way, with rounds mixed in; for D > 1 the
                                                      step under way and the one after it before that

Lengths that vary, prefix hits that differ, uneven routing and bursts are for the simulator, which checks the answer.
Sources: Pollaczek-Khinchine for the mean; Asmussen, Applied Probability and Queues, ch. XIII (Cramer-Lundberg) for
the tail; Kleinrock, Queueing Systems, vol. 1, for M/G/oo.
"""

from __future__ import annotations

from math import log
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from mlaplan.costs.roofline import Numeric
from mlaplan.serving import lockstep
from mlaplan.serving.lockstep import Ranks, Slot

HALVINGS = 40  # of an interval of rates
DECAYS = np.concatenate([np.geomspace(1e-6, 1.0, 400), np.geomspace(1.0, 40.0, 400)[1:]])
LOADS = DECAYS / np.expm1(DECAYS)  # r of each x, falling


class Rank(NamedTuple):
    """One attention-DP rank of an instance, scalars or columns. Times in seconds."""

    decode_s: Numeric  # t_d
    per_round: Numeric  # a
    rounds: Numeric  # n
    step_s: Numeric  # s
    passes: Numeric  # c
    first_s: Numeric  # S without rounds
    ranks: Numeric  # D
    joint: Ranks  # what they are in lockstep, for D > 1
    mixed: bool
    front_s: float  # F


class State(NamedTuple):
    """What a rank is like at a rate."""

    prompt_share: Numeric  # U
    in_flight: Numeric  # N
    peak: Numeric  # b_p
    ttft_s: Numeric
    tpot_s: Numeric


def normal_score(percentile: float) -> float:
    """z of a percentile (95 -> 1.645); 0 for the mean, which is written as percentile 0."""
    return NormalDist().inv_cdf(min(percentile, 99.999) / 100.0) if percentile else 0.0


def wait_share(load: Numeric, percentile: float) -> Numeric:
    """The wait in front of a server with this load, in service times: at a percentile, or the mean for 0."""
    r = np.asarray(load, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        if percentile == 0:
            found = r / (2.0 * (1.0 - r))
        else:
            decay = np.interp(-r, -LOADS, DECAYS)
            rest = max(1.0 - percentile / 100.0, 1e-12)
            tail = np.log((1.0 - r) / (decay + r - 1.0)) - log(rest)
            found = np.where(r <= rest, 0.0, np.maximum(tail, 0.0) / decay)
    return np.where(r >= 1.0, np.inf, found)


def prompt_share(rate: Numeric, k: Rank) -> Numeric:
    """U: share of the time for which prompts hold decode up, at `rate` requests per second and rank."""
    own = rate * k.passes * k.step_s
    if not np.any(np.asarray(k.ranks) > 1):
        return own
    return np.where(np.asarray(k.ranks) > 1, _taken(k, lockstep.open_loop(k.joint, rate)), own)


def _taken(k: Rank, slot: Slot) -> Numeric:
    return 1.0 - k.decode_s * slot.rounds_share / slot.seconds


def state(rate: Numeric, k: Rank, ttft_percentile: float, tpot_percentile: float) -> State:
    """The rank at a rate, its decode step taken as it is at the percentile's batch; infinite where it is too much."""
    longer = k.step_s + (k.decode_s if k.mixed else 0.0)
    wait = wait_share(rate * k.passes * longer, ttft_percentile) * k.passes * longer
    first = wait + k.first_s + k.decode_s * (np.ceil(k.passes) if k.mixed else 1.0)
    share = rate * k.passes * k.step_s
    joint = np.asarray(k.ranks) > 1
    if np.any(joint):
        slot = lockstep.open_loop(k.joint, rate)
        share = np.where(joint, _taken(k, slot), share)
        first = np.where(joint, _first_s(rate, k.joint, slot, ttft_percentile), first)
    free = 1.0 - share
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.where(free > 0, rate * k.rounds * k.decode_s / free, np.inf)
        tpot = np.where(free > 0, k.decode_s / (k.per_round * free), np.inf)
    peak = np.where(np.isfinite(n), n + normal_score(tpot_percentile) * np.sqrt(np.where(np.isfinite(n), n, 0.0)), n)
    return State(share, n, peak, first + k.front_s, tpot)


def _first_s(rate: Numeric, k: Ranks, slot: Slot, percentile: float) -> Numeric:
    """Ranks in lockstep: the step under way, the one after it, earlier prompts of the rank, the prompt's own steps."""
    own = k.passes * lockstep.own_step_s(k, slot, True)
    ahead = wait_share(rate * own * np.minimum(k.units, 1.0), percentile) * own
    if percentile == 0:
        return slot.rest_s + slot.seconds + ahead + own + k.drain_s
    # of those who come in a long step the last (1 - p) find most of it left; the next is long too unless few are
    rest = 1.0 - percentile / 100.0
    in_long = slot.some * slot.long_s / slot.seconds
    left = np.where(in_long > rest, slot.long_s * (1.0 - rest / np.maximum(in_long, rest)), 0.0)
    after = np.where(slot.some > rest, slot.long_s, slot.seconds)
    return np.maximum(left, slot.rest_s) + after + ahead + own + k.drain_s


def highest_rate(
    k: Rank, slots: Numeric, ttft: tuple[float, float] | None, tpot: tuple[float, float] | None
) -> Numeric:
    """The largest rate of a rank that keeps its batch within `slots` and both limits, 0 where none does. [1/s]

    ttft, tpot: (percentile, seconds). Everything rises with the rate, so halving an interval finds it.
    """
    first, each = ttft or (0.0, np.inf), tpot or (0.0, np.inf)

    def keeps(rate: Numeric) -> Numeric:
        x = state(rate, k, first[0], each[0])
        return (
            (x.peak <= slots)
            & np.isfinite(x.ttft_s)
            & (x.ttft_s <= first[1])
            & ((x.tpot_s <= each[1]) | (np.asarray(k.rounds) <= 0))
        )

    low = np.zeros(np.shape(slots))
    high = 1.0 / (k.passes * k.step_s)  # prompts alone fill the rank
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        good = keeps(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low
