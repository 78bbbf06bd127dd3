"""How many experts tokens touch, by hand where there are as many experts as quantiles, and in the limits."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs.routing import (
    BINS,
    Groups,
    busiest,
    clustering,
    largest_normal,
    load_spread,
    spread_of,
    touched,
    uneven,
)


def test_the_even_draw_by_hand():
    # 4 of 20 per token: one token touches 4, two 20 (1 - 0.8^2) = 7.2
    assert touched(20, 4, 1, 0.0) == pytest.approx(4)
    assert touched(20, 4, 2, 0.0) == pytest.approx(7.2)
    # DeepSeek-V3 at 128 tokens: 251.6 of 256
    assert touched(256, 8, 128, 0.0) == pytest.approx(251.6, abs=0.05)


def test_one_choice_of_sixteen_by_hand():
    """With one choice a token draws once, so that an expert is missed by T tokens with (1 - p)^T."""
    liking = [math.exp(0.5 * NormalDist().inv_cdf((i + 0.5) / BINS)) for i in range(BINS)]
    for tokens in (1, 2, 10):
        by_hand = sum(1 - (1 - w / sum(liking)) ** tokens for w in liking)
        assert touched(BINS, 1, tokens, 0.5) == pytest.approx(by_hand, rel=1e-9)


def test_the_liked_ones_of_256_experts():
    """Drawn one by one in a simulation of the same law with 256 quantiles: 90 and 187; evenly 102 and 222."""
    at = touched(256, 8, np.array([16, 64]), 0.81)
    assert at == pytest.approx([90, 187], rel=0.02)
    assert touched(256, 8, np.array([16, 64]), 0.0) == pytest.approx([102.0, 222.4], rel=1e-3)


def test_a_simulation_of_single_tokens_agrees():
    """Tokens that draw until they have k different experts, against the closed form."""
    rng, experts, k, tokens, spread = np.random.default_rng(0), 64, 4, 12, 0.9
    z = np.repeat([NormalDist().inv_cdf((i + 0.5) / BINS) for i in range(BINS)], experts // BINS)
    liking = np.exp(spread * z)
    keys = rng.exponential(size=(4000, tokens, experts)) / liking  # the k smallest are a draw without replacement
    chosen = np.argpartition(keys, k, axis=-1)[..., :k]
    found = np.mean([len(np.unique(one)) for one in chosen])
    assert touched(experts, k, tokens, spread) == pytest.approx(found, rel=0.01)


@given(st.integers(1, 512), st.integers(1, 100_000), st.floats(0.0, 2.0), st.data())
def test_more_tokens_touch_more_and_uneven_loads_fewer(experts, tokens, spread, data):
    k = data.draw(st.integers(1, experts))
    found = float(touched(experts, k, tokens, spread))
    assert k * (1 - 1e-6) <= found <= min(experts, tokens * k) * (1 + 1e-6)
    assert found <= float(touched(experts, k, tokens + 1, spread)) * (1 + 1e-12)
    assert found <= float(touched(experts, k, tokens, 0.0)) * (1 + 1e-6)


def test_the_spread_follows_from_published_loads():
    middle, even, uneven = load_spread()
    assert even == pytest.approx(spread_of(0.70), abs=0.005)
    assert uneven == pytest.approx(spread_of(1.28), abs=0.005)
    assert middle == pytest.approx((even + uneven) / 2, abs=0.01)


def test_the_busiest_of_two_ranks_by_hand():
    """Two of four experts, one token: a rank of two has 2 with 1/6, 1 with 2/3, so the busier has 4/3 on average.

    The normal law gives 1 + 0.589 sqrt(4 x 1/4 / 2) = 1.417.
    """
    assert float(busiest(4, 2, 1, 0.0, 2)) == pytest.approx(1 + largest_normal(2) * math.sqrt(0.5))
    assert float(busiest(4, 2, 1, 0.0, 2)) == pytest.approx(4 / 3, rel=0.07)
    assert largest_normal(np.array([1, 2, 8])) == pytest.approx([0.0, 0.564, 1.424], abs=0.03)


def test_a_group_holds_all_of_a_tokens_choices():
    """8 choices in 4 of 8 groups: a rank of one group has none with 1/2, else 2 of variance 3/2: 7/4, not 7/8."""
    assert clustering(8, Groups(8, 4), np.array([2, 4, 8])) == pytest.approx(2.0)
    assert clustering(8, Groups(8, 8), np.array([2, 64])) == pytest.approx(1.0)
    assert float(clustering(8, Groups(8, 4), 1 << 20)) == pytest.approx(1.0, abs=1e-4)
    assert float(clustering(8, Groups(8, 4), 9)) == pytest.approx(2.0, rel=0.1)  # the two laws meet


@pytest.mark.parametrize("limit", [Groups(), Groups(8, 4)])
@pytest.mark.parametrize(("ranks", "tokens"), [(2, 1), (4, 4), (8, 4), (8, 16), (8, 64), (32, 256)])
def test_a_simulation_of_ranks_agrees(limit, ranks, tokens):
    """Experts read by the busiest rank, and copies on the one with most of them."""
    rng, experts, k, spread = np.random.default_rng(1), 256, 8, 0.81
    liking = np.exp(spread * np.array([NormalDist().inv_cdf((i + 0.5) / experts) for i in range(experts)]))
    most, copies = [], []
    for _ in range(200):
        keys = rng.exponential(size=(tokens, experts)) / rng.permutation(liking)
        shut = np.argsort(rng.random((tokens, limit.groups)), axis=1)[:, limit.chosen :]
        by_group = keys.reshape(tokens, limit.groups, -1)
        np.put_along_axis(by_group, shut[..., None], np.inf, axis=1)
        chosen = np.bincount(np.argpartition(keys, k, axis=1)[:, :k].ravel(), minlength=experts)
        most.append((chosen > 0).reshape(ranks, -1).sum(axis=1).max())
        copies.append(chosen.reshape(ranks, -1).sum(axis=1).max() / (tokens * k / ranks))
    assert float(busiest(experts, k, tokens, spread, ranks, limit)) == pytest.approx(np.mean(most), rel=0.06)
    assert float(uneven(experts, k, tokens, spread, ranks, limit)) == pytest.approx(np.mean(copies), rel=0.12)


@given(st.integers(1, 512), st.integers(1, 100_000), st.floats(0.0, 2.0), st.integers(1, 64), st.data())
def test_the_busiest_rank_has_the_mean_or_more(experts, tokens, spread, ranks, data):
    k = data.draw(st.integers(1, experts))
    found, mean = float(busiest(experts, k, tokens, spread, ranks)), float(touched(experts, k, tokens, spread)) / ranks
    assert mean * (1 - 1e-6) <= found <= experts / ranks * (1 + 1e-9)


def test_ranks_are_uneven_where_nothing_balances_them():
    """DeepSeek-V3's 256 experts on 8 ranks, v^2 = 1: (7/8) (8/256 + f 8/(T k)), the largest of 8 at 1.4342 sigma."""
    spread, limit = math.sqrt(math.log(2.0)), Groups(8, 4)
    many = uneven(256, 8, 1e9, spread, 8, limit)
    assert many == pytest.approx(1 + 1.4342 * math.sqrt(7 / 8 / 32), rel=1e-3)
    # 16 tokens: f = 1 + 7 x 4 / (4 x 7) = 2, so 2 x 8 / 128 more
    few = uneven(256, 8, 16, spread, 8, limit)
    assert few == pytest.approx(1 + 1.4342 * math.sqrt(7 / 8 * (1 / 32 + 1 / 8)), rel=1e-3)
    # all copies on one rank at the most; one rank is even
    assert uneven(256, 8, 1e-9, spread, 8, limit) == 8
    assert uneven(256, 8, 16, spread, 1, limit) == 1


def test_the_law_is_between_published_extremes():
    """1.11 with a balancer and 2.56 without over 32 ranks (TensorRT-LLM, blog04): the law, no fit to it, is between."""
    low, high = (float(uneven(256, 8, 1e6, s, 32, Groups(8, 4))) for s in load_spread()[1:])
    assert 1.11 < low < high < 2.56
