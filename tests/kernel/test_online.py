"""Online softmax over slices that arrive in any order, and query chunks that finish in any order."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.kernel import core
from mlaplan.kernel.online import KvSlice, cut, streamed
from mlaplan.kernel.partial import merge
from mlaplan.kernel.query_chunks import InOrder, chunk_bounds
from mlaplan.kernel.visibility import step_positions

from .cases import assert_lse_same, assert_same, random_core, textbook


@given(
    q_len=st.sampled_from([1, 2, 3, 17]),
    keys=st.sampled_from([0, 1, 64, 129, 400]),
    slice_tokens=st.sampled_from([1, 16, 48, 64, 500]),
    order=st.randoms(use_true_random=False),
    std=st.sampled_from([1.0, 4.0, 8.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_slices_in_any_order_give_the_whole(q_len, keys, slice_tokens, order, std, seed):
    q, cache, scale = random_core(seed, q_len, 5, keys, logit_std=std)
    at, keys_at = step_positions(max(keys - q_len, 0), q_len), np.arange(keys)
    slices = cut(cache, slice_tokens)
    order.shuffle(slices)
    got = streamed(q, slices, 32, scale, at)
    out, lse = textbook(q, cache, 32, scale, keys_at[None, :] <= at[:, None])
    assert_same(got.out, out)
    assert_lse_same(got.lse, lse)


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_fully_masked_slice_may_come_first_in_the_middle_or_last(place):
    """Unguarded code subtracts -inf from -inf only if the masked slice comes before any other."""
    q, cache, scale = random_core(3, 2, 6, 40)
    future = KvSlice(np.ones((8, 40)), np.arange(1000, 1008))
    slices = cut(cache, 10)
    slices.insert(place, future)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = streamed(q, slices, 32, scale, step_positions(38, 2))
    reference = core.absorbed(q, cache, 32, scale, step_positions(38, 2), np.arange(40))
    assert_same(got.out, reference.out)
    assert_lse_same(got.lse, reference.lse)


def test_no_slices_empty_slices_and_masked_slices_alone_are_zero():
    q, cache, scale = random_core(3, 2, 6, 4)
    future = KvSlice(cache, np.arange(1000, 1004))
    for slices in ([], [KvSlice(cache[:0], np.arange(0))], [future], [future, future]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = streamed(q, slices, 32, scale, step_positions(5, 2))
        assert not got.out.any()
        assert np.isneginf(got.lse).all()


@pytest.mark.parametrize("descending", [False, True])
def test_slice_maxima_1e4_apart(descending):
    q, cache, scale = random_core(9, 1, 4, 60)
    q[..., -1] = 1
    cache[:, -1] = np.repeat([0.0, 1e4, 2e4], 20) / scale
    slices = cut(cache, 20)
    got = streamed(q, slices[::-1] if descending else slices, 32, scale, np.array([59]))
    last = core.absorbed(q, cache[40:], 32, scale)  # 1e4 below is nothing: exp(-1e4) = 0
    # logits near 2e4 are known to eps * 2e4, not to 1e-12
    assert_same(got.out, last.out, 8 * np.finfo(np.float64).eps * 2e4)
    assert_same(got.lse, last.lse)


@given(
    q_len=st.integers(1, 40),
    chunk=st.sampled_from([1, 7, 32, 96]),
    slice_tokens=st.sampled_from([5, 64]),
    order=st.randoms(use_true_random=False),
    seed=st.integers(0, 2**32 - 1),
)
def test_query_chunks_that_finish_in_any_order_are_joined_in_order(q_len, chunk, slice_tokens, order, seed):
    q, cache, scale = random_core(seed, q_len, 3, 90)
    at = step_positions(90 - q_len, q_len)
    bounds = list(enumerate(chunk_bounds(q_len, chunk)))
    buffer = InOrder(len(bounds))
    order.shuffle(bounds)
    for index, (start, stop) in bounds:
        buffer.put(index, streamed(q[start:stop], cut(cache, slice_tokens), 32, scale, at[start:stop]))
    reference = core.absorbed(q, cache, 32, scale, at, np.arange(90))
    got = buffer.joined()
    assert_same(got.out, reference.out)
    assert_lse_same(got.lse, reference.lse)


def test_the_chunk_buffer_refuses_a_missing_double_or_unknown_chunk():
    q, cache, scale = random_core(0, 1, 2, 5)
    result = core.absorbed(q, cache, 32, scale)
    buffer = InOrder(2)
    buffer.put(1, result)
    with pytest.raises(ValueError, match=r"\[0\] have not finished"):
        buffer.joined()
    with pytest.raises(ValueError, match="finished twice"):
        buffer.put(1, result)
    with pytest.raises(IndexError):
        buffer.put(2, result)
    with pytest.raises(ValueError, match="at least one token"):
        chunk_bounds(5, 0)


def test_split_kv_partials_of_streams_merge_too():
    """Flash-decoding: each worker streams its own share of the slices, then partials merge."""
    q, cache, scale = random_core(13, 3, 4, 200)
    at = step_positions(197, 3)
    slices = cut(cache, 16)
    got = merge([streamed(q, slices[worker::3], 32, scale, at) for worker in range(3)])
    reference = core.absorbed(q, cache, 32, scale, at, np.arange(200))
    assert_same(got.out, reference.out)
    assert_lse_same(got.lse, reference.lse)
