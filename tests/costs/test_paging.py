"""Blocks of a paged cache: expectations against counting, by hand first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import paging


def test_a_fixed_length_by_hand() -> None:
    """4610 tokens are 289 blocks of 16, 14 tokens of which are empty."""
    one = paging.fixed(4610)
    assert paging.blocks(one, 16) == 289
    assert paging.waste_tokens(one, 16) == pytest.approx(14)


def test_uniform_lengths_over_whole_blocks_waste_half_a_block_less_half_a_token() -> None:
    """1..160 in blocks of 16: each rest from 0 to 15 is as likely."""
    assert paging.waste_tokens(paging.uniform(1, 160), 16) == pytest.approx(7.5)


def test_geometric_lengths_by_their_sum() -> None:
    """Sum over k of P(L = k) ceil(k / b), cut where nothing is left."""
    k = np.arange(1, 200_000)
    p = (1 - 1 / 300) ** (k - 1) / 300
    assert paging.blocks(paging.geometric(300), 64) == pytest.approx(float((p * -(-k // 64)).sum()), rel=1e-9)
    assert paging.whole_buckets(paging.geometric(300), 64) == pytest.approx(float((p * (k // 64)).sum()), rel=1e-9)
    assert paging.blocks(paging.geometric(1), 64) == 1


def test_a_watermark_keeps_whole_blocks_back() -> None:
    """67,138 tokens are 4,196 blocks of 16; 1 % kept free leaves 4,154."""
    assert paging.usable_blocks(67_138, 16) == 4196
    assert paging.usable_blocks(67_138, 16, 0.01) == 4154


def test_a_bucket_by_hand() -> None:
    """3000 tokens in buckets of 1024: two are found, 952 are computed again, 72 of a third would be empty."""
    found = paging.bucket(paging.fixed(3000), 1024)
    assert (found.recomputed, found.padding, found.lookups) == (952, 72, 3)


@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 512))
def test_uniform_waste_is_that_of_counting_and_less_than_a_block(low: int, more: int, block: int) -> None:
    lengths = paging.uniform(low, low + more)
    counted = np.mean([-(-n // block) * block - n for n in range(low, low + more + 1)])
    waste = float(paging.waste_tokens(lengths, block))
    assert waste == pytest.approx(counted, abs=1e-6)
    assert -1e-6 <= waste <= block - 1 + 1e-6


@given(st.floats(1, 1e5), st.integers(1, 1024))
def test_larger_blocks_waste_no_less_of_a_geometric_length(mean: float, block: int) -> None:
    sizes = np.array([block, 2 * block])
    one, two = paging.waste_tokens(paging.geometric(mean), sizes)
    assert -1e-6 * mean <= one <= two + 1e-6 * mean


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 300))
def test_observed_lengths_are_averaged(values: list[int], size: int) -> None:
    found = paging.bucket(paging.observed(np.array(values), "a trace"), size)
    assert found.recomputed == pytest.approx(np.mean([v % size for v in values]), abs=1e-6)
    assert found.padding == pytest.approx(np.mean([-v % size for v in values]), abs=1e-6)
