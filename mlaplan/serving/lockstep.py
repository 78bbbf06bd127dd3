"""Ranks that step together: how often some rank has a prompt, and what that costs the sequences in decode.

The experts of every layer serve all attention-DP ranks, so no rank ends a step before the slowest: a prompt on one of
them makes the step long for all. A rank alone is the case D = 1. Model: D ranks with equal loads; in every slot each
gets units of work, a unit being a step's share of prompts (`step_tokens`), mu of them on average, independently of the
others and of slots before.

A slot and its duration, with p the chance that some rank has a unit, v the most units of a rank and u those of all in
a step that has some:
    step = z + (s_1 - z) v + (s_D - s_1) (u - v) / (D - 1)
    mixed          a step; all decode in it        t_L = max( step + (s_D - z) b q / T, host ) + t_d - z
    prompts first  a step; ranks without decode    t_L = max( step, host )
                                                   tau = (1 - p) t_d + p max(t_L, t_d), both
    with drafts    a round, then all prompts       tau = t_d + p t_L, or one after the other with v = 1
s_D, s_1: a prefill step of T tokens on every rank and on one alone; t_d: a decode round of b sequences of q tokens, z
of it without what the cached context adds, as if of hardly any token. Between these points a step is taken as linear in
the most units of a rank and in the units of all; host: launches, which a step takes at least.

Where launches run ahead of results (`ahead`), part of them passes beside the step before, if that is a round: with
H what the host takes for a step with prompts, and a the chance that one follows a round,
    max( x, host ) = (1 - a) max( x, H ) + a max( x, H - t_d )      a = (1 - p) / c
A prompt's step is its first in one of c cases, and before that no other prompt was computed in 1 - p of them. With
drafts a round comes before all first steps, and before a request that is alone there is none: a = 1 / c and 0.

One unit fits a step (the chunk holds no second one, or prompts are cut): rank busy with f = min(mu, 1),
    p = V = 1 - (1 - f)^D
several fit: units are Poisson, p = 1 - exp(-D mu), V = sum over j > 0 of 1 - F(j - 1; mu)^D, f = 1 - exp(-mu).

Closed loop: b sequences are always there, and a request is there for L steps, c of its prompt, one until the scheduler
sees it, n rounds: mu = c' b / L (c' units of a prompt). Prompts first: its own rank decodes in 1 - f of the steps,
mu (c + 1 + n / (1 - f)) = c' b, the smallest root. With drafts a slot has one round: mu = c' b / n.

Open loop: prompts come at l a rank and second, steps are short (t_d) or long (t_L); some prompt is under way in the
next step of a short one with p_S = 1 - exp(-D l t_d), and a run of long ones ends with q = (1 - exp(-a)) /
(exp(a c) - 1), a = D l t_L (a discrete M/D/oo with service c): share of long steps = p_S / (q + p_S). One rank with
one unit a step does prompts in turn, so it is mu itself: mu = l c' tau = l c' t_d / (1 - l c' (t_L - t_d)).

Sources: SGLang and vLLM let each rank schedule by itself and meet at every MoE layer (sgl-project/sglang,
python/sglang/srt/managers/scheduler.py, prepare_mlp_sync_batch; vllm-project/vllm, vllm/v1/engine/core.py,
DPEngineCoreProc). Delaying prompts until all ranks have one is an option of some, off by default, and not modelled.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.roofline import Numeric

NODES = np.geomspace(1e-3, 256.0, 160)  # mu at which the most units are tabulated
FIXED_POINT_PASSES = 3
NEWTON_STEPS = 5
LONGEST_RUN = 50.0  # exponent above which long steps are all there is


class Ranks(NamedTuple):
    """Ranks in lockstep, columns or scalars, one row each. Times in seconds."""

    ranks: Numeric  # D
    sequences: Numeric  # b, in flight on a rank; below 1 where there are fewer requests than ranks
    rounds: Numeric  # n
    decode_s: Numeric  # t_d
    core_s: Numeric  # of it, what the context adds
    all_s: Numeric  # s_D and s_1, not waiting for the host
    lone_s: Numeric
    units: Numeric  # c' = new tokens / step tokens: below 1 where a step has several prompts
    ride_s: Numeric  # (s_D - z) b q / T: what decoding tokens of all ranks add to a step with prompts
    room: Numeric  # units that a step holds: where it is mixed, what decoding tokens leave of the chunk
    drafts: Numeric  # whether sequences draft
    mixed: bool
    host_s: Numeric  # H, that the host takes for a step with prompts
    drain_s: Numeric  # from the slowest stage of a prompt's last step to its first token
    front_s: float  # F
    ahead: Numeric = 0.0  # 1 where the host launches a step beside the one before
    uneven_s: Numeric = 0.0  # standard deviation of the steps of a prompt, of which one is shorter

    @property
    def several(self) -> Numeric:
        """Whether a step can have more than one unit of a rank."""
        return np.asarray(self.room) >= 2

    @property
    def passes(self) -> Numeric:
        """c: steps that compute a part of a prompt."""
        return np.maximum(self.units, 1.0)

    @property
    def floor_s(self) -> Numeric:
        """z"""
        return np.minimum(np.maximum(self.decode_s - self.core_s, 0.0), self.lone_s)

    @property
    def wait(self) -> Numeric:
        """Whether prompts on one rank keep the others from decoding."""
        return np.asarray(self.drafts) & (not self.mixed)


class Slot(NamedTuple):
    """What a slot is like on average."""

    units: Numeric  # mu
    some: Numeric  # p
    most: Numeric  # V
    seconds: Numeric  # tau
    rounds_share: Numeric  # of a slot, rounds that a sequence in decode takes part in
    with_prompts: Numeric  # share of the time that prompts take from decode
    rest_s: Numeric = 0.0  # of a step under way, for who comes at any time
    long_s: Numeric = 0.0  # of a step with prompts


def some_and_most(ranks: Numeric, units: Numeric, several: Numeric) -> tuple[Numeric, Numeric]:
    """(p, V): chance that some rank has a unit, expected most units of a rank."""
    one = -np.expm1(ranks * np.log1p(-np.minimum(units, 1.0 - 1e-12)))
    if not np.any(several):
        return one, one
    some = -np.expm1(-ranks * units)
    return np.where(several, some, one), np.where(several, most_units(ranks, units), one)


def most_units(ranks: Numeric, units: Numeric) -> Numeric:
    """E of the largest of D Poisson numbers of this mean."""
    d, mu = np.broadcast_arrays(np.asarray(ranks), np.asarray(units, dtype=float))
    out = np.empty(mu.shape)
    for one in set(d.ravel().tolist()):
        rows = d == one
        out[rows] = np.interp(mu[rows], NODES, _table(int(one))) * np.minimum(mu[rows] / NODES[0], 1.0)
    return out


@lru_cache(maxsize=256)
def _table(ranks: int) -> NDArray[np.float64]:
    """At the nodes: sum over j > 0 of 1 - F(j - 1)^D."""
    with np.errstate(divide="ignore"):
        return np.sum(-np.expm1(ranks * np.log1p(-_above())), axis=1)


@lru_cache(maxsize=1)
def _above() -> NDArray[np.float64]:
    """1 - F(j; mu) of each node, rows, summed from its tail."""
    reach = (NODES + 12.0 * np.sqrt(NODES) + 24.0).astype(np.int64)
    j = np.arange(int(reach[-1]))
    factorials = np.array([math.lgamma(k + 1.0) for k in j])
    each = np.exp(j * np.log(NODES)[:, None] - NODES[:, None] - factorials)
    each = np.where(j < reach[:, None], each, 0.0)
    return np.minimum(np.cumsum(each[:, ::-1], axis=1)[:, ::-1] - each, 1.0)


def after_round(k: Ranks, some: Numeric) -> Numeric:
    """Chance that the step before one with prompts was a decode round, at this share of slots with prompts."""
    return (1.0 - np.where(k.wait, 0.0, some)) / k.passes


def long_s(k: Ranks, everyone: Numeric, most: Numeric, decoding: bool = True, after: Numeric = 0.0) -> Numeric:
    """A step with so many units on all ranks together and on the fullest; decoding: whether anyone decodes in it;
    after: the chance that it follows a round."""
    floor, others = k.floor_s, np.maximum(everyone - most, 0.0) / np.maximum(k.ranks - 1.0, 1.0)
    step = floor + (k.lone_s - floor) * most + (k.all_s - k.lone_s) * others
    if not k.mixed:
        return _launched(k, step, after)
    # decoding tokens of all ranks in the products that they share with prompts, and what the context adds
    if not decoding:
        return _launched(k, step, after)
    return _launched(k, step + k.ride_s, after) + np.minimum(k.core_s, k.decode_s)


def _launched(k: Ranks, device_s: Numeric, after: Numeric) -> Numeric:
    """A step that takes the device so long, and at least its host."""
    held = np.maximum(device_s, k.host_s)
    if not np.any(k.ahead):
        return held
    return held - k.ahead * after * (held - np.maximum(device_s, k.host_s - k.decode_s))


class Meeting(NamedTuple):
    """What the times do not change about the slots of a closed loop: who has prompts, and how many, on average."""

    units: Numeric  # mu
    some: Numeric  # p
    most: Numeric  # V
    long_all: Numeric  # units of all ranks in a slot with some, and of the fullest
    long_most: Numeric
    own_all: Numeric  # the same in a slot with a unit of one's own
    own_most: Numeric
    turn_all: Numeric = 0.0  # of the prompts that drafting ranks compute one after the other, of all ranks in a step
    turns: Numeric = 0.0  # how many steps those take
    share: Numeric = 1.0  # of slots in which a rank has no prompts


UNMIXED = ("turn_all", "turns", "share")  # what plays no part where prompts and rounds are mixed


def meeting(k: Ranks) -> Meeting:
    """How prompts of ranks meet in a closed loop: of times only whether there are any."""
    mu = np.minimum(_closed_units(k), np.where(k.wait, np.inf, k.room))
    p, most = some_and_most(k.ranks, mu, k.several)
    some = np.maximum(p, 1e-300)
    turn_all: Numeric = 0.0
    turns: Numeric = 0.0
    if not k.mixed and np.any(k.drafts):
        each = mu / k.passes
        in_turn = most_units(k.ranks, each)
        turn_all, turns = k.ranks * each / np.maximum(in_turn, 1e-300), k.passes * in_turn
    share = 1.0 if k.mixed else _without_prompts(k, mu)
    return Meeting(mu, p, most, k.ranks * mu / some, most / some, *_with_own(k, mu, p, most), turn_all, turns, share)


def closed(k: Ranks, met: Meeting | None = None) -> Slot:
    """The slot of a closed loop. met: `meeting` of these rows, where it is known."""
    return _slot(k, meeting(k) if met is None else met)


def _closed_units(k: Ranks) -> Numeric:
    wanted = k.units * k.sequences
    if k.mixed:
        return wanted / (k.passes + 1.0 + k.rounds)
    a = k.passes + 1.0
    b = a + k.rounds + wanted
    first = 2.0 * wanted / (b + np.sqrt(np.maximum(b * b - 4.0 * a * wanted, 0.0)))
    if np.any(k.several):
        mu = np.log1p(wanted / np.maximum(k.rounds, 1e-9))  # never below the root, from where Newton's steps fall
        for _ in range(NEWTON_STEPS):
            grown = k.rounds * np.exp(mu)
            mu = mu - (mu * (a + grown) - wanted) / (a + grown * (1.0 + mu))
        first = np.where(k.several, mu, first)
    if not np.any(k.drafts):
        return first
    return np.where(k.drafts, wanted / np.maximum(k.rounds, 1.0), first)


def _slot(k: Ranks, met: Meeting) -> Slot:
    mu, p, most = met.units, met.some, met.most
    after = np.where(k.sequences * k.ranks > 1.0, after_round(k, p), 0.0)
    prompts = long_s(k, met.long_all, met.long_most, after=after)
    tau = (1.0 - p) * k.decode_s + p * np.maximum(prompts, k.decode_s)
    if k.mixed:
        return Slot(mu, p, most, tau, 1.0, 1.0 - k.decode_s / tau)
    taken = 1.0 - (1.0 - p) * k.decode_s / tau
    if not np.any(k.drafts):
        return Slot(mu, p, most, tau, met.share, taken)
    # all prompts of a round are done before the next: those of a rank that do not fit one step one after the other
    turns_s = met.turns * long_s(k, met.turn_all, 1.0, after=after)
    waited = np.where(k.several, p * prompts, turns_s)
    tau = np.where(k.drafts, k.decode_s + waited, tau)
    share = np.where(k.drafts, 1.0, met.share)
    return Slot(mu, p, most, tau, share, np.where(k.drafts, waited / tau, taken))


def open_loop(k: Ranks, rate: Numeric) -> Slot:
    """The step of an open loop, `rate` prompts a rank and second; 1 / rounds_share is infinite where it is too much."""
    short, units, most = k.decode_s, k.units, np.minimum(k.units, 1.0)
    arriving = k.ranks * rate
    starts = -np.expm1(-arriving * short)
    one = (np.asarray(k.ranks) == 1) & ~k.several
    some: Numeric = 1.0
    tau = long = short
    for _ in range(FIXED_POINT_PASSES):
        step = long_s(k, units, most, after=after_round(k, some))
        long = np.maximum(step, np.where(k.wait, 0.0, short))
        a = np.minimum(arriving * long, LONGEST_RUN / k.passes)
        ends = -np.expm1(-a) / np.expm1(np.maximum(a * k.passes, 1e-300))
        some = starts / (ends + starts)
        if np.any(one):
            work = arriving * k.units
            some = np.where(one, work * short / np.maximum(1.0 - work * (long - short), work * short), some)
        tau = some * long + (1.0 - some) * short
        units = np.maximum(arriving * k.units * tau / np.maximum(some, 1e-300), np.minimum(k.units, 1.0))
        if np.any(k.several):
            at_once = np.minimum(rate * long, NODES[-1])
            of_one = most_units(k.ranks, at_once) / np.maximum(-np.expm1(-k.ranks * at_once), 1e-300)
            most = np.where(k.several, np.minimum(k.units, 1.0) * of_one, most)
    mu = rate * k.units * tau
    share = np.ones_like(tau) if k.mixed else np.where(k.wait, 1.0 - some, _without_prompts(k, mu))
    share = np.where(mu < k.room, share, 0.0)
    taken = 1.0 - short / tau if k.mixed else some * long / tau
    rest = (some * (long**2 + k.uneven_s**2) + (1.0 - some) * short**2) / (2.0 * tau)
    return Slot(mu, some, some * most, tau, share, taken, rest, long)


def _without_prompts(k: Ranks, mu: Numeric) -> Numeric:
    """Share of steps in which a rank has no prompts, so that it decodes."""
    return np.where(k.several, np.exp(-mu), np.maximum(1.0 - mu, 0.0))


def request_s(k: Ranks, slot: Slot) -> Numeric:
    """Seconds per request and rank at this slot: 1 / X = c' tau / mu."""
    return k.units * slot.seconds / slot.units


def own_step_s(k: Ranks, slot: Slot, others: Numeric, met: Meeting | None = None) -> Numeric:
    """A step with a unit of one's own. others: whether there is any other request."""
    everyone, most = _with_own(k, slot.units, slot.some, slot.most) if met is None else (met.own_all, met.own_most)
    step = long_s(k, everyone, most, after=after_round(k, slot.some))
    return step if np.all(others) else np.where(others, step, long_s(k, 1.0, 1.0, decoding=False))


def _with_own(k: Ranks, mu: Numeric, some: Numeric, most: Numeric) -> tuple[Numeric, Numeric]:
    """(units of all ranks, most units of one) in a slot with a unit of one's own."""
    fullest = np.where(k.several, np.maximum(most / np.maximum(some, 1e-12), 1.0), 1.0)
    return 1.0 + np.where(k.several, k.ranks, k.ranks - 1.0) * mu, fullest


__all__ = ["Meeting", "Ranks", "Slot", "closed", "meeting", "open_loop", "own_step_s", "request_s"]
