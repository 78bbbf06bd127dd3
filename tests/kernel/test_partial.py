"""The (output, log-sum-exp) contract and the merge."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.kernel import core
from mlaplan.kernel.partial import (
    ConventionError,
    Partial,
    check_bounds,
    empty,
    from_kernel,
    merge,
    merge_in_order,
)
from mlaplan.kernel.tolerance import difference, fp32_core_tolerance

from .cases import assert_lse_same, assert_same, random_core, textbook


@given(
    cuts=st.lists(st.integers(0, 120), max_size=6),
    order=st.randoms(use_true_random=False),
    std=st.sampled_from([1.0, 4.0, 8.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_split_anywhere_and_merged_in_any_order_is_the_whole(cuts, order, std, seed):
    q, cache, scale = random_core(seed, 2, 5, 120, logit_std=std)
    bounds = [0, *sorted(cuts), 120]
    parts = [core.absorbed(q, cache[a:b], 32, scale) for a, b in pairwise(bounds)]
    order.shuffle(parts)
    got = merge(parts)
    out, lse = textbook(q, cache, 32, scale)
    assert_same(got.out, out)
    assert_lse_same(got.lse, lse)


@given(seed=st.integers(0, 2**32 - 1))
def test_merge_is_associative_and_empty_is_its_identity(seed):
    q, cache, scale = random_core(seed, 1, 4, 30)
    a, b, c = (core.absorbed(q, part, 32, scale) for part in np.split(cache, [7, 19]))
    left, right = merge([merge([a, b]), c]), merge([a, merge([c, b])])
    assert_same(left.out, right.out)
    assert_lse_same(left.lse, right.lse)
    same = merge([empty((1, 4), 32), a, empty((1, 4), 32)])
    assert_same(same.out, a.out)
    assert_lse_same(same.lse, a.lse)


def test_a_constant_on_all_logits_shifts_the_lse_and_nothing_else():
    q, cache, scale = random_core(2, 1, 3, 20)
    base = core.absorbed(q, cache, 32, scale)
    q[..., -1], cache[:, -1] = 1.0, 0.0
    zero = core.absorbed(q, cache, 32, scale)
    cache[:, -1] = 5.0 / scale
    shifted = core.absorbed(q, cache, 32, scale)
    assert_same(shifted.out, zero.out)
    assert np.allclose(shifted.lse - zero.lse, 5.0, rtol=1e-12)
    assert base.lse.shape == zero.lse.shape


def test_all_partials_empty_stay_empty_whatever_their_memory_holds():
    garbage = Partial(np.full((2, 3, 4), np.nan), np.full((2, 3), -np.inf))
    q, cache, scale = random_core(0, 2, 3, 9, d_c=4)
    real = core.absorbed(q, cache, 4, scale)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing = merge([garbage, garbage])
        something = merge([garbage, real, garbage])
    assert not nothing.out.any()
    assert np.isneginf(nothing.lse).all()
    assert np.array_equal(something.out, real.out)


def test_merge_by_slice_id_is_bitwise_the_same_for_every_arrival():
    q, cache, scale = random_core(4, 1, 16, 512)
    q, cache = q.astype(np.float32), cache.astype(np.float32)
    parts = {i: core.absorbed(q, part, 32, scale) for i, part in enumerate(np.split(cache, 16))}
    rng = np.random.default_rng(0)
    reference = merge_in_order(parts)
    for _ in range(10):
        arrived = {i: parts[i] for i in rng.permutation(16)}
        again = merge_in_order(arrived)
        assert np.array_equal(again.out, reference.out)
        assert np.array_equal(again.lse, reference.lse)


@pytest.mark.parametrize("gap", [0.0, 1e3, 1e4, 3e4])
def test_slice_maxima_far_apart_are_exact_in_fp64_and_finite_in_fp32(gap):
    """Given logits, so that what is tested is the softmax: a logit of 3e4 is itself only known to 4e-12."""
    rng = np.random.default_rng(6)
    logits = 4 * rng.standard_normal((5, 64)) + np.repeat([0.0, gap, 0.5 * gap, -gap], 16)
    values = rng.standard_normal((64, 32))

    def attend(first, last, dtype):
        p, v = logits[:, first:last].astype(dtype), values[first:last].astype(dtype)
        total, lse = core.exponentiate(p)
        return Partial(p @ v / total[:, None], lse)

    got = merge([attend(i, i + 16, np.float64) for i in (0, 16, 32, 48)])
    wide = np.exp(logits.astype(np.longdouble) - logits.max(axis=1, keepdims=True))
    assert_same(got.out, (wide @ values / wide.sum(axis=1, keepdims=True)).astype(np.float64))
    narrow = merge([attend(i, i + 16, np.float32) for i in (48, 0, 32, 16)])
    assert np.isfinite(narrow.out).all()
    assert np.isfinite(narrow.lse).all()
    assert difference(narrow.out, got.out).relative <= fp32_core_tolerance(np.abs(logits).max())


# --- conventions


def test_base_2_and_plus_infinity_are_converted_on_import():
    q, cache, scale = random_core(1, 2, 3, 40)
    natural = core.absorbed(q, cache, 32, scale)
    lse = natural.lse.copy()
    lse[0, 1] = -np.inf
    out = natural.out.copy()
    out[0, 1] = np.nan  # left uninitialised
    foreign = from_kernel(out, np.where(np.isneginf(lse), np.inf, lse / np.log(2)), base="2", empty="+inf")
    assert_lse_same(foreign.lse, lse)
    assert not foreign.out[0, 1].any()
    assert np.array_equal(foreign.out[1], natural.out[1])
    assert from_kernel(out.astype(np.float32), lse.astype(np.float32)).lse.dtype == np.float32


@pytest.mark.parametrize(
    ("lse", "message"),
    [(np.array([0.0, np.inf]), r"\+inf"), (np.array([0.0, np.nan]), "NaN"), (np.zeros(3), "do not belong")],
)
def test_a_partial_refuses_what_it_can_see_to_be_wrong(lse, message):
    with pytest.raises(ConventionError, match=message):
        Partial(np.zeros((2, 4)), lse)


def test_import_refuses_unknown_conventions_and_undeclared_infinities():
    with pytest.raises(ConventionError, match="base"):
        from_kernel(np.zeros((2, 4)), np.zeros(2), base="10")
    with pytest.raises(ConventionError, match=r"\+inf"):
        from_kernel(np.zeros((2, 4)), np.array([np.inf, 0]))


def test_a_base_2_lse_taken_for_a_natural_one_is_a_validation_error():
    q, cache, scale = random_core(3, 2, 4, 50, logit_std=8)
    logits = scale * np.einsum("qhd,td->qht", q, cache)
    keys = np.full((2, 4), 50)
    right = core.absorbed(q, cache, 32, scale)
    check_bounds(right, logits.max(axis=2), keys)
    with pytest.raises(ConventionError, match="base 2 instead of e"):
        check_bounds(Partial(right.out, right.lse / np.log(2)), logits.max(axis=2), keys)


def test_a_finite_lse_for_a_row_without_keys_is_a_validation_error():
    keys = np.array([3, 0])
    with pytest.raises(ConventionError, match="without visible keys"):
        check_bounds(Partial(np.zeros((2, 4)), np.array([0.5, 0.0])), np.zeros(2), keys)
    with pytest.raises(ConventionError, match="with visible keys"):
        check_bounds(Partial(np.zeros((2, 4)), np.array([-np.inf, -np.inf])), np.zeros(2), keys)
    check_bounds(Partial(np.zeros((2, 4)), np.array([0.5, -np.inf])), np.zeros(2), keys)


def test_merging_nothing_is_an_error_and_not_a_guess():
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])
