"""How many experts tokens touch, by hand where there are as many experts as quantiles, and in the limits."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs.routing import BINS, load_spread, spread_of, touched


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
