"""Rotations: relative, norm-preserving, the two pairings apart, YaRN's bounds and factor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.kernel.norm import layer_norm, rms_norm
from mlaplan.kernel.rope import (
    HALF_SPLIT,
    INTERLEAVED,
    Yarn,
    inverse_frequencies,
    logit_scale,
    mscale,
    rope_tables,
    rotate,
)


@given(
    pairing=st.sampled_from([INTERLEAVED, HALF_SPLIT]),
    shift=st.integers(0, 500),
    seed=st.integers(0, 2**32 - 1),
)
def test_logits_depend_on_distance_alone(pairing, shift, seed):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((1, 16)), rng.standard_normal((1, 16))
    tables = rope_tables(1000, 16)
    near = rotate(q, tables, np.array([40]), pairing) @ rotate(k, tables, np.array([7]), pairing).T
    far = rotate(q, tables, np.array([40 + shift]), pairing) @ rotate(k, tables, np.array([7 + shift]), pairing).T
    assert np.allclose(near, far, rtol=0, atol=1e-11)


@pytest.mark.parametrize("pairing", [INTERLEAVED, HALF_SPLIT])
def test_rotation_keeps_norms_and_does_nothing_at_position_zero(pairing):
    x = np.random.default_rng(0).standard_normal((5, 8))
    tables = rope_tables(100, 8)
    assert np.array_equal(rotate(x, tables, np.zeros(5, int), pairing), x)
    turned = rotate(x, tables, np.arange(50, 55), pairing)
    assert np.allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(x, axis=1), rtol=1e-14)


def test_interleaved_rotates_as_complex_numbers_and_half_split_as_its_permutation():
    x = np.random.default_rng(1).standard_normal((6, 8))
    at, tables = np.arange(6) + 11, rope_tables(20, 8)
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * (tables.cos[at] + 1j * tables.sin[at])
    got = rotate(x, tables, at, INTERLEAVED)
    assert np.allclose(got[:, 0::2], turned.real)
    assert np.allclose(got[:, 1::2], turned.imag)
    evens_then_odds = [0, 2, 4, 6, 1, 3, 5, 7]
    half = rotate(x[:, evens_then_odds], tables, at, HALF_SPLIT)
    assert np.allclose(half, got[:, evens_then_odds])
    assert not np.allclose(rotate(x, tables, at, HALF_SPLIT), got)


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_ramps_between():
    yarn = Yarn(factor=40.0, original_positions=4096)
    plain, blended = inverse_frequencies(64, 10000.0), inverse_frequencies(64, 10000.0, yarn)
    # V3: correction range 10 to 23 of 32 pairs
    assert np.array_equal(blended[:11], plain[:11])
    assert np.allclose(blended[23:], plain[23:] / 40, rtol=1e-15)
    ratio = plain / blended
    assert np.all(np.diff(ratio[10:24]) > 0)


def test_the_logit_scale_of_v3_is_that_of_192_columns_and_carries_mscale_squared():
    assert logit_scale(192) == 192**-0.5
    yarn = Yarn(factor=40.0, mscale=1.0, mscale_all_dim=1.0)
    assert np.isclose(mscale(40.0, 1.0), 1.3688879454)
    assert np.isclose(logit_scale(192, yarn) / 192**-0.5, 1.3688879454**2)
    # V2: mscale_all_dim 0.707; the factor that older implementations left out
    assert np.isclose(logit_scale(192, Yarn(mscale=0.707, mscale_all_dim=0.707)) * 192**0.5, 1.5896, atol=1e-4)
    assert mscale(1.0, 1.0) == 1.0


def test_tables_are_fp64_and_may_start_anywhere():
    whole, tail = rope_tables(300, 8), rope_tables(100, 8, first_position=200)
    assert whole.cos.dtype == np.float64
    assert np.array_equal(whole.cos[200:], tail.cos)
    amplitude = rope_tables(3, 8, yarn=Yarn(mscale=1.0, mscale_all_dim=0.5)).cos[0, 0]
    assert np.isclose(amplitude, mscale(40, 1.0) / mscale(40, 0.5))


def test_norms_against_their_definition():
    x = np.random.default_rng(2).standard_normal((3, 10)) * 4 + 1
    weight, bias = np.linspace(0.5, 2, 10), np.linspace(-1, 1, 10)
    expected = [row / np.sqrt((row**2).mean() + 1e-6) * weight for row in x]
    assert np.allclose(rms_norm(x, weight), expected, rtol=1e-14)
    expected = [(row - row.mean()) / np.sqrt(row.var() + 1e-6) * weight + bias for row in x]
    assert np.allclose(layer_norm(x, weight, bias), expected, rtol=1e-13)
    assert rms_norm(x.astype(np.float32), weight.astype(np.float32)).dtype == np.float32
