"""The queueing formula: by hand, by its own limits, and against a plain simulation of an M/D/1 queue."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.fleet import queueing
from mlaplan.fleet.queueing import Rank

ONE = Rank(0.04, 1.0, 500, 0.5, 1.0, 1.0, 0.5, 1, True, 0.02)


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
    """8 ranks, 0.25/s each: 2 x 0.54 s of steps in flight, one of them in 1 - e^-1.08 of the time."""
    eight = ONE._replace(ranks=8)
    assert queueing.prompt_share(0.25, eight) == pytest.approx((1 - exp(-1.08)) * 0.5 / 0.54)
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


RANKS = st.builds(
    Rank, st.floats(0.005, 0.1), st.floats(1, 3), st.integers(0, 2000).map(float), st.floats(0.01, 2),
    st.floats(1, 8), st.sampled_from([1.0, 0.8]), st.floats(0.01, 4), st.sampled_from([1, 2, 8]), st.booleans(),
    st.floats(0, 0.1),
)  # fmt: skip


@given(RANKS, st.floats(0.01, 0.9), st.floats(1.01, 2))
def test_all_of_it_rises_with_the_rate(k: Rank, part: float, more: float) -> None:
    rate = part / (k.passes * k.step_s)
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
    assert not keeps(found * 1.001 + 1e-9) or found * 1.001 >= k.balance / (k.passes * k.step_s) * (1 - 1e-9)
