"""Grouped-query and multi-head attention: FLOP, bytes and collectives of its operators.

h heads and h_kv key-value heads of dimension d_h; a chip holds ceil(h / tp) and ceil(h_kv / tp) of them, so key
and value heads repeat when tp exceeds h_kv. Decode context parallel shares the sequence among those repeats.
Source: GQA, arXiv:2305.13245, sec. 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlaplan.costs import dequantise, kv
from mlaplan.costs.collectives import Group
from mlaplan.costs.kernels import Work
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine, Op
from mlaplan.costs.merge import local_tokens, merge_parts
from mlaplan.costs.mla import DecodeShape, PrefillShape
from mlaplan.costs.roofline import Numeric, ceil_div, pad_to

if TYPE_CHECKING:
    from mlaplan.specs.model import GQA


def core_flops(pairs: Numeric, heads: Numeric, head_dim: int) -> Numeric:
    """Scores and outputs: 2 h (d_h + d_h) for each query-key pair. [FLOP]"""
    return 4.0 * pairs * heads * head_dim


def local_kv_share(a: GQA, tp: Numeric) -> Numeric:
    """Part of all key-value heads that one chip holds: ceil(h_kv / tp) / h_kv."""
    return ceil_div(a.kv_heads, tp) / a.kv_heads


def _projections(m: Machine, a: GQA, t: Numeric, h: Numeric, h_kv: Numeric, s: DecodeShape | PrefillShape) -> list[Op]:
    d, width = m.model.hidden_size, (h + 2 * h_kv) * a.head_dim
    return [
        m.norm("attention_norm", t, s.attn_tp, s.dp),
        m.gemm("qkv_proj", "attention", t, d, width),
        m.elementwise("rope_cache", 2 * t * width * ACTIVATION_BYTES),
    ]


def _output(m: Machine, a: GQA, t: Numeric, h: Numeric, s: DecodeShape | PrefillShape) -> list[Op]:
    d = m.model.hidden_size
    return [
        m.gemm("o_proj", "attention", t, h * a.head_dim, d),
        m.sum_over_tp("attention_all_reduce", t, s.attn_tp, s.dp),
    ]


def of_context(m: Machine, a: GQA, s: DecodeShape) -> list[Op]:
    """The core, whose time goes with the cached context."""
    h, h_kv, t = ceil_div(a.heads, s.attn_tp), ceil_div(a.kv_heads, s.attn_tp), s.tokens
    heads, context = np.minimum(h * s.dcp, a.heads), local_tokens(s.context, s.dcp, m.engine.merge.interleave)
    row = kv.row_bytes(a, m.kv_dtype) * local_kv_share(a, s.attn_tp)
    flops = core_flops(s.tokens * context, heads, a.head_dim)
    # the query heads of one key-value head share its tile rows
    rows = pad_to(s.q_len * ceil_div(heads, h_kv), min(m.tile.attention_rows, 16)) * h_kv
    padded = core_flops(s.batch * pad_to(context, m.tile.kv_tokens), rows, a.head_dim)
    nbytes = s.batch * context * row + 2 * t * heads * a.head_dim * ACTIVATION_BYTES
    core = m.core("attention_core", "gqa_decode", Work(flops, padded, nbytes))
    read = s.batch * context * kv.scaled_numbers(a, m.kv_dtype) * local_kv_share(a, s.attn_tp)
    return [core, *dequantise.in_core(m, core, read, s.q_len * ceil_div(heads, h_kv))]


def decode_ops(m: Machine, a: GQA, s: DecodeShape) -> list[Op]:
    """One attention block of a decode step."""
    h, h_kv, t = ceil_div(a.heads, s.attn_tp), ceil_div(a.kv_heads, s.attn_tp), s.tokens
    heads = np.minimum(h * s.dcp, a.heads)
    ops = _projections(m, a, t, h, h_kv, s)
    core = of_context(m, a, s)
    if s.layout == "sequence_sharded":
        ops += [
            m.collective("dcp_query_gather", "all_gather", t * heads * a.head_dim * ACTIVATION_BYTES, Group(s.dcp)),
            *core,
            *(m.collective(*p, Group(s.dcp)) for p in merge_parts(m.engine.merge, t, heads, a.head_dim, s.dcp)),
        ]
    else:
        ops += core
    return ops + _output(m, a, t, h, s)


def prefill_ops(m: Machine, a: GQA, s: PrefillShape) -> list[Op]:
    """One attention block of a prefill step."""
    h, h_kv, t = ceil_div(a.heads, s.attn_tp), ceil_div(a.kv_heads, s.attn_tp), s.tokens / s.cp
    flops = core_flops(s.pairs / s.cp, h, a.head_dim)
    nbytes = (2 * t * h + 2 * s.kv_tokens * h_kv) * a.head_dim * ACTIVATION_BYTES
    kv_width = 2 * h_kv * a.head_dim * ACTIVATION_BYTES
    core = m.core("attention_core", "gqa_prefill", Work(flops, flops, nbytes), "bf16")
    earlier, share = s.kv_tokens - s.tokens, local_kv_share(a, s.attn_tp)  # the step's own keys are in 16 bit
    return [
        *_projections(m, a, t, h, h_kv, s),
        m.collective("kv_gather", "all_gather", s.tokens * kv_width, Group(s.cp)),
        *dequantise.before_prefill(m, a, core, earlier, s.pairs / s.cp, h, share),
        core,
        *_output(m, a, t, h, s),
    ]
