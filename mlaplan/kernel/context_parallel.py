"""Decode context parallel: the cache is divided along the sequence inside a tensor-parallel group.

Token t lives on rank (t // I) mod N, I the interleave. Each rank attends with the queries of all heads to its
own tokens, and partial results merge by log-sum-exp:

    gather  absorbed queries of all heads                      B q n_h (d_c + d_h^R)
    core    on T/N tokens
    merge   gather of lse, then reduce-scatter of rescaled o   N B q n_h  and  B q n_h d_c
            or all-to-all of (o, lse)                          B q n_h (d_c and 1)
    W^UV, W^O, all-reduce as in tensor parallelism

A rank with no token of a sequence contributes (0, -inf). Queries of a multi-token step see different numbers
of local keys; that follows from absolute positions and cannot be told from a local length alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlaplan.kernel import block, core
from mlaplan.kernel.block import Setting
from mlaplan.kernel.collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from mlaplan.kernel.partial import Partial, log_sum, merge
from mlaplan.kernel.shares import ShareError, assert_owned
from mlaplan.kernel.tensor_parallel import assert_head_shares, head_share
from mlaplan.kernel.traffic import ALL_TO_ALL, GATHER_SCATTER, Widths
from mlaplan.kernel.visibility import step_positions
from mlaplan.kernel.weights import Weights


@dataclass(frozen=True, slots=True)
class ContextRank:
    rank: int
    ranks: int
    interleave: int
    weights: Weights  # n_h / N heads
    lengths: tuple[int, ...]  # B global lengths
    shards: list[np.ndarray]  # B x [local tokens, d_c + d_h^R]


def owner(positions: np.ndarray, ranks: int, interleave: int) -> np.ndarray:
    """(t // I) mod N."""
    return (positions // interleave) % ranks


def local_length(length: int, rank: int, ranks: int, interleave: int) -> int:
    """Tokens of a sequence that rank holds: floor(L / NI) I + clamp(L mod NI - r I, 0, I)."""
    whole, rest = divmod(length, ranks * interleave)
    return whole * interleave + min(max(rest - rank * interleave, 0), interleave)


def local_positions(length: int, rank: int, ranks: int, interleave: int) -> np.ndarray:
    """Absolute positions of the tokens that rank holds, ascending."""
    at = np.arange(length)
    return at[owner(at, ranks, interleave) == rank]


def split(weights: Weights, caches: Sequence[np.ndarray], ranks: int, interleave: int) -> list[ContextRank]:
    lengths = tuple(len(c) for c in caches)
    return [
        ContextRank(
            rank,
            ranks,
            interleave,
            head_share(weights, rank, ranks),
            lengths,
            [c[local_positions(len(c), rank, ranks, interleave)] for c in caches],
        )
        for rank in range(ranks)
    ]


def step(
    x: np.ndarray,
    group: Sequence[ContextRank],
    setting: Setting,
    exchange: str = GATHER_SCATTER,
    widths: Widths | None = None,
) -> tuple[np.ndarray, list[ContextRank]]:
    """x [B, q_len, d], known to all ranks -> u [B, q_len, d], ranks with their share of the new rows."""
    widths = widths or Widths()
    partial_sums, after = step_partial_sums(x, group, setting, exchange, widths)
    return all_reduce(partial_sums, "o_proj", widths.activation, setting.how.ledger)[0], after


def step_partial_sums(
    x: np.ndarray, group: Sequence[ContextRank], setting: Setting, exchange: str, widths: Widths
) -> tuple[list[np.ndarray], list[ContextRank]]:
    """The step up to its last all-reduce, which also spans the other groups where tp > dcp."""
    ledger = setting.how.ledger
    assert_shares(group)
    at = [step_positions(length, x.shape[1]) for length in group[0].lengths]
    group = [store_new_rows(rank, x, at, setting) for rank in group]

    own_heads = []
    for rank in group:
        c_q = block.query_latents(x, rank.weights, setting)
        own_heads.append(block.absorb(block.queries(c_q, at, rank.weights, setting), rank.weights, setting))
    all_heads = all_gather(own_heads, 2, "query_gather", widths.activation, ledger)

    partials = [attend_locally(q, rank, at, setting) for q, rank in zip(all_heads, group, strict=True)]
    if exchange == GATHER_SCATTER:
        o_latent = merge_by_gather_and_scatter(partials, widths, setting)
    elif exchange == ALL_TO_ALL:
        o_latent = merge_by_all_to_all(partials, widths, setting)
    else:
        raise ValueError(f"exchange is {GATHER_SCATTER!r} or {ALL_TO_ALL!r}, got {exchange!r}")

    partial_sums = [
        block.output(block.expand_output(o, rank.weights, setting), rank.weights, setting)
        for o, rank in zip(o_latent, group, strict=True)
    ]
    return partial_sums, group


def store_new_rows(rank: ContextRank, x: np.ndarray, positions: Sequence[np.ndarray], setting: Setting) -> ContextRank:
    """Every rank computes the new rows (W^DKV is replicated) and keeps those it owns."""
    new = block.cache_rows(x, positions, rank.weights, setting)
    mine = [owner(at, rank.ranks, rank.interleave) == rank.rank for at in positions]
    return replace(
        rank,
        lengths=tuple(length + x.shape[1] for length in rank.lengths),
        shards=[np.concatenate([shard, rows[keep]]) for shard, rows, keep in zip(rank.shards, new, mine, strict=True)],
    )


def attend_locally(
    q_latent: np.ndarray, rank: ContextRank, positions: Sequence[np.ndarray], setting: Setting
) -> Partial:
    """All heads against this rank's tokens. -> out [B, q_len, n_h, d_c], lse [B, q_len, n_h]"""
    d_c = rank.weights.w_uk.shape[2]
    done = [
        core.absorbed(
            q,
            shard,
            d_c,
            setting.scale,
            at,
            local_positions(length, rank.rank, rank.ranks, rank.interleave),
            setting.how,
        )
        for q, shard, at, length in zip(q_latent, rank.shards, positions, rank.lengths, strict=True)
    ]
    return Partial(np.stack([p.out for p in done]), np.stack([p.lse for p in done]))


def merge_by_gather_and_scatter(partials: Sequence[Partial], widths: Widths, setting: Setting) -> list[np.ndarray]:
    """Gather lse, rescale o by exp(lse_r - lse), sum and scatter by heads. -> N x [B, q_len, n_h/N, d_c]"""
    ledger = setting.how.ledger
    gathered = all_gather([p.lse[None] for p in partials], 0, "lse_gather", widths.lse, ledger)
    rescaled = []
    for rank, (part, every) in enumerate(zip(partials, gathered, strict=True)):
        top = every.max(axis=0)
        shift = np.where(np.isneginf(top), 0, top).astype(top.dtype)
        lse = log_sum(np.exp(every - shift).sum(axis=0), shift)
        weight = np.exp(every[rank] - np.where(np.isneginf(lse), 0, lse))[..., None]
        rescaled.append(np.multiply(part.out, weight, out=np.zeros_like(part.out), where=weight > 0))
    return reduce_scatter(rescaled, 2, "output_scatter", widths.partial_output, ledger)


def merge_by_all_to_all(partials: Sequence[Partial], widths: Widths, setting: Setting) -> list[np.ndarray]:
    """Send each rank the partials of its heads, merge there. -> N x [B, q_len, n_h/N, d_c]"""
    n, ledger = len(partials), setting.how.ledger
    out_blocks = [np.split(p.out, n, axis=2) for p in partials]
    lse_blocks = [np.split(p.lse, n, axis=2) for p in partials]
    outs = all_to_all(out_blocks, "output_exchange", widths.partial_output, ledger)
    lses = all_to_all(lse_blocks, "lse_exchange", widths.lse, ledger)
    return [merge(map(Partial, o, lse)).out for o, lse in zip(outs, lses, strict=True)]


def assert_shares(group: Sequence[ContextRank]) -> None:
    """Each rank has its heads and its tokens in memory of its own, and all tokens are somewhere once."""
    assert_head_shares([rank.weights for rank in group])
    for rank in group:
        for shard, length in zip(rank.shards, rank.lengths, strict=True):
            held = local_length(length, rank.rank, rank.ranks, rank.interleave)
            assert_owned({"cache": (shard, (held, shard.shape[1]))})
    for b, length in enumerate(group[0].lengths):
        if sum(len(rank.shards[b]) for rank in group) != length:
            raise ShareError(f"sequence {b}: the shards do not add up to {length} tokens")
