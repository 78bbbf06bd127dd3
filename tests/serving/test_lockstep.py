"""Ranks in lockstep: the slots by hand, and against plain chance."""

from __future__ import annotations

from math import exp, expm1, sqrt

import numpy as np
import pytest

from mlaplan.serving import lockstep, remainder
from mlaplan.serving.lockstep import Ranks

# 8 ranks of 20 sequences, 199 rounds of 30 ms, 10 ms of which are context; a prompt alone 0.2 s, on all ranks 0.3 s
MIXED = Ranks(
    ranks=8, sequences=20.0, rounds=199.0, decode_s=0.03, core_s=0.01, all_s=0.3, lone_s=0.2, units=1.0, ride_s=0.028,
    room=1, drafts=False, mixed=True, host_s=0.0, drain_s=0.0, front_s=0.0,
)  # fmt: skip
FIRST = MIXED._replace(mixed=False)


def test_a_mixed_step_by_hand() -> None:
    """One prompt on 8 ranks: 0.2 s, of which 0.02 s are the round's own products; 160 tokens that decode ride along
    as a tenth of a prompt on every rank, 0.28 s; and the context of all, 10 ms."""
    assert lockstep.long_s(MIXED, 1.0, 1.0) == pytest.approx(0.2 + 0.028 + 0.01)
    # three ranks have one each: two sevenths of the way from one to all
    assert lockstep.long_s(MIXED, 3.0, 1.0) == pytest.approx(0.2 + 0.1 * 2 / 7 + 0.028 + 0.01)
    # two on one rank: the products that no prompt needs twice are there once
    assert lockstep.long_s(MIXED, 2.0, 2.0) == pytest.approx(0.02 + 2 * 0.18 + 0.028 + 0.01)
    # nobody decodes; the host sets the pace
    assert lockstep.long_s(MIXED, 1.0, 1.0, decoding=False) == pytest.approx(0.2)
    assert lockstep.long_s(MIXED._replace(host_s=0.5), 1.0, 1.0) == pytest.approx(0.51)


# one rank of rounds of 20 ms and prompts of 50 ms whose launches take 100 ms
AHEAD = FIRST._replace(ranks=1, decode_s=0.02, core_s=0.0, all_s=0.05, lone_s=0.05, host_s=0.1, ahead=1.0)


def test_launches_ahead_by_hand() -> None:
    """After a round 80 ms are left of the launches, after another prompt 100 ms."""
    assert lockstep.long_s(AHEAD, 1.0, 1.0) == pytest.approx(0.1)
    assert lockstep.long_s(AHEAD, 1.0, 1.0, after=1.0) == pytest.approx(0.08)
    assert lockstep.long_s(AHEAD, 1.0, 1.0, after=0.25) == pytest.approx(0.095)
    assert lockstep.long_s(AHEAD._replace(ahead=0.0), 1.0, 1.0, after=1.0) == pytest.approx(0.1)
    # a device of 90 ms: after a round it takes longer than what is left of the launches
    assert lockstep.long_s(AHEAD._replace(lone_s=0.09), 1.0, 1.0, after=0.5) == pytest.approx((0.1 + 0.09) / 2)
    # a prompt of two steps, the first of which is after a round where there is no other prompt; drafts see to that
    assert lockstep.after_round(AHEAD._replace(units=2.0), 0.2) == pytest.approx(0.8 / 2)
    assert lockstep.after_round(AHEAD._replace(units=2.0, drafts=True), 0.2) == pytest.approx(1 / 2)


def test_launches_ahead_in_a_closed_loop_by_hand() -> None:
    slot = lockstep.closed(AHEAD)
    f = float(slot.units)
    long = f * 0.1 + (1 - f) * 0.08
    assert slot.some == pytest.approx(f)
    assert slot.seconds == pytest.approx((1 - f) * 0.02 + f * long)
    assert lockstep.own_step_s(AHEAD, slot, True) == pytest.approx(long)
    # a request that is alone follows no round
    alone = lockstep.closed(AHEAD._replace(sequences=1.0))
    assert alone.seconds == pytest.approx(0.02 + float(alone.some) * 0.08)
    assert lockstep.own_step_s(AHEAD, alone, False) == pytest.approx(0.1)


def test_the_last_tokens_of_a_chunk_take_what_the_host_is_not_ahead() -> None:
    """192 of 200 tokens fit beside 8 that decode: of 130 ms, 10 ms for hardly any token, 125.2 ms; the host, at 100 ms,
    is 25.2 ms ahead of the 8 tokens left, which so take 74.8 ms."""
    k = MIXED._replace(ranks=1, decode_s=0.01, core_s=0.0, all_s=0.13, lone_s=0.13, host_s=0.1, ahead=1.0)
    at = remainder.with_remainder(k, 200, np.array([200]), np.array([200]), np.array([8.0]))
    assert at.units == pytest.approx(2.0)
    assert at.lone_s == pytest.approx((0.1252 + 0.0748) / 2)
    assert at.uneven_s == pytest.approx((0.1252 - 0.0748) / 2)
    alone = remainder.with_remainder(k._replace(ahead=0.0), 200, np.array([200]), np.array([200]), np.array([8.0]))
    assert alone.lone_s == pytest.approx((0.1252 + 0.1) / 2)


def test_a_closed_loop_of_mixed_steps_by_hand() -> None:
    """201 steps of a request, one of them with its prompt: each rank has one in 20 / 201 of the steps."""
    slot = lockstep.closed(MIXED)
    f = 20 / 201
    p = 1 - (1 - f) ** 8
    long = 0.2 + 0.1 * (8 * f / p - 1) / 7 + 0.028 + 0.01
    assert slot.units == pytest.approx(f)
    assert slot.some == pytest.approx(p)
    assert slot.seconds == pytest.approx((1 - p) * 0.03 + p * long)
    # 20 requests in 201 steps
    assert lockstep.request_s(MIXED, slot) == pytest.approx(201 * slot.seconds / 20)


def test_prompts_that_go_first_keep_their_own_rank_from_decoding() -> None:
    """f (2 + 199 / (1 - f)) = 20, the smaller root; on the others a round passes beside the prompt."""
    slot = lockstep.closed(FIRST)
    f = (2 + 199 + 20 - sqrt((2 + 199 + 20) ** 2 - 4 * 2 * 20)) / 4
    p = 1 - (1 - f) ** 8
    assert slot.units == pytest.approx(f)
    assert f * (2 + 199 / (1 - f)) == pytest.approx(20)
    assert slot.rounds_share == pytest.approx(1 - f)
    assert slot.seconds == pytest.approx((1 - p) * 0.03 + p * (0.2 + 0.1 * (8 * f / p - 1) / 7))


def test_with_drafts_all_wait_until_every_prompt_is_done() -> None:
    """A round of 20 sequences ends 20 / 199 of them on each rank; their prompts of 3 steps pass one after the other."""
    slot = lockstep.closed(FIRST._replace(drafts=True, units=3.0))
    u = 20 / 199
    turns = lockstep.most_units(8, u)
    after = 3 * turns * (0.2 + 0.1 * (8 * u / turns - 1) / 7)
    assert slot.seconds == pytest.approx(0.03 + after)
    assert slot.rounds_share == 1.0


def test_one_rank_of_two_with_all_the_work_is_one_rank() -> None:
    """No prompts on the other: what is left is a single rank's formula, 1 / X = c s + n t_d / b."""
    k = FIRST._replace(ranks=2, all_s=0.2, lone_s=0.2, sequences=1e-6, rounds=1e3)
    slot = lockstep.closed(k)
    assert slot.seconds == pytest.approx(0.03, rel=1e-4)
    assert slot.some == pytest.approx(2e-9, rel=1e-2)


@pytest.mark.parametrize(("ranks", "mean"), [(2, 0.05), (8, 0.3), (16, 1.7), (32, 40.0)])
def test_the_most_units_of_a_rank_by_chance(ranks: int, mean: float) -> None:
    drawn = np.random.default_rng(1).poisson(mean, (200_000, ranks)).max(axis=1)
    some, most = lockstep.some_and_most(ranks, mean, True)
    assert float(some) == pytest.approx((drawn > 0).mean(), rel=0.02)
    assert float(most) == pytest.approx(drawn.mean(), rel=0.02)


def test_an_open_loop_of_steps_by_chance() -> None:
    """Prompts of two steps on any of so many ranks that two never meet: long steps while one is under way."""
    k = MIXED._replace(ranks=64, all_s=0.2, units=2.0, ride_s=0.0)
    rate, long = 0.04, 0.2 + 0.01
    rng, left, now, long_steps, steps = np.random.default_rng(2), np.zeros(0, dtype=int), 0.0, 0, 200_000
    took = 0.03
    for _ in range(steps):
        left = np.concatenate([left, np.full(rng.poisson(64 * rate * took), 2)])
        took = long if len(left) else 0.03
        long_steps += len(left) > 0
        left = left[left > 1] - 1
        now += took
    slot = lockstep.open_loop(k, rate)
    assert float(slot.some) == pytest.approx(long_steps / steps, rel=0.02)
    assert float(slot.seconds) == pytest.approx(now / steps, rel=0.02)
    # as the docstring has it
    a = 64 * rate * long
    starts, ends = 1 - exp(-64 * rate * 0.03), (1 - exp(-a)) / expm1(2 * a)
    assert float(slot.some) == pytest.approx(starts / (starts + ends), rel=1e-6)


def test_too_many_prompts_leave_no_round() -> None:
    for k in (MIXED, FIRST, FIRST._replace(drafts=True)):
        shares = [float(lockstep.open_loop(k, rate).rounds_share) for rate in (0.01, 1.0, 4.0, 6.0)]
        assert shares[0] > 0.9
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] == pytest.approx(0.0, abs=1e-6)
