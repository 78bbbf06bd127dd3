"""Agreement with transformers' DeepseekV32Attention: indexer scores, the selection, sparse attention."""

from __future__ import annotations

import numpy as np
import pytest

from mlaplan.kernel import block, sparse
from mlaplan.kernel.rope import rope_tables
from mlaplan.kernel.tolerance import FP64, difference

from . import modules
from .modules import REDUCED, RELEASED, torch

v32 = pytest.importorskip("transformers.models.deepseek_v32.modeling_deepseek_v32", reason=modules.MISSING)
transformers = pytest.importorskip("transformers", reason=modules.MISSING)

ROPE = RELEASED["DeepSeek-V3"]
TOKENS, TOP_K, INDEX_HEADS, INDEX_DIM = 90, 24, 64, 32


@pytest.fixture
def module(monkeypatch):
    monkeypatch.setattr(v32.DeepseekV32RMSNorm, "forward", modules.exact_rms_norm)
    # fp64 scores: the module multiplies queries and keys as fp32
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self.double())
    config = modules.configuration(
        transformers.DeepseekV32Config,
        REDUCED,
        ROPE,
        "sdpa",
        index_topk=TOP_K,
        index_n_heads=INDEX_HEADS,
        index_head_dim=INDEX_DIM,
    )
    attention = v32.DeepseekV32Attention(config, 0).double().eval()
    modules.fill(attention, seed=7)
    return attention


def indexer_of(attention) -> sparse.IndexerWeights:
    p = {name: value.detach().numpy() for name, value in attention.indexer.named_parameters()}
    return sparse.IndexerWeights(
        w_iq=p["wq_b.weight"].T.reshape(REDUCED.query_input, INDEX_HEADS, INDEX_DIM),
        w_ik=p["wk.weight"].T,
        k_norm=p["k_norm.weight"],
        k_bias=p["k_norm.bias"],
        w_w=p["weights_proj.weight"].T,
    )


def ours_of(attention, x: np.ndarray, ids: np.ndarray | None):
    """Sparse block output of a whole prompt, and the selection it used. x [T, d]"""
    tables = rope_tables(TOKENS, REDUCED.qk_rope_head_dim, ROPE.theta, ROPE.yarn)
    weights = modules.weights_of(attention, REDUCED, np.float64)
    env = modules.setting_of(REDUCED, ROPE, tables)
    at = np.arange(TOKENS)
    c_q = block.query_latents(x[None], weights, env)
    indexer = indexer_of(attention)
    scores = sparse.index_scores(
        x,
        sparse.index_queries(c_q[0], at, indexer, tables),
        sparse.index_keys(x, at, indexer, tables),
        indexer,
    )
    if ids is None:
        ids = sparse.select(scores, at[None, :] <= at[:, None], TOP_K)
    q_latent = block.absorb(block.queries(c_q, [at], weights, env), weights, env)[0]
    cache = block.cache_rows(x[None], [at], weights, env)[0]
    o_latent = sparse.sparse_absorbed(q_latent, cache, ids, REDUCED.kv_lora_rank, env.scale)
    o = block.expand_output(o_latent.out[None], weights, env)
    return block.output(o, weights, env)[0], ids


def run(attention, x: np.ndarray):
    """The module's output, and the ids its indexer chose."""
    tables = rope_tables(TOKENS, REDUCED.qk_rope_head_dim, ROPE.theta, ROPE.yarn)
    cos, sin = (torch.from_numpy(np.concatenate([t] * 2, axis=1))[None] for t in (tables.cos, tables.sin))
    chosen = []
    handle = attention.indexer.register_forward_hook(lambda _m, _in, out: chosen.append(out.numpy()))
    mask = modules.causal(TOKENS, TOKENS, torch.float64)
    with torch.no_grad():
        u = attention(torch.from_numpy(x)[None], (cos, sin), mask, position_ids=torch.arange(TOKENS)[None])[0]
    handle.remove()
    return u[0].numpy(), chosen[0][0]


def hidden() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((TOKENS, REDUCED.hidden_size))


def masked(ids: np.ndarray) -> np.ndarray:
    """Ids of the future, which the module picks where fewer than k keys are visible and then masks again."""
    return np.where(ids <= np.arange(TOKENS)[:, None], ids, sparse.NOTHING)


def test_sparse_attention_given_the_modules_selection(module):
    x = hidden()
    expected, ids = run(module, x)
    got, _ = ours_of(module, x, masked(ids))
    assert max(difference(g, e).relative for g, e in zip(got, expected, strict=True)) <= FP64


def test_the_same_keys_are_selected(module):
    """With 64 indexer heads no two scores tie, and the sets are equal for every query."""
    x = hidden()
    expected, ids = run(module, x)
    got, ours = ours_of(module, x, None)
    for mine, theirs in zip(ours, masked(ids), strict=True):
        assert set(mine[mine >= 0]) == set(theirs[theirs >= 0])
    assert difference(got, expected).relative <= FP64


def test_a_top_k_of_the_whole_prompt_is_dense(module):
    x = hidden()
    module.indexer.index_topk = 2048
    expected, ids = run(module, x)
    assert ids.shape[1] == TOKENS
    tables = rope_tables(TOKENS, REDUCED.qk_rope_head_dim, ROPE.theta, ROPE.yarn)
    dense, _ = block.step(
        x[None],
        [np.zeros((0, REDUCED.cache_dim))],
        modules.weights_of(module, REDUCED, np.float64),
        modules.setting_of(REDUCED, ROPE, tables),
    )
    assert difference(dense[0], expected).relative <= FP64
