"""Multi-head Latent Attention: FLOP, bytes and collectives of its operators, absorbed and naive.

Symbols of the paper: h heads on this chip, d the hidden size, d_q and d_c the query and KV latent ranks, d_n and
d_r the head dimensions without and with rotary embedding, d_v the value head dimension, B sequences, q query
tokens each, S cached tokens.

Decode is absorbed: q is taken into latent space with W_UK, scores and outputs live there, W_UV brings the output
back, and the cache is read once for all heads. Prefill is naive: keys and values are expanded per head, which
costs fewer FLOP when there are many queries per key.
Source: DeepSeek-V2, arXiv:2405.04434, sec. 2.1 and appendix C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.costs import dequantise, kv
from mlaplan.costs.collectives import Group
from mlaplan.costs.kernels import Work
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine, Op
from mlaplan.costs.merge import local_tokens, merge_parts
from mlaplan.costs.roofline import Numeric, ceil_div, pad_to
from mlaplan.costs.sparse import indexer_ops, sparse_core

if TYPE_CHECKING:
    from mlaplan.specs.chip import Padding
    from mlaplan.specs.model import MLA

SCORE_BYTES = 4.0  # partial scores are summed in fp32


class DecodeShape(NamedTuple):
    """One decode micro-batch on one attention-DP rank."""

    batch: Numeric  # sequences
    q_len: Numeric  # query tokens per sequence: 1, or 1 + MTP depth
    context: Numeric  # cached tokens per sequence
    attn_tp: Numeric  # ranks that share the heads
    dcp: Numeric = 1  # ranks that share the sequence
    layout: str = "replicated"
    dp: Numeric = 1  # attention-DP ranks, which some kernels are not used beside

    @property
    def tokens(self) -> Numeric:
        return self.batch * self.q_len


class PrefillShape(NamedTuple):
    """One prefill step of `tokens` new tokens on one attention-DP rank."""

    tokens: Numeric
    pairs: Numeric  # causal query-key pairs
    kv_tokens: Numeric  # new and earlier tokens whose keys are needed
    attn_tp: Numeric
    cp: Numeric = 1  # ranks that share the tokens of each sequence
    sparse_pairs: Numeric = 0.0  # pairs left when each query keeps top-k keys
    sequences: Numeric = 1.0  # prompts in the step
    dp: Numeric = 1


# ---- formulas ----


def core_flops(batch: Numeric, q_len: Numeric, context: Numeric, heads: Numeric, d_c: Numeric, d_r: Numeric) -> Numeric:
    """Scores and outputs of the absorbed core. [FLOP]

        F = 2 B q S h (d_c + d_r) + 2 B q S h d_c

    Softmax is not counted (below 1 % of the products at d_c = 512). Source: arXiv:2405.04434, eq. 9 to 19.
    """
    return 2.0 * batch * q_len * context * heads * (2 * d_c + d_r)


def core_bytes(
    batch: Numeric, q_len: Numeric, context: Numeric, heads: Numeric, d_c: int, d_r: int, row_bytes: Numeric
) -> Numeric:
    """The cache once for all heads, queries in and latent outputs out. [B]

    bytes = B S row + B q h (d_c + d_r + d_c) 2
    """
    return batch * context * row_bytes + batch * q_len * heads * (2 * d_c + d_r) * ACTIVATION_BYTES


def exchanged_score_bytes(
    batch: Numeric, q_len: Numeric, context: Numeric, heads: Numeric, latent_row: Numeric
) -> Numeric:
    """What the core of a latent-sharded cache moves beyond `core_bytes`: its scores leave the chip half way. [B]

    bytes = B q h S 2 x 4 + B S latent_row

    Partial scores are written in fp32 and read after the all-reduce; by then the latent columns that were read as
    keys have left the chip's own memories, and are read again as values.
    """
    return 2.0 * batch * q_len * heads * context * SCORE_BYTES + batch * context * latent_row


def decode_work(
    batch: Numeric, q_len: Numeric, context: Numeric, heads: Numeric, d_c: Numeric, d_r: Numeric, row_bytes: Numeric,
    tile: Padding,
) -> Work:  # fmt: skip
    """The absorbed core as its kernel sees it: rows q_len x heads and keys in whole tiles, a block per row tile."""
    rows, keys = pad_to(q_len * heads, tile.attention_rows), pad_to(context, tile.kv_tokens)
    blocks = batch * rows / tile.attention_rows
    return Work(
        core_flops(batch, q_len, context, heads, d_c, d_r), core_flops(batch, 1, keys, rows, d_c, d_r),
        core_bytes(batch, q_len, context, heads, d_c, d_r, row_bytes),
        core_bytes(batch, q_len, 0, heads, d_c, d_r, 0.0), blocks, blocks * keys / tile.kv_tokens,
    )  # fmt: skip


def prefill_work(
    sequences: Numeric, queries: Numeric, pairs: Numeric, keys: Numeric, heads: Numeric, widths: tuple[int, int, int],
    tile: int | None,
) -> Work:  # fmt: skip
    """The naive causal core over `pairs` query-key pairs, heads of widths (d_n, d_r, d_v).

    `queries` new tokens and `keys` keys over all `sequences`. In tiles of t x t each query row of a sequence of n
    tokens has its mean keys, those up to the end of the last tile and half a tile beyond the diagonal:
        P = n_t (pairs / n + (n_t - n) / 2 + t / 2),  n_t = n in whole tiles
    """
    each = queries / sequences
    width = sum(widths)
    nbytes = (queries + keys) * heads * width * ACTIVATION_BYTES
    flops = naive_core_flops(pairs, heads, *widths)
    if tile is None:
        return Work(flops, flops, nbytes, nbytes)
    whole = pad_to(each, tile)
    padded = sequences * whole * (pairs / queries + (whole - each) / 2.0 + tile / 2.0)
    blocks = sequences * heads * whole / tile
    longest = naive_core_flops(tile * pad_to(keys / sequences, tile), 1.0, *widths)
    return Work(flops, naive_core_flops(padded, heads, *widths), nbytes, nbytes, blocks, 0.0, longest)


def naive_core_flops(pairs: Numeric, heads: Numeric, d_n: int, d_r: int, d_v: int) -> Numeric:
    """2 h (d_n + d_r + d_v) for each query-key pair. [FLOP]"""
    return 2.0 * pairs * heads * (d_n + d_r + d_v)


def query_gather_bytes(heads: int, d_c: int, d_r: int) -> float:
    """Bytes of one query token in latent space, all heads: h (d_c + d_r) 2. [B]"""
    return heads * (d_c + d_r) * ACTIVATION_BYTES


def output_merge_bytes(heads: int, d_c: int, out_bytes: float = 4.0, lse_bytes: float = 4.0) -> float:
    """Bytes of one token's partial output and its log-sum-exp, all heads: h (d_c w + w_lse). [B]"""
    return heads * (d_c * out_bytes + lse_bytes)


def gather_crossover_tokens(attention: MLA, out_bytes: float = 4.0, lse_bytes: float = 4.0) -> float:
    """Context above which gathering q and merging O moves fewer bytes than gathering the bf16 latent cache.

    S* = (bytes of q + bytes of O and LSE) / bytes of a cached row
    """
    a = attention
    moved = query_gather_bytes(a.heads, a.kv_lora_rank, a.qk_rope_head_dim)
    moved += output_merge_bytes(a.heads, a.kv_lora_rank, out_bytes, lse_bytes)
    return moved / kv.row_bytes(a, "bf16")


# ---- operators ----


def decode_ops(m: Machine, a: MLA, s: DecodeShape) -> list[Op]:
    """One absorbed attention block, from its norm to the reduction of its output."""
    d, d_c, d_n, d_v = m.model.hidden_size, a.kv_lora_rank, a.qk_nope_head_dim, a.v_head_dim
    h, t = ceil_div(a.heads, s.attn_tp), s.tokens
    # a rank that shares no heads (prefill context parallel) has all of them already
    heads = np.minimum(h * s.dcp, a.heads)
    ops = [*_projections(m, a, t, h, s), m.per_head("absorb_q", t, h, d_n, d_c)]
    if a.sparse:
        ops += indexer_ops(m, a, t, s.batch * s.q_len * s.context, s.batch * s.context)
        ops += _between_ranks(m, a, s, heads, sparse_core(m, a, t, heads, s.context, s.dcp))
    elif s.layout == "latent_sharded":
        ops += _latent_sharded_core(m, a, s)
    else:
        ops += _between_ranks(m, a, s, heads, _core(m, a, s, heads))
    ops += [
        m.per_head("absorb_o", t, h, d_c, d_v),
        m.gemm("o_proj", "attention", t, h * d_v, d),
        m.sum_over_tp("attention_all_reduce", t, s.attn_tp, s.dp),
    ]
    return ops


def of_context(m: Machine, a: MLA, s: DecodeShape) -> list[Op]:
    """Of `decode_ops` those whose time goes with the cached context."""
    heads = np.minimum(ceil_div(a.heads, s.attn_tp) * s.dcp, a.heads)
    if a.sparse:
        scores = indexer_ops(m, a, s.tokens, s.batch * s.q_len * s.context, s.batch * s.context)[2:]
        return [*scores, *sparse_core(m, a, s.tokens, heads, s.context, s.dcp)]
    if s.layout == "latent_sharded":
        return _latent_sharded_core(m, a, s)[1:3]
    return _core(m, a, s, heads)


def _projections(m: Machine, a: MLA, t: Numeric, h: Numeric, s: DecodeShape | PrefillShape) -> list[Op]:
    """Norm, down- and up-projections, rotary embedding, cache write: what comes before the core."""
    d, latent = m.model.hidden_size, a.kv_lora_rank + a.qk_rope_head_dim
    q_width = h * (a.qk_nope_head_dim + a.qk_rope_head_dim)
    ops = [m.norm("attention_norm", t, s.attn_tp, s.dp)]
    if a.q_lora_rank:
        ops += [
            m.gemm("qkv_a", "attention", t, d, a.q_lora_rank + latent),
            m.elementwise("latent_norm_rope", 2 * t * (a.q_lora_rank + latent + q_width) * ACTIVATION_BYTES),
            m.gemm("q_b", "attention", t, a.q_lora_rank, q_width),
        ]
    else:
        ops += [
            m.gemm("q_proj", "attention", t, d, q_width),
            m.gemm("kv_a", "attention", t, d, latent),
            m.elementwise("latent_norm_rope", 2 * t * (latent + q_width) * ACTIVATION_BYTES),
        ]
    return ops


def _core(m: Machine, a: MLA, s: DecodeShape, heads: Numeric) -> list[Op]:
    """Replicated cache, or the sequence over dcp ranks."""
    context = local_tokens(s.context, s.dcp, m.engine.merge.interleave)
    work = decode_work(
        s.batch, s.q_len, context, heads, a.kv_lora_rank, a.qk_rope_head_dim, kv.row_bytes(a, m.kv_dtype), m.tile
    )
    cast = m.cache_cast(s.batch * context * (a.kv_lora_rank + a.qk_rope_head_dim))
    return [*cast, m.core("attention_core", "mla_decode", work)]


def _between_ranks(m: Machine, a: MLA, s: DecodeShape, heads: Numeric, core: list[Op]) -> list[Op]:
    """Decode context parallelism around a core: queries of all heads gathered, partial outputs merged."""
    if s.layout != "sequence_sharded":
        return core
    d_c, group = a.kv_lora_rank, Group(s.dcp)
    gathered = s.tokens * heads * (d_c + a.qk_rope_head_dim) * ACTIVATION_BYTES
    merged = merge_parts(m.engine.merge, s.tokens, heads, d_c, s.dcp)
    return [
        m.collective("dcp_query_gather", "all_gather", gathered, group),
        *core,
        *(m.collective(*sent, group) for sent in merged),
    ]


def _latent_sharded_core(m: Machine, a: MLA, s: DecodeShape) -> list[Op]:
    """The latent's dimensions over the TP ranks: every rank scores all heads on its slice of d_c.

    Partial scores [B q, H, S] are all-reduced in fp32 before the softmax, which cuts the core in two. Rotary keys
    are stored whole on every rank, and each scores its slice of them. q and the outputs change between head and
    dimension shards by two all-to-alls.
    """
    n, d_c, d_r = s.attn_tp, a.kv_lora_rank, a.qk_rope_head_dim
    row, latent_row = (of(a, m.kv_dtype) / n for of in (kv.row_bytes, kv.latent_row_bytes))
    work = decode_work(s.batch, s.q_len, s.context, a.heads, d_c / n, d_r / n, row, m.tile)
    scores = exchanged_score_bytes(s.batch, s.q_len, s.context, a.heads, latent_row)
    work = work._replace(nbytes=work.nbytes + scores)
    asked, moved = (s.tokens * a.heads * width * ACTIVATION_BYTES for width in (d_c + d_r, d_c))
    return [
        m.collective("latent_query_exchange", "all_to_all", asked / n, Group(n)),
        m.core("attention_core", "mla_decode", work),
        m.collective("latent_score_all_reduce", "all_reduce", s.tokens * a.heads * s.context * SCORE_BYTES, Group(n)),
        m.collective("latent_output_exchange", "all_to_all", moved / n, Group(n)),
    ]


def prefill_ops(m: Machine, a: MLA, s: PrefillShape) -> list[Op]:
    """One naive attention block over a step of new tokens, earlier tokens re-expanded from the cache."""
    d, d_r, d_n, d_v = m.model.hidden_size, a.qk_rope_head_dim, a.qk_nope_head_dim, a.v_head_dim
    h, t = ceil_div(a.heads, s.attn_tp), s.tokens / s.cp
    ops = _projections(m, a, t, h, s)
    latent = (a.kv_lora_rank + d_r) * ACTIVATION_BYTES
    ops.append(m.collective("latent_gather", "all_gather", s.tokens * latent, Group(s.cp)))
    if a.sparse:
        ops += indexer_ops(m, a, t, s.pairs / s.cp, s.kv_tokens)
        ops += _sparse_prefill(m, a, s, t, h)
    else:
        tile = m.chip.kernel("mla_prefill", "bf16").tile
        work = prefill_work(s.sequences, t, s.pairs / s.cp, s.kv_tokens, h, (d_n, d_r, d_v), tile)
        ops += [
            m.gemm("kv_b", "attention", s.kv_tokens, a.kv_lora_rank, h * (d_n + d_v)),
            # the rotary part joins the keys of every head: read d_n, write d_n + d_r
            m.elementwise("key_join", s.kv_tokens * h * (2 * d_n + d_r) * ACTIVATION_BYTES),
            m.core("attention_core", "mla_prefill", work, "bf16"),
        ]
    ops += [
        m.gemm("o_proj", "attention", t, h * d_v, d),
        m.sum_over_tp("attention_all_reduce", t, s.attn_tp, s.dp),
    ]
    return ops


def _sparse_prefill(m: Machine, a: MLA, s: PrefillShape, t: Numeric, h: Numeric) -> list[Op]:
    """Absorbed core over the selected keys of each query."""
    d_c, d_r = a.kv_lora_rank, a.qk_rope_head_dim
    pairs = s.sparse_pairs / s.cp
    flops = core_flops(1, 1, pairs, h, d_c, d_r)
    padded = core_flops(1, 1, pairs, pad_to(h, m.tile.attention_rows), d_c, d_r)
    nbytes = core_bytes(1, 1, s.kv_tokens, 0, d_c, d_r, dequantise.prefill_row_bytes(m, a, h))
    nbytes = nbytes + t * h * (2 * d_c + d_r) * ACTIVATION_BYTES
    core = m.core("attention_core", "mla_prefill", Work(flops, padded, nbytes), "bf16")
    return [
        m.per_head("absorb_q", t, h, a.qk_nope_head_dim, d_c),
        *dequantise.before_prefill(m, a, core, s.kv_tokens, pairs, h),
        core,
        m.per_head("absorb_o", t, h, d_c, a.v_head_dim),
    ]


def attention_weight_elements(a: Any, hidden: int, replicated_down: bool = True) -> tuple[float, float]:
    """(up-projections, all weights divided by TP) of one block, in elements: what TP saves and DP repeats.

    The latent down-projections q_a and kv_a count only when they are divided too.
    """
    qk = a.qk_nope_head_dim + a.qk_rope_head_dim
    up = (a.q_lora_rank or hidden) * a.heads * qk + a.kv_lora_rank * a.heads * (a.qk_nope_head_dim + a.v_head_dim)
    whole = up + a.heads * a.v_head_dim * hidden
    if not replicated_down:
        whole += hidden * ((a.q_lora_rank or 0) + a.kv_lora_rank + a.qk_rope_head_dim)
    return float(up), float(whole)


def break_even_tokens(weight_bytes: float, row_bytes: float) -> float:
    """Cached tokens per TP group above which repeating the KV over TP costs more than DP's repeated weights.

    S* = W / row        both sides are bytes that one block's decode reads per step
    """
    return weight_bytes / row_bytes
