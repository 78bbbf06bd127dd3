"""Every partition gives the numbers of the whole, from ranks that hold their share alone."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.kernel import (
    block,
    context_parallel,
    data_parallel,
    latent_parallel,
    pipeline_parallel,
    tensor_parallel,
    traffic,
)
from mlaplan.kernel.arithmetic import Arithmetic, Ledger
from mlaplan.kernel.case import random_case
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.shares import ShareError, weight_elements
from mlaplan.kernel.tolerance import difference

from .cases import SMALL, assert_same, random_block, setting

SEEDS = st.integers(0, 2**32 - 1)
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 3, 31, 64, 129]), min_size=1, max_size=3).map(tuple)
WIDTHS = traffic.Widths()


def poison(*holders: object) -> None:
    """Overwrite arrays that the ranks were cut from: a rank that kept a view of one now computes NaN."""
    for holder in holders:
        if isinstance(holder, np.ndarray):
            holder[...] = np.nan
        elif isinstance(holder, list):
            poison(*holder)
        elif holder is not None and not isinstance(holder, float):
            poison(*(getattr(holder, f.name) for f in fields(holder)))


def counted() -> tuple[block.Setting, Ledger]:
    ledger = Ledger()
    return setting(how=Arithmetic(ledger=ledger)), ledger


@settings(max_examples=30)
@given(ranks=st.sampled_from([1, 2, 4, 8]), lengths=LENGTHS, q_len=st.integers(1, 4), seed=SEEDS)
def test_tensor_parallel(ranks, lengths, q_len, seed):
    x, caches, weights = random_block(seed, lengths, q_len)
    env, ledger = counted()
    reference, after = block.step(x, caches, weights, setting())
    group = tensor_parallel.split(weights, caches, ranks)
    poison(weights, caches)
    u, group = tensor_parallel.step(x, group, env)
    assert_same(u, reference)
    for rank in group:
        assert rank.weights.heads == SMALL.heads // ranks
        assert all(np.allclose(c, a, rtol=0, atol=1e-13) for c, a in zip(rank.caches, after, strict=True))
    expected = traffic.output_all_reduce_bytes(SMALL, len(x), q_len, WIDTHS)
    assert ledger.sent_bytes() == pytest.approx(2 * (ranks - 1) / ranks * expected)


@settings(max_examples=60)
@given(
    ranks=st.sampled_from([1, 2, 4, 8]),
    interleave=st.sampled_from([1, 2, 3, 16, 64, 1000]),
    lengths=LENGTHS,
    q_len=st.integers(1, 4),
    exchange=st.sampled_from([context_parallel.GATHER_SCATTER, context_parallel.ALL_TO_ALL]),
    seed=SEEDS,
)
def test_decode_context_parallel_with_every_interleave(ranks, interleave, lengths, q_len, exchange, seed):
    x, caches, weights = random_block(seed, lengths, q_len)
    env, ledger = counted()
    reference, after = block.step(x, caches, weights, setting())
    group = context_parallel.split(weights, caches, ranks, interleave)
    poison(weights, caches)
    u, group = context_parallel.step(x, group, env, exchange)
    assert_same(u, reference)
    for rank in group:
        for shard, whole in zip(rank.shards, after, strict=True):
            mine = context_parallel.local_positions(len(whole), rank.rank, ranks, interleave)
            assert np.allclose(shard, whole[mine], rtol=0, atol=1e-13)
    share, b = (ranks - 1) / ranks, len(x)
    expected = {
        "query_gather": share * traffic.query_gather_bytes(SMALL, b, q_len, WIDTHS),
        "o_proj": 2 * share * traffic.output_all_reduce_bytes(SMALL, b, q_len, WIDTHS),
    }
    scatter = share * traffic.latent_output_scatter_bytes(SMALL, b, q_len, WIDTHS)
    if exchange == context_parallel.GATHER_SCATTER:
        expected["lse_gather"] = share * traffic.lse_gather_bytes(SMALL, b, q_len, ranks, WIDTHS)
        expected["output_scatter"] = scatter
    else:
        expected["lse_exchange"] = share * traffic.lse_exchange_bytes(SMALL, b, q_len, WIDTHS)
        expected["output_exchange"] = scatter
    assert {n: ledger.sent_bytes(n) for n in expected} == pytest.approx(expected)
    assert ledger.sent_bytes() == pytest.approx(sum(expected.values()))


@given(
    length=st.integers(0, 500),
    ranks=st.integers(1, 9),
    interleave=st.integers(1, 70),
)
def test_local_length_is_the_number_of_owned_positions(length, ranks, interleave):
    held = [len(context_parallel.local_positions(length, r, ranks, interleave)) for r in range(ranks)]
    assert held == [context_parallel.local_length(length, r, ranks, interleave) for r in range(ranks)]
    assert sum(held) == length


@given(
    cached=st.integers(0, 300),
    q_len=st.integers(1, 6),
    ranks=st.integers(1, 8),
    interleave=st.integers(1, 20),
)
def test_each_query_of_a_step_sees_its_own_number_of_local_keys(cached, q_len, ranks, interleave):
    """Query j of a step sees local_length(cached + j + 1) keys; for I = 1 also by a closed form."""
    total = cached + q_len
    for rank in range(ranks):
        at = context_parallel.local_positions(total, rank, ranks, interleave)
        for j in range(q_len):
            seen = int(np.sum(at <= cached + j))
            assert seen == context_parallel.local_length(cached + j + 1, rank, ranks, interleave)
            if interleave == 1:
                assert seen == max(0, -(-(total - rank - (q_len - 1) + j) // ranks))


def test_ranks_without_a_token_contribute_nothing():
    x, caches, weights = random_block(0, (0, 2), 1)
    group = context_parallel.split(weights, caches, 8, 1)
    assert [len(rank.shards[0]) for rank in group] == [0] * 8
    u, _ = context_parallel.step(x, group, setting())
    assert_same(u, block.step(x, caches, weights, setting())[0])


@settings(max_examples=40)
@given(
    ranks=st.sampled_from([1, 2, 4, 8]),
    rope=st.sampled_from(latent_parallel.ROPE_PLACES),
    lengths=LENGTHS,
    q_len=st.integers(1, 4),
    seed=SEEDS,
)
def test_latent_sharded_with_the_rope_in_every_place(ranks, rope, lengths, q_len, seed):
    x, caches, weights = random_block(seed, lengths, q_len)
    env, ledger = counted()
    reference, after = block.step(x, caches, weights, setting())
    group = latent_parallel.split(weights, caches, ranks, rope)
    poison(weights, caches)
    u, group = latent_parallel.step(x, group, env)
    assert_same(u, reference)
    columns = [rank.shards[0].shape[1] for rank in group]
    latent, rope_dim = SMALL.kv_lora_rank // ranks, SMALL.qk_rope_head_dim
    assert (
        columns
        == {
            "split": [latent + rope_dim // ranks] * ranks,
            "replicated": [latent + rope_dim] * ranks,
            "first": [latent + rope_dim] + [latent] * (ranks - 1),
        }[rope]
    )
    share, b, tokens = (ranks - 1) / ranks, len(x), sum(map(len, after))
    expected = {
        "latent_query_exchange": share * traffic.latent_query_exchange_bytes(SMALL, b, q_len, ranks, WIDTHS),
        "latent_score_all_reduce": 2 * share * traffic.score_all_reduce_bytes(SMALL, q_len, tokens, WIDTHS),
        "latent_output_exchange": share * traffic.latent_output_exchange_bytes(SMALL, b, q_len, ranks, WIDTHS),
        "o_proj": 2 * share * traffic.output_all_reduce_bytes(SMALL, b, q_len, WIDTHS),
    }
    assert {n: ledger.sent_bytes(n) for n in expected} == pytest.approx(expected)
    assert ledger.sent_bytes() == pytest.approx(sum(expected.values()))


def test_rope_added_on_every_rank_is_wrong_by_order_one(monkeypatch):
    x, caches, weights = random_block(1, (40,))
    reference = block.step(x, caches, weights, setting())[0]
    everything = slice(0, SMALL.qk_rope_head_dim)
    monkeypatch.setattr(latent_parallel, "rope_slices", lambda *_: (everything, everything))
    wrong, _ = latent_parallel.step(x, latent_parallel.split(weights, caches, 4, "replicated"), setting())
    assert difference(wrong, reference).relative > 0.05


def test_a_norm_per_latent_shard_is_wrong():
    """RMSNorm over d_c/N columns is another number: norm first, then cut."""
    from mlaplan.kernel.norm import rms_norm

    rng = np.random.default_rng(0)
    c, weight = rng.standard_normal((5, 32)), np.ones(32)
    whole = rms_norm(c, weight)
    cut = np.concatenate([rms_norm(part, np.ones(8)) for part in np.split(c, 4, axis=1)], axis=1)
    assert difference(cut, whole).relative > 0.05


@settings(max_examples=20)
@given(ranks=st.integers(1, 5), lengths=LENGTHS, q_len=st.integers(1, 3), seed=SEEDS)
def test_attention_data_parallel_sends_nothing(ranks, lengths, q_len, seed):
    x, caches, weights = random_block(seed, lengths, q_len)
    env, ledger = counted()
    reference, _ = block.step(x, caches, weights, setting())
    group = data_parallel.split(weights, caches, ranks)
    poison(weights, caches)
    u, group = data_parallel.step(x, group, env)
    assert_same(u, reference)
    assert not ledger.transfers
    assert sorted(b for rank in group for b in rank.requests) == list(range(len(lengths)))


@settings(max_examples=20)
@given(layers=st.integers(1, 5), stages=st.integers(1, 5), q_len=st.integers(1, 3), seed=SEEDS)
def test_pipeline_parallel(layers, stages, q_len, seed):
    rng = np.random.default_rng(seed)
    model = []
    for i in range(layers):
        _, caches, weights = random_block(seed + i, (20, 3))
        model.append(pipeline_parallel.Layer(1 + 0.1 * rng.standard_normal(SMALL.hidden_size), weights, caches))
    h = rng.standard_normal((2, q_len, SMALL.hidden_size))
    if stages > layers:
        with pytest.raises(ValueError, match="cannot fill"):
            pipeline_parallel.split(model, stages)
        return
    reference = h
    for layer in model:
        reference, _ = pipeline_parallel.layer_step(reference, layer, setting())
    parts = pipeline_parallel.split(model, stages)
    poison(*(array for layer in model for array in (layer.norm, layer.weights, layer.caches)))
    env, ledger = counted()
    got, after = pipeline_parallel.step(h, parts, env)
    assert_same(got, reference)
    assert [len(stage) for stage in after] == [len(stage) for stage in parts]
    expected = traffic.stage_boundary_bytes(SMALL, 2, q_len, WIDTHS)
    assert ledger.sent_bytes("stage_boundary") == (stages - 1) * expected


@settings(max_examples=40)
@given(
    heads=st.sampled_from([1, 2, 6, 12]),
    d_c=st.sampled_from([2, 16, 64]),
    nope=st.sampled_from([1, 8, 24]),
    rope=st.sampled_from([2, 8, 12]),
    value=st.sampled_from([1, 8, 20]),
    q_rank=st.sampled_from([None, 1, 10]),
    dtype=st.sampled_from(["fp64", "fp32"]),
    q_len=st.integers(1, 3),
    seed=SEEDS,
)
def test_shapes_and_dtypes(heads, d_c, nope, rope, value, q_rank, dtype, q_len, seed):
    """All partitions by two, for any widths: values unlike keys, no query compression, odd head counts."""
    shapes = Shapes(12, heads, d_c, nope, rope, value, q_rank)
    case = random_case(shapes, 21, batch=2, q_len=q_len, dtype=dtype, logit_std=2.0, seed=seed)
    naive = block.step(case.x, case.caches, case.weights, case.setting, expand=True)[0]
    absorbed = block.step(case.x, case.caches, case.weights, case.setting)[0]
    assert naive.dtype == absorbed.dtype == case.x.dtype
    results = [naive, absorbed]
    if heads % 2 == 0:
        for split, step in (
            (tensor_parallel.split, tensor_parallel.step),
            (latent_parallel.split, latent_parallel.step),
        ):
            results.append(step(case.x, split(case.weights, case.caches, 2), case.setting)[0])
        group = context_parallel.split(case.weights, case.caches, 2, 3)
        results.append(context_parallel.step(case.x, group, case.setting)[0])
    for u in results:
        assert difference(u, case.reference).relative <= case.tolerance


def test_partitions_keep_agreeing_over_several_steps():
    """Ranks live on: four steps in a row, each onto the caches that the one before left."""
    x, caches, weights = random_block(4, (5, 30), 2)
    env = setting()
    whole = caches
    tp = tensor_parallel.split(weights, caches, 4)
    dcp = context_parallel.split(weights, caches, 4, 3)
    latent = latent_parallel.split(weights, caches, 4)
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.standard_normal(x.shape)
        reference, whole = block.step(x, whole, weights, env)
        u, tp = tensor_parallel.step(x, tp, env)
        assert_same(u, reference)
        u, dcp = context_parallel.step(x, dcp, env)
        assert_same(u, reference)
        u, latent = latent_parallel.step(x, latent, env)
        assert_same(u, reference)
    assert [sum(len(r.shards[b]) for r in dcp) for b in range(2)] == [len(c) for c in whole]


def test_context_groups_inside_a_larger_tensor_parallel_group():
    """tp 8, dcp 2: four pairs of ranks, each pair with a quarter of the heads and a whole cache."""
    x, caches, weights = random_block(7, (33, 2), 2)
    reference = block.step(x, caches, weights, setting())[0]
    quarters = [tensor_parallel.head_share(weights, r, 4) for r in range(4)]
    partial_sums = [context_parallel.step(x, context_parallel.split(w, caches, 2, 16), setting())[0] for w in quarters]
    assert_same(sum(partial_sums), reference)


# --- what a rank holds


def test_a_rank_holds_its_share_of_the_weights():
    _, caches, weights = random_block(0, (10,))
    replicated = weights.w_dq.size + weights.q_norm.size + weights.w_dkv.size + weights.kv_norm.size
    divided = weight_elements(weights) - replicated
    for group in (
        tensor_parallel.split(weights, caches, 4),
        context_parallel.split(weights, caches, 4, 1),
        latent_parallel.split(weights, caches, 4),
    ):
        assert [weight_elements(rank.weights) for rank in group] == [replicated + divided // 4] * 4
    assert [weight_elements(r.weights) for r in data_parallel.split(weights, caches, 3)] == [replicated + divided] * 3


def test_a_view_or_a_wrong_share_is_refused():
    x, caches, weights = random_block(0, (12,))
    group = context_parallel.split(weights, caches, 2, 1)
    group[1].shards[0] = caches[0][:6]
    with pytest.raises(ShareError, match="view"):
        context_parallel.step(x, group, setting())
    group[1].shards[0] = caches[0][:7].copy()
    with pytest.raises(ShareError, match="its share is"):
        context_parallel.step(x, group, setting())
    with pytest.raises(ValueError, match="8 heads do not divide over 3 ranks"):
        tensor_parallel.split(weights, caches, 3)
    with pytest.raises(ValueError, match="rope goes one of"):
        latent_parallel.split(weights, caches, 2, "everywhere")
    with pytest.raises(ValueError, match="exchange is"):
        context_parallel.step(x, context_parallel.split(weights, caches, 2, 1), setting(), "broadcast")
