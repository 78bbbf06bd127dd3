"""Latent-sharded cache: the d_c columns of the latent are divided, each rank keeps d_c/N of every token.

Logits are sums over columns, so partial logits add up to the exact ones, before the softmax:

    q . [c ; k^R] = sum_r q_r . c_r  +  q^R . k^R

The rope part must be counted once. `rope` says where it goes:
    "split"       d_h^R/N columns on each rank, part of its partial logits (least memory)
    "replicated"  k^R whole on every rank, added by rank 0 alone
    "first"       k^R on rank 0 only
Adding it on every rank is wrong by order one. RMSNorm is taken over the whole latent before the cut.

Weights are cut by heads as in tensor parallelism; queries and outputs change from head to column shards and
back. Per rank, S of the collectives:

    exchange     absorbed queries, heads -> columns    B q n_h/N (d_c + d_h^R)
    all-reduce   partial logits, fp32                  B q n_h T               grows with the context
    exchange     latent outputs, columns -> heads      B q n_h/N d_c
    all-reduce   u, as in tensor parallelism           B q d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlaplan.kernel import block, core
from mlaplan.kernel.block import Setting
from mlaplan.kernel.collectives import all_reduce, all_to_all
from mlaplan.kernel.shares import assert_owned, even
from mlaplan.kernel.tensor_parallel import assert_head_shares, head_share
from mlaplan.kernel.traffic import Widths
from mlaplan.kernel.visibility import step_positions, visible
from mlaplan.kernel.weights import Weights

ROPE_PLACES = ("split", "replicated", "first")


@dataclass(frozen=True, slots=True)
class LatentRank:
    weights: Weights  # n_h / N heads
    latent: slice  # columns of c^KV that it keeps
    rope: slice  # columns of k^R that it keeps
    scored_rope: slice  # columns of k^R that it adds to the logits
    shards: list[np.ndarray]  # B x [T_b, len(latent) + len(rope)]

    @property
    def width(self) -> int:
        return self.latent.stop - self.latent.start


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


def split(weights: Weights, caches: Sequence[np.ndarray], ranks: int, rope: str = "split") -> list[LatentRank]:
    d_c = weights.w_uk.shape[2]
    width = even(d_c, ranks, "latent columns")
    group = []
    for rank in range(ranks):
        latent = slice(rank * width, (rank + 1) * width)
        kept, scored = rope_slices(rank, ranks, weights.w_dkv.shape[1] - d_c, rope)
        shards = [columns(rows, d_c, latent, kept) for rows in caches]
        group.append(LatentRank(head_share(weights, rank, ranks), latent, kept, scored, shards))
    return group


def columns(rows: np.ndarray, d_c: int, latent: slice, rope: slice) -> np.ndarray:
    """Some latent and some rope columns of cached rows or of queries, in memory of their own."""
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

    q = exchange_queries(x, group, at, setting, widths)  # N x [B, q_len, n_h, columns that the rank scores]
    o_columns = attend(q, group, at, setting, widths)  # N x [B, q_len, n_h, d_c/N]
    by_heads = [np.split(o, len(group), axis=2) for o in o_columns]
    gathered = all_to_all(by_heads, "latent_output_exchange", widths.activation, ledger)
    partial_sums = []
    for rank, pieces in zip(group, gathered, strict=True):
        o_latent = np.concatenate(pieces, axis=-1)  # [B, q_len, n_h/N, d_c]
        o = block.expand_output(o_latent, rank.weights, setting)
        partial_sums.append(block.output(o, rank.weights, setting))
    return all_reduce(partial_sums, "o_proj", widths.activation, ledger)[0], group


def store_new_rows(rank: LatentRank, x: np.ndarray, positions: Sequence[np.ndarray], setting: Setting) -> LatentRank:
    """Every rank computes and norms whole rows (W^DKV is replicated) and keeps its columns."""
    rows = block.cache_rows(x, positions, rank.weights, setting)
    new = columns(rows, len(rank.weights.kv_norm), rank.latent, rank.rope)
    return replace(rank, shards=[np.concatenate(pair) for pair in zip(rank.shards, new, strict=True)])


def exchange_queries(
    x: np.ndarray,
    group: Sequence[LatentRank],
    positions: Sequence[np.ndarray],
    setting: Setting,
    widths: Widths,
) -> list[np.ndarray]:
    """Absorbed queries of own heads, all columns -> of all heads, the columns that each rank scores."""
    d_c = len(group[0].weights.kv_norm)
    blocks = []
    for rank in group:
        c_q = block.query_latents(x, rank.weights, setting)
        q = block.absorb(block.queries(c_q, positions, rank.weights, setting), rank.weights, setting)
        blocks.append([columns(q, d_c, target.latent, target.scored_rope) for target in group])
    received = all_to_all(blocks, "latent_query_exchange", widths.activation, setting.how.ledger)
    return [np.concatenate(pieces, axis=2) for pieces in received]


def attend(
    q: Sequence[np.ndarray],
    group: Sequence[LatentRank],
    positions: Sequence[np.ndarray],
    setting: Setting,
    widths: Widths,
) -> list[np.ndarray]:
    """Partial logits, their all-reduce, softmax, and each rank's columns of the output, by sequence."""
    outs: list[list[np.ndarray]] = [[] for _ in group]
    for b, at in enumerate(positions):
        scores = [partial_scores(mine[b], r, r.shards[b], setting) for mine, r in zip(q, group, strict=True)]
        summed = all_reduce(scores, "latent_score_all_reduce", widths.score, setting.how.ledger)
        for rank, logits, out in zip(group, summed, outs, strict=True):
            out.append(weighted_sum(logits, rank, rank.shards[b], at, setting))
    return [np.stack(out) for out in outs]


def partial_scores(q: np.ndarray, rank: LatentRank, rows: np.ndarray, setting: Setting) -> np.ndarray:
    """scale (q_r c_r^T + the rope columns that this rank adds). -> [q_len n_h, T]"""
    first = rank.width + rank.scored_rope.start - rank.rope.start  # kept rope columns start at rank.rope
    scored = rows[:, first : first + rank.scored_rope.stop - rank.scored_rope.start]
    keys = np.concatenate([rows[:, : rank.width], scored], axis=1)
    flat = q.reshape(-1, q.shape[-1]) * q.dtype.type(setting.scale)
    return setting.how.product("latent_scores", flat, keys.T)


def weighted_sum(
    logits: np.ndarray, rank: LatentRank, rows: np.ndarray, at: np.ndarray, setting: Setting
) -> np.ndarray:
    """softmax(logits) c_r. logits [q_len n_h, T] -> [q_len, n_h, d_c/N]"""
    mask = visible(at, np.arange(len(rows)))
    if mask is not None:
        np.copyto(logits.reshape(len(at), -1, len(rows)), -np.inf, where=~mask[:, None, :])
    total, _ = core.exponentiate(logits)
    out = setting.how.product("latent_values", logits, rows[:, : rank.width]) / total[:, None]
    return out.reshape(len(at), -1, rank.width)


def assert_shares(group: Sequence[LatentRank]) -> None:
    """d_c/N columns of the cache and n_h/N heads of the weights, in memory of its own."""
    assert_head_shares([rank.weights for rank in group])
    for rank in group:
        kept = len(rank.weights.kv_norm) // len(group) + rank.rope.stop - rank.rope.start
        assert_owned({f"cache {b}": (rows, (len(rows), kept)) for b, rows in enumerate(rank.shards)})
