"""DeepSeek sparse attention: the indexer that scores every cached token, top-k, and the core over the selection.

The indexer's keys are one fp8 row per token shared by its heads; every rank scores the whole context with all
indexer heads, so tensor parallelism does not divide it. Layers that reuse another layer's selection
(GLM-5.2 "shared") have no indexer operators, only the sparse core.
Source: DeepSeek-V3.2, arXiv:2512.02556, sec. 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlaplan.costs import dequantise, kv
from mlaplan.costs.kernels import Work
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine, Op
from mlaplan.costs.roofline import Numeric, pad_to

if TYPE_CHECKING:
    from mlaplan.specs.model import MLA

SCORE_BYTES = 4.0


def indexer_flops(pairs: Numeric, heads: int, head_dim: int) -> Numeric:
    """2 H_I d_I for each query-key pair (ReLU and the weighted sum over heads not counted). [FLOP]"""
    return 2.0 * pairs * heads * head_dim


def selected(context: Numeric, top_k: int) -> Numeric:
    """Tokens that the core reads per query: min(S, k)."""
    return np.minimum(context, top_k)


def causal_selected_pairs(past: Numeric, new: Numeric, top_k: int) -> Numeric:
    """sum over new queries i of min(past + i, k), i = 1..new, as a closed form on real numbers."""
    edge = np.clip(top_k - past, 0.0, new)  # queries that still see fewer than k keys
    return edge * past + edge * edge / 2.0 + (new - edge) * top_k


def indexer_ops(m: Machine, a: MLA, tokens: Numeric, pairs: Numeric, kv_tokens: Numeric) -> list[Op]:
    """Projections, scores over the whole context, and top-k; nothing where the block has no indexer."""
    ix = a.sparse.indexer if a.sparse else None
    if ix is None:
        return []
    d = m.model.hidden_size
    flops = indexer_flops(pairs, ix.heads, ix.head_dim)
    nbytes = kv_tokens * kv.indexer_row_bytes(a) + pairs * SCORE_BYTES
    return [
        m.gemm("indexer_q", "indexer", tokens, a.q_lora_rank or d, ix.heads * ix.head_dim),
        m.gemm("indexer_k", "indexer", tokens, d, ix.head_dim + ix.heads),
        m.core("indexer_scores", "indexer", Work(flops, flops, nbytes), "fp8"),
        m.elementwise("indexer_top_k", pairs * SCORE_BYTES),
    ]


def sparse_core(m: Machine, a: MLA, tokens: Numeric, heads: Numeric, context: Numeric, dcp: Numeric = 1) -> list[Op]:
    """Absorbed core over min(S, k) tokens; each query reads and widens its own selection, a rank 1/dcp of it."""
    keys = selected(context, a.sparse.top_k) / dcp  # type: ignore[union-attr]
    width = 2 * a.kv_lora_rank + a.qk_rope_head_dim
    flops = 2.0 * tokens * keys * heads * width
    padded = 2.0 * tokens * keys * pad_to(heads, m.tile.attention_rows) * width
    nbytes = tokens * keys * kv.row_bytes(a, m.kv_dtype) + tokens * heads * width * ACTIVATION_BYTES
    core = m.core("attention_core", "sparse_mla_decode", Work(flops, padded, nbytes))
    return [core, *dequantise.in_core(m, core, tokens * keys * kv.scaled_numbers(a, m.kv_dtype), heads)]
