"""The part of a load that a few replicas of a fleet get: by hand, and what must hold of any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.fleet.offered import Offered, plain
from mlaplan.serving.simulator.load import Lengths
from mlaplan.serving.simulator.requests import Requests

VALUE, OUT = Lengths("value", 3500), Lengths("value", 500)
TRACE = Requests(
    np.array([0.0, 1.0, 2.5, 3.0]), np.array([600, 1100, 600, 1024]), np.array([5, 6, 7, 8]),
    [[0, 1], [0, 1, 2], [3, 4], [0, 5]],
)  # fmt: skip


def offered(**changes: object) -> Offered:
    return Offered(VALUE, OUT, "", **changes)  # type: ignore[arg-type]


def test_a_trace_by_hand() -> None:
    """4 requests in 3 s are 1 a second; at 2 a second gaps halve; the second time begins a mean gap after the first."""
    found = offered(trace=TRACE).sample(6, 2.0, 1.0, 0)
    assert found.arrival_s.tolist() == [0, 0.5, 1.25, 1.5, 2, 2.5]
    assert found.prompt.tolist() == [600, 1100, 600, 1024, 600, 1100]
    assert found.hash_ids == [[0, 1], [0, 1, 2], [3, 4], [0, 5], [6, 7], [6, 7, 8]]


def test_a_part_of_a_trace_keeps_its_requests_apart() -> None:
    """Half of the replicas get half of the requests, at the trace's times, not the same ones more slowly."""
    half = offered(trace=TRACE).sample(2000, 2.0, 0.5, 0)
    assert len(half) == pytest.approx(2000, rel=0.05) and half.rate == pytest.approx(1.0, rel=0.05)
    assert set(np.round(np.mod(half.arrival_s, 2.0), 6)) <= {0.0, 0.5, 1.25, 1.5, 2.0}


def test_conversations_stay_together_where_requests_are_routed_by_prefix() -> None:
    whole = offered(trace=TRACE, routing="cache_aware")
    found = whole.sample(4, 2.0, 0.5, 0)
    assert found.hash_ids == TRACE.hash_ids and found.rate == pytest.approx(1.0)
    assert whole.even and not offered(trace=TRACE).even


def test_thinning_draws_bursts_towards_poisson() -> None:
    """Shape 1/9 is an index of dispersion of 9; an eighth of the requests has 1 + 8 / 8 = 2, shape 1/2."""
    gaps = np.diff(offered(burstiness=1 / 9).sample(100_000, 8.0, 1 / 8, 0).arrival_s)
    assert gaps.mean() == pytest.approx(1.0) and gaps.var() == pytest.approx(2.0, rel=0.03)
    # as requests that are kept one by one
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.gamma(1 / 9, 9 / 8, 800_000))
    kept = times[rng.random(len(times)) < 1 / 8]
    counts = np.bincount((kept / 100).astype(int))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(2.0, rel=0.15)


def test_requests_in_turn_come_more_evenly() -> None:
    """Every third of Poisson arrivals: gaps of shape 3, a variance of 1 / 3 of their mean squared; of 4 at most."""
    for third, shape in ((1 / 3, 3), (1 / 30, 4)):
        gaps = np.diff(offered().sample(50_000, 1 / third, third, 0, in_turn=True).arrival_s)
        assert gaps.mean() == pytest.approx(1.0) and gaps.var() == pytest.approx(1 / shape, rel=0.03)
    half = offered(trace=TRACE).sample(4, 2.0, 0.5, 0, in_turn=True)
    assert half.prompt.tolist() == [1100, 1024, 1100, 1024] and half.rate == pytest.approx(1.0)


@given(st.floats(0.01, 100), st.integers(1, 64), st.integers(0, 5))
def test_arrivals_have_the_rate_that_is_asked_for(rate: float, n: int, seed: int) -> None:
    for load in (offered(), offered(burstiness=0.3)):
        found = load.sample(200, rate, 1 / n, seed)
        assert found.rate == pytest.approx(rate / n) and (np.diff(found.arrival_s) >= 0).all()


def test_groups_share_whole_blocks_of_their_prefix() -> None:
    found = offered(prefix=1200, groups=2).sample(50, 1.0, 1.0, 0)
    assert found.hash_ids is not None
    heads = {tuple(ids[:2]) for ids in found.hash_ids}
    rest = [i for ids in found.hash_ids for i in ids[2:]]
    assert heads == {(0, 1), (2, 3)} and len(set(rest)) == len(rest) == 50 * (7 - 2)


@pytest.mark.parametrize("one", [Lengths("uniform", 3500, 3500), Lengths("lognormal", 3500, 0.0)])
def test_no_spread_is_the_plain_value(one: Lengths) -> None:
    assert plain(one) == VALUE
    assert plain(Lengths("uniform", 3500, 3501)).kind == "uniform"


@pytest.mark.parametrize("one", [Lengths("uniform", 1, 7001), Lengths("lognormal", 3500, 0.8)])
def test_a_sample_has_the_mean_and_spread_of_its_distribution(one: Lengths) -> None:
    """So few as 500 are within a percent, where drawing them one by one is off by 0.8 / sqrt(500), or 3.6 %."""
    for seed in range(5):
        found = Offered(one, OUT, "").sample(500, 1.0, 1.0, seed).prompt
        assert found.mean() == pytest.approx(one.mean, rel=0.01)
        many = one.draw(200_000, np.random.default_rng(seed))
        for p in (5, 50, 95):
            assert np.percentile(found, p) == pytest.approx(np.percentile(many, p), rel=0.06)
