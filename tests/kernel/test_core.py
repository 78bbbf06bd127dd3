"""Naive, absorbed and the textbook formula give the same numbers, under every causal mask."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.kernel import block, core
from mlaplan.kernel.arithmetic import Arithmetic, Ledger
from mlaplan.kernel.tolerance import difference, fp32_core_tolerance, lse_tolerance
from mlaplan.kernel.visibility import step_positions, visible

from .cases import SMALL, assert_lse_same, assert_same, random_block, random_core, setting, textbook

LENGTHS = [0, 1, 63, 64, 65, 127, 128, 129, 977]


@given(
    q_len=st.sampled_from([1, 2, 3, 4, 17]),
    heads=st.sampled_from([1, 3, 6, 9, 16, 63]),
    keys=st.sampled_from(LENGTHS),
    std=st.sampled_from([0.1, 1.0, 4.0, 8.0, 32.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_absorbed_core_is_the_textbook_formula(q_len, heads, keys, std, seed):
    q, cache, scale = random_core(seed, q_len, heads, keys, logit_std=std)
    at, keys_at = step_positions(max(keys - q_len, 0), q_len), np.arange(keys)
    got = core.absorbed(q, cache, 32, scale, at, keys_at)
    out, lse = textbook(q, cache, 32, scale, keys_at[None, :] <= at[:, None])
    assert_same(got.out, out)
    assert_lse_same(got.lse, lse)


@given(
    q_len=st.integers(1, 4),
    keys=st.sampled_from(LENGTHS[1:]),
    gap=st.sampled_from([0.0, 1e3, 1e4]),
    std=st.sampled_from([1.0, 4.0, 32.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_fp32_core_stays_within_eps_of_the_largest_logit(q_len, keys, gap, std, seed):
    q, cache, scale = random_core(seed, q_len, 6, keys, logit_std=std)
    q, cache = q.astype(np.float32), cache.astype(np.float32)
    q[..., -1], cache[:, -1] = 1, 0  # the last rope column carries the gap between the two halves
    cache[keys // 2 :, -1] = gap / scale
    exact = core.absorbed(q.astype(np.float64), cache.astype(np.float64), 32, scale)
    got = core.absorbed(q, cache, 32, scale)
    assert got.out.dtype == got.lse.dtype == np.float32
    logits = scale * np.einsum("qhd,td->qht", q.astype(np.float64), cache.astype(np.float64))
    bound = fp32_core_tolerance(np.abs(logits).max())
    assert difference(got.out, exact.out).relative <= bound
    # with few keys an lse may be a sum of large terms that cancel: known to eps * terms, not to eps * lse
    lse_bound = lse_tolerance(exact.lse, np.float32) if keys >= 63 else bound
    assert np.all(np.abs(got.lse - exact.lse) <= lse_bound)


@given(
    lengths=st.lists(st.sampled_from([0, 1, 5, 64, 130]), min_size=1, max_size=3),
    q_len=st.integers(1, 5),
    std=st.sampled_from([1.0, 4.0, 8.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_naive_and_absorbed_blocks_agree(lengths, q_len, std, seed):
    x, caches, weights = random_block(seed, tuple(lengths), q_len, logit_std=std)
    env = setting()
    absorbed_u, absorbed_rows = block.step(x, caches, weights, env)
    naive_u, naive_rows = block.step(x, caches, weights, env, expand=True)
    assert_same(absorbed_u, naive_u)
    assert all(np.array_equal(a, n) for a, n in zip(absorbed_rows, naive_rows, strict=True))


def test_naive_lse_is_the_absorbed_lse():
    x, (cache,), weights = random_block(3, (70,), 3)
    env = setting()
    at = step_positions(67, 3)
    q = block.queries(block.query_latents(x, weights, env), [at], weights, env)
    expanded = core.naive(q[0], cache, weights, env.scale, at, np.arange(70))
    latent = core.absorbed(block.absorb(q, weights, env)[0], cache, 32, env.scale, at, np.arange(70))
    assert_lse_same(expanded.lse, latent.lse)


def test_rows_of_minus_infinity_and_empty_caches_are_zero_without_a_warning():
    q, cache, scale = random_core(0, 3, 4, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing = core.absorbed(q, cache[:0], 32, scale)
        future = core.absorbed(q, cache, 32, scale, np.arange(3), np.arange(100, 110))
        mixed = core.absorbed(q, cache, 32, scale, np.array([99, 104, 200]), np.arange(100, 110))
    for got in (nothing, future):
        assert not got.out.any()
        assert np.isneginf(got.lse).all()
    assert not mixed.out[0].any()
    assert np.isneginf(mixed.lse[0]).all()
    assert np.isfinite(mixed.lse[1:]).all()


def test_one_key_is_returned_as_it_is():
    q, cache, scale = random_core(1, 1, 4, 1, logit_std=32)
    got = core.absorbed(q, cache, 32, scale)
    assert np.allclose(got.out, cache[0, :32], rtol=1e-15, atol=0)
    assert_lse_same(got.lse[0], scale * (q[0] @ cache[0]))


def test_the_causal_mask_is_aligned_bottom_right():
    mask = visible(step_positions(3, 2), np.arange(5))
    assert np.array_equal(mask, [[True, True, True, True, False], [True] * 5])


@pytest.mark.parametrize("bug", ["all see all", "top left", "off by one", "one frontier"])
def test_a_wrong_mask_of_a_multi_token_step_is_seen(bug):
    """Sensitivity: each of the known mask mistakes moves some row by far more than the tolerance."""
    q, cache, scale = random_core(5, 3, 4, 40, logit_std=2)
    at = step_positions(37, 3)
    wrong = {
        "all see all": np.full(3, 39),
        "top left": np.arange(3),
        "off by one": at - 1,
        "one frontier": np.full(3, 37),
    }[bug]
    right = core.absorbed(q, cache, 32, scale, at, np.arange(40)).out
    assert (
        max(
            difference(g, r).relative
            for g, r in zip(core.absorbed(q, cache, 32, scale, wrong, np.arange(40)).out, right, strict=True)
        )
        > 1e-3
    )


@given(seed=st.integers(0, 2**32 - 1), keys=st.integers(1, 200))
def test_properties_of_softmax_attention(seed, keys):
    q, cache, scale = random_core(seed, 1, 5, keys)
    base = core.absorbed(q, cache, 32, scale)
    shuffled = np.random.default_rng(seed).permutation(keys)
    permuted = core.absorbed(q, cache[shuffled], 32, scale)
    assert_same(permuted.out, base.out)
    assert_lse_same(permuted.lse, base.lse)
    doubled = core.absorbed(q, np.concatenate([cache, cache]), 32, scale)
    assert_same(doubled.out, base.out)
    assert_lse_same(doubled.lse, base.lse + np.log(2))
    span = 1e-12 * np.abs(cache).max()
    assert np.all(base.out <= cache[:, :32].max(axis=0) + span)
    assert np.all(base.out >= cache[:, :32].min(axis=0) - span)


def test_a_rotation_of_the_latent_changes_nothing():
    """(c Q)(W^UK Q)^T = c W^UK^T for orthogonal Q: the basis of the latent is free."""
    rng = np.random.default_rng(8)
    q, cache, scale = random_core(8, 2, 4, 60)
    rotation = np.linalg.qr(rng.standard_normal((32, 32)))[0]
    turned_q = np.concatenate([q[..., :32] @ rotation, q[..., 32:]], axis=-1)
    turned_cache = np.concatenate([cache[:, :32] @ rotation, cache[:, 32:]], axis=-1)
    base = core.absorbed(q, cache, 32, scale)
    turned = core.absorbed(turned_q, turned_cache, 32, scale)
    assert_same(turned.out @ rotation.T, base.out)


def test_logits_of_random_weights_have_the_spread_asked_for():
    """The blandness trap: with logits near zero a plain average of slices passes for attention."""
    for std in (1.0, 4.0, 8.0):
        x, (cache,), weights = random_block(11, (400,), 8, logit_std=std)
        env = setting(yarn=None)
        at = step_positions(400, 8)
        q = block.absorb(block.queries(block.query_latents(x, weights, env), [at], weights, env), weights, env)[0]
        logits = env.scale * np.einsum("qhd,td->qht", q, cache)
        assert 0.7 * std < logits.std() < 1.4 * std


@given(workers=st.integers(2, 6), batch=st.integers(1, 4), heads=st.integers(1, 9))
def test_threads_change_nothing(workers, batch, heads):
    rng = np.random.default_rng(workers)
    qs = [rng.standard_normal((2, heads, 40)) for _ in range(batch)]
    caches = [rng.standard_normal((length, 40)) for length in rng.integers(0, 50, batch)]
    alone = core.absorbed_batch(qs, caches, 32, 0.3)
    together = core.absorbed_batch(qs, caches, 32, 0.3, workers=workers)
    for a, t in zip(alone, together, strict=True):
        assert_same(t.out, a.out)
        assert_lse_same(t.lse, a.lse)


def test_flops_of_the_core_are_the_published_ones():
    """2 n_h T (2 d_c + d_h^R) absorbed, and per expanded key 2 n_h (d_h + d_h^R + d_v) plus the expansion."""
    s = SMALL
    x, caches, weights = random_block(0, (50,))
    for expand in (False, True):
        ledger = Ledger()
        env = setting(how=Arithmetic(ledger=ledger))
        block.step(x, caches, weights, env, expand=expand)
        t = 51
        if expand:
            assert ledger.flops["core"] == 2 * s.heads * t * (s.qk_head_dim + s.v_head_dim)
            assert ledger.flops["k_up"] == 2 * s.heads * t * s.kv_lora_rank * s.qk_nope_head_dim
            assert ledger.flops["v_up"] == 2 * s.heads * t * s.kv_lora_rank * s.v_head_dim
        else:
            assert ledger.flops["core"] == 2 * s.heads * t * (s.cache_dim + s.kv_lora_rank)
            assert ledger.read_elements["core"] == t * s.cache_dim + s.heads * s.cache_dim
            assert ledger.written_elements["core"] == s.heads * s.kv_lora_rank
            assert ledger.flops["q_absorb"] == 2 * s.heads * s.qk_nope_head_dim * s.kv_lora_rank
            assert ledger.flops["v_up"] == 2 * s.heads * s.v_head_dim * s.kv_lora_rank
        assert ledger.flops["q_a"] == 2 * s.hidden_size * s.query_input
        assert ledger.flops["q_b"] == 2 * s.query_input * s.heads * s.qk_head_dim
        assert ledger.flops["kv_a"] == 2 * s.hidden_size * s.cache_dim
        assert ledger.flops["o_proj"] == 2 * s.heads * s.v_head_dim * s.hidden_size
