"""The queueing formula: by hand, by its own limits, and against a plain simulation of an M/D/1 queue."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.fleet import queueing
from mlaplan.fleet.queueing import Rank
from mlaplan.serving.lockstep import Ranks

TOGETHER = Ranks(8, 8.0, 500, 0.04, 0.01, 0.5, 0.3, 1.0, 0.0, 1, False, True, 0.0, 0.0, 0.02)
ONE = Rank(0.04, 1.0, 500, 0.5, 1.0, 0.5, 1, TOGETHER, True, 0.02)


def test_one_rank_by_hand() -> None:
    """0.5/s x 0.5 s = 1/4; 0.5 x 500 x 0.04 / 0.75 = 13.3 sequences; 40 ms / 0.75 = 53.3 ms."""
    x = queueing.state(0.5, ONE, 0, 95)
    assert x.prompt_share == pytest.approx(0.25)
    assert x.in_flight == pytest.approx(40 / 3)
    assert x.peak == pytest.approx(40 / 3 + 1.6449 * sqrt(40 / 3), rel=1e-4)
    assert x.tpot_s == pytest.approx(0.04 / 0.75)
    # the wait is behind steps of 0.54 s: rho = 0.27, W = 0.27 / 1.46 x 0.54
    assert x.ttft_s == pytest.approx(0.27 / (2 * 0.73) * 0.54 + 0.5 + 0.04 + 0.02)


def test_any_rank_with_a_prompt_holds_up_all() -> None:
    """8 ranks, 0.25/s each, alone 0.3 s of prompt in a step of 0.31 s (0.03 s of the round's 0.04 are shared with it):
    of steps that follow a short one 1 - e^-0.08 are long, of those that follow a long one about 1 - e^-0.66."""
    eight = ONE._replace(ranks=8)
    long = 0.31  # and 0.2/7 s for each prompt on another rank: with 1.3 prompts a long step 0.32 s
    for _ in range(20):
        starts, ends = 1 - exp(-2 * 0.04), exp(-2 * long)
        some = starts / (starts + ends)
        step = some * long + (1 - some) * 0.04
        long = 0.31 + 0.2 / 7 * (2 * step / some - 1)
    assert some == pytest.approx(0.13, abs=0.01)
    assert queueing.prompt_share(0.25, eight) == pytest.approx(1 - 0.04 / step, rel=1e-3)
    assert queueing.prompt_share(0.25, ONE) == pytest.approx(0.125)


def test_the_tail_of_the_wait_by_hand() -> None:
    """r = 0.5: 0.5 (e^x - 1) = x at x = 1.25643; C = 0.5 / 0.75643; W_95 = ln(C / 0.05) / x."""
    assert 0.5 * (exp(1.25643) - 1) == pytest.approx(1.25643, rel=1e-4)
    assert float(queueing.wait_share(0.5, 95)) == pytest.approx(log(0.5 / 0.75643 / 0.05) / 1.25643, rel=1e-4)
    assert float(queueing.wait_share(0.04, 95)) == 0
    assert float(queueing.wait_share(0.5, 0)) == pytest.approx(0.5)
    assert float(queueing.wait_share(1.0, 95)) == float("inf")


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
def test_it_is_the_wait_of_a_queue_with_equal_services(load: float) -> None:
    """Lindley's recursion over a million arrivals."""
    rng = np.random.default_rng(1)
    steps = 1.0 - rng.exponential(1.0 / load, 1_000_000)
    walk = np.cumsum(steps)
    wait = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
    assert float(queueing.wait_share(load, 0)) == pytest.approx(wait.mean(), rel=0.05)
    assert float(queueing.wait_share(load, 95)) == pytest.approx(np.percentile(wait, 95), rel=0.08)


@st.composite
def ranks(draw: st.DrawFn) -> Rank:
    decode, rounds, step = draw(st.floats(0.005, 0.1)), draw(st.integers(0, 2000)), draw(st.floats(0.01, 2))
    passes, several = draw(st.integers(1, 8)), draw(st.sampled_from([1, 1, 4]))
    d, mixed, front = draw(st.sampled_from([1, 2, 8])), draw(st.booleans()), draw(st.floats(0, 0.1))
    lone, core = step * draw(st.floats(0.3, 1.0)), decode * draw(st.floats(0, 1))
    units = float(passes) if several == 1 else 0.5
    joint = Ranks(
        max(d, 2), 8.0, float(rounds), decode, core, step, lone, units, 0.01, several, draw(st.booleans()), mixed, 0.0,
        0.0, front,
    )  # fmt: skip
    return Rank(
        decode, draw(st.floats(1, 3)), float(rounds), step, max(units, 1.0), draw(st.floats(0.01, 4)), d, joint, mixed,
        front,
    )  # fmt: skip


RANKS = ranks()


@given(RANKS, st.floats(0.01, 0.9), st.floats(1.01, 2))
def test_all_of_it_rises_with_the_rate(k: Rank, part: float, more: float) -> None:
    rate = part / (k.passes * k.step_s) * (0.3 if k.ranks > 1 else 1.0)
    low, high = queueing.state(rate, k, 95, 95), queueing.state(rate * more, k, 95, 95)
    for name in ("prompt_share", "in_flight", "peak", "ttft_s", "tpot_s"):
        assert getattr(high, name) >= getattr(low, name) * (1 - 1e-9)


@given(RANKS, st.integers(1, 512), st.floats(0.1, 10), st.floats(0.01, 0.5))
def test_the_highest_rate_keeps_the_limits_and_a_higher_one_does_not(
    k: Rank, slots: int, ttft: float, tpot: float
) -> None:
    found = float(queueing.highest_rate(k, float(slots), (95, ttft), (95, tpot)))
    if found == 0:
        return

    def keeps(rate: float) -> bool:
        x = queueing.state(rate, k, 95, 95)
        return bool(x.peak <= slots and x.ttft_s <= ttft and (x.tpot_s <= tpot or k.rounds == 0))

    assert keeps(found)
    assert not keeps(found * 1.001 + 1e-9) or found * 1.001 >= 1.0 / (k.passes * k.step_s) * (1 - 1e-9)
