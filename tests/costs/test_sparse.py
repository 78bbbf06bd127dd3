"""Sparse attention by hand: the indexer reads everything, the core its selection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import mla, sparse

from . import round as r

ROUND = r.model(r.SPARSE)


def decode(context, tp=1, batch=2, kv_dtype="bf16", model=ROUND):
    m = r.machine(model, kv_dtype=kv_dtype)
    return r.named(mla.decode_ops(m, m.model.attention["a"], mla.DecodeShape(batch, 1, context, tp)))


def test_selected():
    assert sparse.selected(50, 100) == 50
    assert sparse.selected(np.array([50, 100, 150]), 100).tolist() == [50, 100, 100]


def test_causal_pairs_left_by_top_k():
    # no cached token, 4 queries that keep at most 2 keys: edge at 2, 2^2/2 + 2 x 2
    assert sparse.causal_selected_pairs(0, 4, 2) == 2 + 4
    # all queries see more than k keys: 4 x 2
    assert sparse.causal_selected_pairs(10, 4, 2) == 8
    # none does: the plain causal 4 x 3 + 4^2/2
    assert sparse.causal_selected_pairs(3, 4, 100) == 12 + 8


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 600))
def test_causal_pairs_are_the_sum_over_queries(past, new, top_k):
    summed = sum(min(past + i, top_k) for i in range(1, new + 1))
    # the closed form is the integral: half a key less per growing query
    growing = min(max(top_k - past, 0), new)
    assert sparse.causal_selected_pairs(past, new, top_k) == pytest.approx(summed - growing / 2, abs=1e-6)


def test_the_core_stops_growing_at_top_k_and_the_indexer_does_not():
    short, long = decode(100), decode(1000)
    assert short["attention_core"].time_s == long["attention_core"].time_s
    # 2 queries, 100 keys each, 8 heads, 220 numbers
    assert long["attention_core"].flops == 2 * 2 * 100 * 8 * 220
    # 4 heads of 20 over 2 x 1000 pairs; 24 B a key and 4 B a score
    scores = long["indexer_scores"]
    assert scores.flops == 2 * 2000 * 4 * 20
    assert scores.bytes == 2000 * 24 + 2000 * 4
    assert long["indexer_top_k"].bytes == 2000 * 4


def test_tensor_parallel_does_not_divide_the_indexer():
    one, four = decode(1000), decode(1000, tp=4)
    for name in ("indexer_q", "indexer_k", "indexer_scores", "indexer_top_k"):
        assert one[name].time_s == four[name].time_s


def test_each_query_reads_its_own_rows_in_the_caches_width():
    # 2 x 100 rows of 100 + 16 + 40 B
    core = decode(1000, kv_dtype="fp8_ds_mla")["attention_core"]
    assert core.bytes == 200 * 156 + 2 * 8 * 220 * 2


def test_a_layer_that_reuses_a_selection_has_no_indexer():
    shared = r.model(r.MLA | {"sparse": {"top_k": 100, "indexer": None}})
    assert not [name for name in decode(1000, model=shared) if name.startswith("indexer")]


def test_prefill_scores_all_pairs_and_attends_to_the_kept_ones():
    m = r.machine(ROUND)
    shape = mla.PrefillShape(200, 200 * 100, 200, 1, 1, float(sparse.causal_selected_pairs(0, 200, 100)))
    ops = r.named(mla.prefill_ops(m, m.model.attention["a"], shape))
    assert ops["indexer_scores"].flops == 2 * 20_000 * 4 * 20
    # 100^2/2 + 100 x 100 pairs in latent space, no expansion of keys
    assert ops["attention_core"].flops == 2 * 15_000 * 8 * 220
    assert "kv_b" not in ops
