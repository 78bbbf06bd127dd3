"""Latent-sharded cache: the d_c columns of the latent are divided, each rank keeps d_c/N of every token.

Logits are sums over columns, so partial logits add up to the exact ones, before the softmax:

    q . [c ; k^R] = sum_r q_r . c_r  +  q^R . k^R

The rope part must be counted once. `rope` says where it goes:
    "split"       d_h^R/N columns on each rank, part of its partial logits (least memory)
    "replicated"  k^R whole on every rank, added by rank 0 alone
    "first"       k^R on rank 0 only
Adding it on every rank is wrong by order one. RMSNorm is taken over the whole latent before the cut.

    gather          q^C, q^R of all heads     B q n_h (d_h + d_h^R)
    all-reduce      partial logits, fp32      q n_h T               grows with the context
    core            every rank has all probabilities, and its columns of the output
    reduce-scatter  o by heads after W^UV     B q n_h d_v
    all-reduce      u, as in tensor parallelism
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlaplan.kernel import block, core
from mlaplan.kernel.block import Setting
from mlaplan.kernel.collectives import all_gather, all_reduce, reduce_scatter
from mlaplan.kernel.shares import assert_owned, even
from mlaplan.kernel.tensor_parallel import head_share
from mlaplan.kernel.traffic import Widths
from mlaplan.kernel.visibility import step_positions, visible
from mlaplan.kernel.weights import Weights

ROPE_PLACES = ("split", "replicated", "first")


@dataclass(frozen=True, slots=True)
class LatentRank:
    weights: Weights  # W^UQ, W^O: n_h / N heads; W^UK, W^UV: all heads, d_c / N columns
    latent: slice  # columns of c^KV
    rope: slice  # columns of k^R it keeps
    scored_rope: slice  # columns of k^R it adds to the logits
    shards: list[np.ndarray]  # B x [T_b, len(latent) + len(rope)]


def rope_slices(rank: int, ranks: int, rope_dim: int, place: str) -> tuple[slice, slice]:
    """Rope columns that a rank keeps, and those that it adds to its partial logits."""
    nothing, everything = slice(0, 0), slice(0, rope_dim)
    if place == "split":
        width = even(rope_dim, ranks, "rope columns")
        mine = slice(rank * width, (rank + 1) * width)
        return mine, mine
    if place == "replicated":
        return everything, everything if rank == 0 else nothing
    if place == "first":
        mine = everything if rank == 0 else nothing
        return mine, mine
    raise ValueError(f"rope goes one of {', '.join(ROPE_PLACES)}; got {place!r}")


def split(
    weights: Weights, caches: Sequence[np.ndarray], ranks: int, rope: str = "split"
) -> list[LatentRank]:
    d_c = weights.w_uk.shape[2]
    rope_dim = weights.w_dkv.shape[1] - d_c
    width = even(d_c, ranks, "latent columns")
    group = []
    for rank in range(ranks):
        latent = slice(rank * width, (rank + 1) * width)
        kept, scored = rope_slices(rank, ranks, rope_dim, rope)
        mine = replace(
            head_share(weights, rank, ranks),
            w_uk=weights.w_uk[:, :, latent].copy(),
            w_uv=weights.w_uv[:, :, latent].copy(),
        )
        group.append(LatentRank(mine, latent, kept, scored, [columns(c, d_c, latent, kept) for c in caches]))
    return group


def columns(rows: np.ndarray, d_c: int, latent: slice, rope: slice) -> np.ndarray:
    """A rank's columns of cached rows, in memory of its own."""
    return np.concatenate([rows[..., :d_c][..., latent], rows[..., d_c:][..., rope]], axis=-1)


def step(
    x: np.ndarray, group: Sequence[LatentRank], setting: Setting, widths: Widths | None = None
) -> tuple[np.ndarray, list[LatentRank]]:
    """x [B, q_len, d], known to all ranks -> u [B, q_len, d], ranks with their columns of the new rows."""
    widths = widths or Widths()
    ledger = setting.how.ledger
    assert_shares(group)
    at = [step_positions(len(rows), x.shape[1]) for rows in group[0].shards]
    group = [store_new_rows(rank, x, at, setting) for rank in group]

    own_heads = [
        block.queries(block.query_latents(x, rank.weights, setting), at, rank.weights, setting)
        for rank in group
    ]
    q = all_gather(own_heads, 2, "expanded_query_gather", widths.activation, ledger)
    q_latent = [
        block.absorb(all_heads, rank.weights, setting) for all_heads, rank in zip(q, group, strict=True)
    ]
    o_latent = attend(q_latent, group, at, setting, widths)  # N x [B, q_len, n_h, d_c/N]
    partial_o = [block.expand_output(o, r.weights, setting) for o, r in zip(o_latent, group, strict=True)]
    o = reduce_scatter(partial_o, 2, "head_output_scatter", widths.activation, ledger)
    partial_sums = [block.output(part, rank.weights, setting) for part, rank in zip(o, group, strict=True)]
    return all_reduce(partial_sums, "o_proj", widths.activation, ledger)[0], group


def store_new_rows(
    rank: LatentRank, x: np.ndarray, positions: Sequence[np.ndarray], setting: Setting
) -> LatentRank:
    """Every rank computes and norms whole rows (W^DKV is replicated) and keeps its columns."""
    rows = block.cache_rows(x, positions, rank.weights, setting)
    new = columns(rows, len(rank.weights.kv_norm), rank.latent, rank.rope)
    return replace(rank, shards=[np.concatenate(pair) for pair in zip(rank.shards, new, strict=True)])


def attend(
    q_latent: Sequence[np.ndarray],
    group: Sequence[LatentRank],
    positions: Sequence[np.ndarray],
    setting: Setting,
    widths: Widths,
) -> list[np.ndarray]:
    """Partial logits, their all-reduce, softmax, and each rank's columns of the output, by sequence.

    q_latent N x [B, q_len, n_h, d_c/N + d_h^R] -> N x [B, q_len, n_h, d_c/N]
    """
    outs: list[list[np.ndarray]] = [[] for _ in group]
    for b, at in enumerate(positions):
        partial_logits = [
            partial_scores(q[b], r, r.shards[b], setting) for q, r in zip(q_latent, group, strict=True)
        ]
        summed = all_reduce(partial_logits, "score", widths.score, setting.how.ledger)
        for rank, logits, out in zip(group, summed, outs, strict=True):
            out.append(weighted_sum(logits, rank, rank.shards[b], at, setting))
    return [np.stack(out) for out in outs]


def partial_scores(q: np.ndarray, rank: LatentRank, rows: np.ndarray, setting: Setting) -> np.ndarray:
    """scale (q_r c_r^T + the rope columns that this rank adds). -> [q_len n_h, T]"""
    width = rank.latent.stop - rank.latent.start
    rope_at = rank.scored_rope.start - rank.rope.start  # kept columns start at rank.rope
    rope_width = rank.scored_rope.stop - rank.scored_rope.start
    q = q.reshape(-1, q.shape[-1]) * q.dtype.type(setting.scale)
    q_rope = q[:, width:][:, rank.scored_rope]
    k_rope = rows[:, width:][:, rope_at : rope_at + rope_width]
    logits = setting.how.product("core", q[:, :width], rows[:, :width].T)
    return logits + setting.how.product("core", q_rope, k_rope.T)


def weighted_sum(
    logits: np.ndarray, rank: LatentRank, rows: np.ndarray, at: np.ndarray, setting: Setting
) -> np.ndarray:
    """softmax(logits) c_r. logits [q_len n_h, T] -> [q_len, n_h, d_c/N]"""
    width = rank.latent.stop - rank.latent.start
    mask = visible(at, np.arange(len(rows)))
    if mask is not None:
        np.copyto(logits.reshape(len(at), -1, len(rows)), -np.inf, where=~mask[:, None, :])
    total, _ = core.exponentiate(logits)
    out = setting.how.product("core", logits, rows[:, :width]) / total[:, None]
    return out.reshape(len(at), -1, width)


def assert_shares(group: Sequence[LatentRank]) -> None:
    """d_c/N columns of the cache, of W^UK and of W^UV, in memory of its own."""
    heads = group[0].weights.w_uk.shape[0]
    for rank in group:
        width = len(rank.weights.kv_norm) // len(group)
        kept = width + rank.rope.stop - rank.rope.start
        w = rank.weights
        assert_owned(
            {f"cache {b}": (rows, (len(rows), kept)) for b, rows in enumerate(rank.shards)}
            | {
                "W^UK": (w.w_uk, (heads, w.w_uk.shape[1], width)),
                "W^UV": (w.w_uv, (heads, w.w_uv.shape[1], width)),
                "W^O": (w.w_o, (heads // len(group), *w.w_o.shape[1:])),
            }
        )
