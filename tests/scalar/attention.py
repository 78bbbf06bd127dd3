"""Attention blocks: MLA absorbed and naive, sparse MLA with its indexer, grouped queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .machine import PLAIN_BYTES, WIRE, Case, Ledger, tiles


@dataclass(frozen=True)
class Decode:
    """A micro-batch of one attention-DP rank: sequences, query tokens each, cached tokens each."""

    batch: int
    q_len: int
    context: int
    ranks: int  # that share the heads
    dcp: int = 1
    layout: str = "replicated"
    dp: int = 1


@dataclass(frozen=True)
class Prefill:
    """A step of `tokens` new tokens of prompts with `new` tokens to compute after `past` cached ones."""

    tokens: int
    new: int
    past: int
    ranks: int
    cp: int = 1
    dp: int = 1

    @property
    def pairs(self) -> float:
        """Causal query-key pairs: every new token sees past + half of the new ones."""
        return self.tokens * (self.past + self.new / 2)

    @property
    def keys(self) -> float:
        """Keys that the step needs: of whole prompts, or of a mean chunk of one."""
        if self.tokens >= self.new:
            return self.tokens / self.new * (self.past + self.new)
        return self.past + (self.new + self.tokens) / 2

    def kept_pairs(self, top_k: int) -> float:
        """Pairs left when query i of a prompt keeps min(past + i, k) keys."""
        few = min(max(top_k - self.past, 0), self.new)
        one = few * self.past + few**2 / 2 + (self.new - few) * top_k
        return self.tokens / self.new * one


def cache_row(a: Any, dtype: str) -> float:
    """Bytes of one cached token: latent and rotary key, or keys and values of all KV heads; int8 with scales."""
    if a.kind == "mla" and dtype == "fp8_ds_mla":
        return a.kv_lora_rank * 1 + 4 * 4 + a.qk_rope_head_dim * 2
    numbers = a.kv_lora_rank + a.qk_rope_head_dim if a.kind == "mla" else 2 * a.kv_heads * a.head_dim
    return numbers * PLAIN_BYTES[dtype] + (numbers / 128 * 2 if dtype == "int8" else 0.0)


def latent_columns(a: Any, dtype: str) -> float:
    """Bytes of a cached token without its rotary key: 656-byte rows keep 512 + 16 of them."""
    if dtype == "fp8_ds_mla":
        return a.kv_lora_rank + 4 * 4
    return a.kv_lora_rank * (PLAIN_BYTES[dtype] + (2 / 128 if dtype == "int8" else 0.0))


def indexer_row(a: Any) -> float:
    """fp8 key and its fp32 scale."""
    return a.sparse.indexer.head_dim + 4.0 if a.kind == "mla" and a.sparse and a.sparse.indexer else 0.0


def per_rank(count: int, ranks: int) -> int:
    return -(-count // ranks)


def decode(case: Case, a: Any, s: Decode) -> Ledger:
    return _mla_decode(case, a, s) if a.kind == "mla" else _gqa_decode(case, a, s)


def prefill(case: Case, a: Any, s: Prefill) -> Ledger:
    return _mla_prefill(case, a, s) if a.kind == "mla" else _gqa_prefill(case, a, s)


# ---- MLA ----


def _mla_decode(case: Case, a: Any, s: Decode) -> Ledger:
    out, t, h = Ledger(case), s.batch * s.q_len, per_rank(a.heads, s.ranks)
    _project(out, a, t, h, s)
    out.per_head(h, t, a.qk_nope_head_dim, a.kv_lora_rank)
    if a.sparse:
        _index(out, a, t, t * s.context, s.batch * s.context)
        _selected_core(out, a, t, min(h * s.dcp, a.heads), min(s.context, a.sparse.top_k) / s.dcp)
        _over_ranks(out, a, s, h)
    elif s.layout == "latent_sharded":
        _latent_core(out, a, s)
    else:
        _latent_rows_core(out, a, s, h)
        _over_ranks(out, a, s, h)
    out.per_head(h, t, a.kv_lora_rank, a.v_head_dim)
    _out(out, t, h * a.v_head_dim, s)
    return out


def _project(out: Ledger, a: Any, t: float, h: int, s: Decode | Prefill) -> None:
    """Norm; q and latent down-projections, norm and rotary embedding, q up."""
    d, latent = out.case.model.hidden_size, a.kv_lora_rank + a.qk_rope_head_dim
    q = h * (a.qk_nope_head_dim + a.qk_rope_head_dim)
    out.norm(t, s.ranks, s.dp)
    if a.q_lora_rank:
        out.gemm("attention", t, d, a.q_lora_rank + latent)
        out.move(2 * t * (a.q_lora_rank + latent + q) * WIRE)
        out.gemm("attention", t, a.q_lora_rank, q)
    else:
        out.gemm("attention", t, d, q)
        out.gemm("attention", t, d, latent)
        out.move(2 * t * (latent + q) * WIRE)


def _out(out: Ledger, t: float, width: int, s: Decode | Prefill) -> None:
    """Output projection and the sum over the ranks that share the heads."""
    out.gemm("attention", t, width, out.case.model.hidden_size)
    out.sum_over_tp(t, s.ranks, s.dp)


def _latent_rows_core(out: Ledger, a: Any, s: Decode, h: int) -> None:
    """2 B q S h (2 d_c + d_r) FLOP with rows and keys in whole tiles; the cache once, q in, latent out."""
    case, tile, d_c, d_r = out.case, out.case.chip.padding, a.kv_lora_rank, a.qk_rope_head_dim
    heads, context = min(h * s.dcp, a.heads), longest_share(s.context, s.dcp, case.engine.merge.interleave)
    t = s.batch * s.q_len
    rows, keys = tiles(s.q_len * heads, tile.attention_rows), tiles(context, tile.kv_tokens)
    out.cast(s.batch * context * (d_c + d_r))
    io, blocks = t * heads * (2 * d_c + d_r) * WIRE, s.batch * rows / tile.attention_rows
    out.core(
        "mla_decode",
        2.0 * s.batch * rows * keys * (2 * d_c + d_r),
        s.batch * context * cache_row(a, case.kv_dtype) + io,
        io=io,
        blocks=blocks,
        units=blocks * keys / tile.kv_tokens,
    )


def longest_share(context: int, ranks: int, run: int) -> int:
    """Tokens of the rank with most of them where runs go round: whole rounds and what is left for the first."""
    rounds = context // (ranks * run)
    return rounds * run + min(context - rounds * ranks * run, run)


def merge(out: Ledger, t: float, heads: int, width: int, ranks: int) -> None:
    """Partial outputs of all heads put together, by what the engine sends."""
    m = out.case.engine.merge
    if m.pattern == "a2a":
        out.collective("all_to_all", t * heads * (width * m.out_bytes + m.lse_bytes), ranks)
        return
    out.collective("all_gather", t * heads * ranks * m.lse_bytes, ranks)
    out.collective("reduce_scatter", t * heads * width * m.out_bytes, ranks)


def _over_ranks(out: Ledger, a: Any, s: Decode, h: int) -> None:
    """Queries of all heads gathered before the core, outputs merged after it."""
    if s.layout != "sequence_sharded":
        return
    t, heads = s.batch * s.q_len, min(h * s.dcp, a.heads)
    out.collective("all_gather", t * heads * (a.kv_lora_rank + a.qk_rope_head_dim) * WIRE, s.dcp)
    merge(out, t, heads, a.kv_lora_rank, s.dcp)


def _latent_core(out: Ledger, a: Any, s: Decode) -> None:
    """Every rank scores all heads on its slice of the latent; fp32 scores are summed before the softmax."""
    case, tile, d_c, d_r = out.case, out.case.chip.padding, a.kv_lora_rank / s.ranks, a.qk_rope_head_dim / s.ranks
    t = s.batch * s.q_len
    rows, keys = tiles(s.q_len * a.heads, tile.attention_rows), tiles(s.context, tile.kv_tokens)
    row = cache_row(a, case.kv_dtype) / s.ranks
    io, blocks = t * a.heads * (2 * d_c + d_r) * WIRE, s.batch * rows / tile.attention_rows
    # the all-reduce stands between: scores out and in, and the latent columns a second time as values
    again = 2 * t * a.heads * s.context * 4.0 + s.batch * s.context * latent_columns(a, case.kv_dtype) / s.ranks
    out.core(
        "mla_decode",
        2.0 * s.batch * rows * keys * (2 * d_c + d_r),
        s.batch * s.context * row + io + again,
        io=io,
        blocks=blocks,
        units=blocks * keys / tile.kv_tokens,
    )
    for width in (d_c + d_r, d_c):  # queries to dimension shards, outputs to head shards
        out.collective("all_to_all", t * a.heads * width * WIRE, s.ranks)
    out.collective("all_reduce", t * a.heads * s.context * 4.0, s.ranks)


def _mla_prefill(case: Case, a: Any, s: Prefill) -> Ledger:
    out, t, h = Ledger(case), s.tokens / s.cp, per_rank(a.heads, s.ranks)
    d_n, d_r, d_v = a.qk_nope_head_dim, a.qk_rope_head_dim, a.v_head_dim
    _project(out, a, t, h, s)
    out.collective("all_gather", s.tokens * (a.kv_lora_rank + d_r) * WIRE, s.cp)
    if a.sparse:
        _index(out, a, t, s.pairs / s.cp, s.keys)
        _selected_prefill(out, a, s, t, h)
    else:
        out.gemm("attention", s.keys, a.kv_lora_rank, h * (d_n + d_v))
        out.move(s.keys * h * (d_n + d_n + d_r) * WIRE)
        width, tile = h * (d_n + d_r + d_v), case.chip.kernel("mla_prefill", "bf16").tile
        pairs, io, more = s.pairs / s.cp, (t + s.keys) * width * WIRE, {}
        if tile is not None:
            # query rows in whole tiles, each over its mean keys and what the tiles at the diagonal add
            prompts = max(s.tokens / s.new, 1.0)
            each = t / prompts
            whole = tiles(each, tile)
            more["blocks"] = prompts * h * whole / tile
            more["longest"] = 2.0 * tile * tiles(s.keys / prompts, tile) * width / h
            pairs = prompts * whole * (pairs / t + (whole - each) / 2 + tile / 2)
        out.core("mla_prefill", 2.0 * pairs * width, io, "bf16", io=io, **more)
    _out(out, t, h * d_v, s)
    return out


# ---- sparse MLA ----


def _index(out: Ledger, a: Any, t: float, pairs: float, keys: float) -> None:
    """Indexer projections, scores 2 H_I d_I of every pair, fp32 scores written and read for top-k."""
    ix, d = a.sparse.indexer, out.case.model.hidden_size
    if ix is None:
        return
    out.gemm("indexer", t, a.q_lora_rank or d, ix.heads * ix.head_dim)
    out.gemm("indexer", t, d, ix.head_dim + ix.heads)
    out.core("indexer", 2.0 * pairs * ix.heads * ix.head_dim, keys * indexer_row(a) + pairs * 4.0, "fp8")
    out.move(pairs * 4.0)


def _selected_core(out: Ledger, a: Any, t: int, h: int, keys: float) -> None:
    """Each query reads its own `keys` rows: min(S, k), or a rank's part of them."""
    width = 2 * a.kv_lora_rank + a.qk_rope_head_dim
    rows = tiles(h, out.case.chip.padding.attention_rows)
    nbytes = t * keys * cache_row(a, out.case.kv_dtype) + t * h * width * WIRE
    widened = t * keys * a.kv_lora_rank * blocks_of_64(h) if out.widens() else 0.0
    out.core("sparse_mla_decode", 2.0 * t * keys * rows * width, nbytes, widened=widened)


def blocks_of_64(rows: int) -> int:
    """Each widens its own tile of the cache."""
    return (rows + 63) // 64


def _selected_prefill(out: Ledger, a: Any, s: Prefill, t: float, h: int) -> None:
    """Absorbed core over the selected keys; the cache is read once."""
    width = 2 * a.kv_lora_rank + a.qk_rope_head_dim
    rows = tiles(h, out.case.chip.padding.attention_rows)
    row, wide, pairs = cache_row(a, out.case.kv_dtype), cache_row(a, "bf16"), s.kept_pairs(a.sparse.top_k) / s.cp
    before = out.widens() and h >= out.case.engine.core_mode(out.case.kv_dtype).pass_heads
    nbytes = s.keys * (wide if before else row) + t * h * width * WIRE
    out.per_head(h, t, a.qk_nope_head_dim, a.kv_lora_rank)
    if before:  # the whole context once
        out.widen(s.keys * a.kv_lora_rank, s.keys * (row + wide))
    inside = pairs * a.kv_lora_rank * blocks_of_64(h) if out.widens() and not before else 0.0
    out.core("mla_prefill", 2.0 * pairs * rows * width, nbytes, "bf16", widened=inside)
    out.per_head(h, t, a.kv_lora_rank, a.v_head_dim)


# ---- grouped queries ----


def _gqa_project(out: Ledger, a: Any, t: float, h: int, h_kv: int, s: Decode | Prefill) -> None:
    d, width = out.case.model.hidden_size, (h + 2 * h_kv) * a.head_dim
    out.norm(t, s.ranks, s.dp)
    out.gemm("attention", t, d, width)
    out.move(2 * t * width * WIRE)


def _gqa_decode(case: Case, a: Any, s: Decode) -> Ledger:
    out, t = Ledger(case), s.batch * s.q_len
    h, h_kv, tile = per_rank(a.heads, s.ranks), per_rank(a.kv_heads, s.ranks), case.chip.padding
    heads, context = min(h * s.dcp, a.heads), longest_share(s.context, s.dcp, out.case.engine.merge.interleave)
    _gqa_project(out, a, t, h, h_kv, s)
    # the queries of one KV head fill the rows of its tile together
    rows = h_kv * tiles(s.q_len * per_rank(heads, h_kv), min(tile.attention_rows, 16))
    row = cache_row(a, case.kv_dtype) * h_kv / a.kv_heads
    out.core(
        "gqa_decode",
        4.0 * s.batch * tiles(context, tile.kv_tokens) * rows * a.head_dim,
        s.batch * context * row + 2 * t * heads * a.head_dim * WIRE,
        widened=out.widens()
        * (s.batch * context * 2 * h_kv * a.head_dim * blocks_of_64(s.q_len * per_rank(heads, h_kv))),
    )
    if s.layout == "sequence_sharded":
        out.collective("all_gather", t * heads * a.head_dim * WIRE, s.dcp)
        merge(out, t, heads, a.head_dim, s.dcp)
    _out(out, t, h * a.head_dim, s)
    return out


def _gqa_prefill(case: Case, a: Any, s: Prefill) -> Ledger:
    out, t = Ledger(case), s.tokens / s.cp
    h, h_kv = per_rank(a.heads, s.ranks), per_rank(a.kv_heads, s.ranks)
    _gqa_project(out, a, t, h, h_kv, s)
    out.collective("all_gather", s.tokens * 2 * h_kv * a.head_dim * WIRE, s.cp)
    nbytes = 2 * (t * h + s.keys * h_kv) * a.head_dim * WIRE
    if out.widens():  # what was cached before this step
        numbers = (s.keys - s.tokens) * 2 * h_kv * a.head_dim
        out.widen(numbers, (s.keys - s.tokens) * cache_row(a, case.kv_dtype) * h_kv / a.kv_heads + numbers * WIRE)
    out.core("gqa_prefill", 4.0 * s.pairs / s.cp * h * a.head_dim, nbytes, "bf16")
    _out(out, t, h * a.head_dim, s)
    return out
