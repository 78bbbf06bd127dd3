"""The V3.2 indexer, top-k selection, and attention over a selection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.kernel import context_parallel, core, sparse
from mlaplan.kernel.partial import merge
from mlaplan.kernel.rope import rope_tables
from mlaplan.kernel.visibility import step_positions

from .cases import assert_lse_same, assert_same, random_core, textbook

HEADS, WIDTH, ROPE, HIDDEN, RANK = 16, 24, 8, 48, 20
TABLES = rope_tables(600, ROPE)


def scored(seed: int, q_len: int, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indexer scores [q_len, keys] with the queries as the newest tokens; their mask and positions."""
    rng = np.random.default_rng(seed)
    weights = sparse.random_indexer(HIDDEN, RANK, HEADS, WIDTH, rng)
    x, c_q = rng.standard_normal((keys, HIDDEN)), rng.standard_normal((q_len, RANK))
    at = step_positions(keys - q_len, q_len)
    k_index = sparse.index_keys(x, np.arange(keys), weights, TABLES)
    q_index = sparse.index_queries(c_q, at, weights, TABLES)
    scores = sparse.index_scores(x[-q_len:], q_index, k_index, weights)
    return scores, np.arange(keys)[None, :] <= at[:, None], at


def test_scores_are_the_published_sum():
    """I[t, s] = sum_j w[t, j] relu(q[t, j] . k[s]), with both scale factors, term by term."""
    rng = np.random.default_rng(0)
    weights = sparse.random_indexer(HIDDEN, RANK, HEADS, WIDTH, rng)
    x, q = rng.standard_normal((2, HIDDEN)), rng.standard_normal((2, HEADS, WIDTH))
    k = rng.standard_normal((5, WIDTH))
    got = sparse.index_scores(x, q, k, weights)
    for t in range(2):
        for s in range(5):
            w = x[t] @ weights.w_w / HEADS**0.5
            expected = sum(w[j] * max(q[t, j] @ k[s] / WIDTH**0.5, 0) for j in range(HEADS))
            assert got[t, s] == pytest.approx(expected, rel=1e-12)


def test_rope_turns_the_first_columns_half_split_and_leaves_the_rest():
    rng = np.random.default_rng(1)
    weights = sparse.random_indexer(HIDDEN, RANK, HEADS, WIDTH, rng)
    x = rng.standard_normal((1, HIDDEN))
    here = sparse.index_keys(x, np.array([0]), weights, TABLES)[0]
    there = sparse.index_keys(x, np.array([5]), weights, TABLES)[0]
    assert np.array_equal(here[ROPE:], there[ROPE:])
    half = ROPE // 2
    turned = (here[:half] + 1j * here[half:ROPE]) * (TABLES.cos[5] + 1j * TABLES.sin[5])
    assert np.allclose(there[:half], turned.real)
    assert np.allclose(there[half:ROPE], turned.imag)


@given(
    q_len=st.integers(1, 4),
    keys=st.sampled_from([4, 20, 130]),
    k=st.sampled_from([1, 7, 64, 2048]),
    seed=st.integers(0, 2**32 - 1),
)
def test_selected_keys_are_visible_and_no_better_one_is_left_out(q_len, keys, k, seed):
    scores, mask, at = scored(seed, q_len, keys)
    ids = sparse.select(scores, mask, k)
    assert ids.shape == (q_len, min(k, keys))
    for t in range(q_len):
        chosen = ids[t][ids[t] != sparse.NOTHING]
        assert len(chosen) == len(set(chosen.tolist())) == min(k, at[t] + 1)
        assert np.all(chosen <= at[t])
        left = np.setdiff1d(np.flatnonzero(mask[t]), chosen)
        if len(left):
            assert scores[t, chosen].min() >= scores[t, left].max()


@given(
    q_len=st.integers(1, 4),
    keys=st.sampled_from([4, 65, 130]),
    extra=st.sampled_from([0, 1, 2000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_selection_of_everything_is_dense_attention(q_len, keys, extra, seed):
    q, cache, scale = random_core(seed, q_len, 4, keys)
    scores, mask, at = scored(seed, q_len, keys)
    ids = sparse.select(scores, mask, keys + extra)
    got = sparse.sparse_absorbed(q, cache, ids, 32, scale)
    dense = core.absorbed(q, cache, 32, scale, at, np.arange(keys))
    assert_same(got.out, dense.out)
    assert_lse_same(got.lse, dense.lse)


@given(k=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_sparse_attention_is_attention_over_the_selection(k, seed):
    q, cache, scale = random_core(seed, 2, 4, 60)
    scores, mask, _ = scored(seed, 2, 60)
    ids = sparse.select(scores, mask, k)
    chosen = np.zeros((2, 60), bool)
    for t in range(2):
        chosen[t, ids[t][ids[t] >= 0]] = True
    out, lse = textbook(q, cache, 32, scale, chosen)
    got = sparse.sparse_absorbed(q, cache, ids, 32, scale)
    assert_same(got.out, out)
    assert_lse_same(got.lse, lse)


def test_equal_scores_go_to_the_earlier_key():
    ids = sparse.select(np.array([[1.0, 3.0, 1.0, 1.0, 0.0]]), None, 3)
    assert ids.tolist() == [[0, 1, 2]]


def test_ids_outside_the_cache_select_nothing():
    q, cache, scale = random_core(2, 2, 3, 10)
    bad = np.array([[-(2**31), 3, -1, 10, 2**31 - 1, 7], [-1, -1, -123456, 10, 11, 2**31 - 1]])
    got = sparse.sparse_absorbed(q, cache, bad, 32, scale)
    expected = core.absorbed(q[:1], cache[[3, 7]], 32, scale)
    assert_same(got.out[0], expected.out[0])
    assert not got.out[1].any()
    assert np.isneginf(got.lse[1]).all()


@given(
    ranks=st.sampled_from([1, 2, 4, 8]),
    interleave=st.sampled_from([1, 3, 16]),
    k=st.sampled_from([1, 5, 16, 300]),
    q_len=st.integers(1, 3),
    ties=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_top_k_of_the_ranks_top_k_is_the_global_one(ranks, interleave, k, q_len, ties, seed):
    """And attention over local selections, with ids mapped to local rows, merges to the same output."""
    scores, mask, at = scored(seed, q_len, 70)
    if ties:
        scores = np.round(scores * 2)
    positions = [context_parallel.local_positions(70, r, ranks, interleave) for r in range(ranks)]
    ids = sparse.select_sharded([scores[:, p] for p in positions], positions, at, k)
    assert np.array_equal(ids, sparse.select(scores, mask, k))

    q, cache, scale = random_core(seed, q_len, 3, 70)
    partials = [sparse.sparse_absorbed(q, cache[p], sparse.to_local(ids, p), 32, scale) for p in positions]
    got, whole = merge(partials), sparse.sparse_absorbed(q, cache, ids, 32, scale)
    assert_same(got.out, whole.out)
    assert_lse_same(got.lse, whole.lse)


def test_global_ids_taken_for_local_ones_are_seen():
    q, cache, scale = random_core(0, 1, 3, 64)
    scores, mask, _ = scored(0, 1, 64)
    ids = sparse.select(scores, mask, 16)
    positions = [context_parallel.local_positions(64, r, 2, 1) for r in range(2)]
    wrong = merge([sparse.sparse_absorbed(q, cache[p], ids, 32, scale) for p in positions])
    right = sparse.sparse_absorbed(q, cache, ids, 32, scale)
    assert np.abs(wrong.out - right.out).max() > 0.05


def test_sparse_and_dense_differ_loudly_when_k_is_small():
    q, cache, scale = random_core(0, 1, 4, 130)
    scores, mask, _ = scored(0, 1, 130)
    some = sparse.sparse_absorbed(q, cache, sparse.select(scores, mask, 16), 32, scale)
    assert np.abs(some.out - core.absorbed(q, cache, 32, scale).out).max() > 0.1
