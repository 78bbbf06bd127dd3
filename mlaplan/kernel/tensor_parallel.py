"""Tensor parallelism of MLA: heads are divided, the latent cache is not.

W^UQ, W^UK, W^UV and W^O are cut by heads. W^DQ and W^DKV have no heads and are replicated, and so is the
cache: every rank computes and keeps all of it. One all-reduce, after W^O:

    u = sum_r o_r W^O_r
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlaplan.kernel import block
from mlaplan.kernel.block import Setting
from mlaplan.kernel.collectives import all_reduce
from mlaplan.kernel.shares import assert_owned, copied, even
from mlaplan.kernel.traffic import Widths
from mlaplan.kernel.weights import Weights


@dataclass(frozen=True, slots=True)
class HeadRank:
    weights: Weights  # n_h / N heads
    caches: list[np.ndarray]  # B x [T_b, d_c + d_h^R], whole


def head_share(weights: Weights, rank: int, ranks: int) -> Weights:
    """Rank's heads of W^UQ, W^UK, W^UV, W^O; the rest whole. Copies."""
    heads = even(weights.heads, ranks, "heads")
    mine = slice(rank * heads, (rank + 1) * heads)
    return copied(
        replace(
            weights,
            w_uq=weights.w_uq[:, mine],
            w_uk=weights.w_uk[mine],
            w_uv=weights.w_uv[mine],
            w_o=weights.w_o[mine],
        )
    )


def split(weights: Weights, caches: Sequence[np.ndarray], ranks: int) -> list[HeadRank]:
    return [HeadRank(head_share(weights, r, ranks), [c.copy() for c in caches]) for r in range(ranks)]


def step(
    x: np.ndarray, group: Sequence[HeadRank], setting: Setting, widths: Widths | None = None
) -> tuple[np.ndarray, list[HeadRank]]:
    """x [B, q_len, d], known to all ranks -> u [B, q_len, d], ranks with longer caches."""
    widths = widths or Widths()
    assert_shares(group)
    partial_sums = []
    after = []
    for rank in group:
        u, caches = block.step(x, rank.caches, rank.weights, setting)
        partial_sums.append(u)
        after.append(replace(rank, caches=caches))
    u = all_reduce(partial_sums, "o_proj", widths.activation, setting.how.ledger)[0]
    return u, after


def assert_shares(group: Sequence[HeadRank]) -> None:
    """1/N of the heads; the cache is the whole one on each rank, and that is the point."""
    assert_head_shares([rank.weights for rank in group])
    for rank in group:
        whole = [rows.shape for rows in group[0].caches]
        assert_owned({f"cache {b}": (rows, whole[b]) for b, rows in enumerate(rank.caches)})


def assert_head_shares(shares: Sequence[Weights]) -> None:
    """The same number of heads on each rank, in memory of its own."""
    heads = shares[0].heads
    for w in shares:
        inputs, _, qk = w.w_uq.shape
        _, d_h, d_c = w.w_uk.shape
        _, d_v, d = w.w_o.shape
        assert_owned(
            {
                "W^UQ": (w.w_uq, (inputs, heads, qk)),
                "W^UK": (w.w_uk, (heads, d_h, d_c)),
                "W^UV": (w.w_uv, (heads, d_v, d_c)),
                "W^O": (w.w_o, (heads, d_v, d)),
            }
        )
