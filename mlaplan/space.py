"""The strategy space: every structure that uses the given chips, times the choices within one.

A structure is replicas x pp x dp x tp with its expert split, decode and prefill context parallelism and KV layout;
all divisors are taken, none sampled. Within it vary the dtypes, prefill chunk, two-batch overlap, MTP depth and
batch. What an engine or a model forbids is not left out here: rules remove it and count it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.table import Table, size, sorted_distinct
from mlaplan.strategy import CODED, KV_LAYOUTS

STRUCTURE = ("replicas", "pp", "tp", "dp", "ep", "dcp", "cp", "kv_layout")
LONG_PROMPT = 16384  # tokens from which prefill context parallelism is considered
CHOICES = ("weight_dtype", "kv_dtype", "prefill_chunk", "two_batch_overlap", "mtp")
CHUNKS = (2048, 8192, 16384)


@dataclass(frozen=True, slots=True)
class Axes:
    """Values of the choices within a structure, in codes where the column is coded."""

    weight_dtype: tuple[int, ...]
    kv_dtype: tuple[int, ...]
    block_size: tuple[int, ...]  # one per KV dtype: the size its kernel prefers
    prefill_chunk: tuple[int, ...]
    two_batch_overlap: tuple[int, ...]
    mtp: tuple[int, ...]

    @property
    def count(self) -> int:
        return (
            len(self.weight_dtype) * len(self.kv_dtype) * len(self.prefill_chunk) * len(self.two_batch_overlap)
            * len(self.mtp)
        )  # fmt: skip


def divisors(n: int) -> list[int]:
    """All divisors of n, rising."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def structures(
    devices: int, heads: int, layers: int, moe: bool, mla: bool, long_prompt: bool, fixed: Mapping[str, Any]
) -> Table:
    """Every structure on `devices` chips. `fixed` pins columns to one value (words for coded ones)."""

    def allowed(name: str, values: Sequence[int]) -> list[int]:
        if name not in fixed:
            return list(values)
        pinned = CODED[name].index(fixed[name]) if name in CODED else int(fixed[name])
        return [v for v in values if v == pinned]

    rows: list[tuple[int, ...]] = []
    for replicas in allowed("replicas", divisors(devices)):
        for pp in allowed("pp", [d for d in divisors(devices // replicas) if d <= layers]):
            width = devices // replicas // pp
            for tp in allowed("tp", [d for d in divisors(width) if d <= heads]):
                dp = width // tp
                if dp not in allowed("dp", [dp]):
                    continue
                for ep in allowed("ep", divisors(width) if moe else [1]):
                    for dcp in allowed("dcp", divisors(tp)):
                        for cp in allowed("cp", sorted({1, tp}) if long_prompt else [1]):
                            for layout in allowed("kv_layout", _layouts(dcp, tp, mla)):
                                rows.append((replicas, pp, tp, dp, ep, dcp, cp, layout))
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(STRUCTURE)).T
    return Table(dict(zip(STRUCTURE, columns, strict=True)))


def _layouts(dcp: int, tp: int, mla: bool) -> list[int]:
    """KV layouts of a group: sharded by sequence where dcp > 1, else whole or by latent dimensions."""
    if dcp > 1:
        return [KV_LAYOUTS.index("sequence_sharded")]
    names = ["replicated", "latent_sharded"] if mla and tp > 1 else ["replicated"]
    return [KV_LAYOUTS.index(name) for name in names]


def expand(table: Table, axes: Axes) -> Table:
    """Each structure with every combination of the axes; two-batch overlap only where tokens are dispatched."""
    block_of = dict(zip(axes.kv_dtype, axes.block_size, strict=True))
    grid = np.meshgrid(
        np.arange(size(table)), axes.weight_dtype, axes.kv_dtype, axes.prefill_chunk, axes.two_batch_overlap, axes.mtp,
        indexing="ij",
    )  # fmt: skip
    index, weight, kv, chunk, tbo, mtp = (g.ravel() for g in grid)
    keep = (tbo == 0) | ((table["ep"][index] > 1) & (table["dp"][index] > 1))
    index = index[keep]
    out = {name: column[index] for name, column in table.items()}
    blocks = np.zeros(len(CODED["kv_dtype"]), dtype=np.int64)
    blocks[list(block_of)] = list(block_of.values())
    out |= {"weight_dtype": weight[keep], "kv_dtype": kv[keep], "prefill_chunk": chunk[keep]}
    out |= {"two_batch_overlap": tbo[keep], "mtp": mtp[keep], "block_size": blocks[kv[keep]]}
    return Table({name: np.asarray(column, dtype=np.int64) for name, column in out.items()}, table.domains)


def batch_grid(limit: int) -> NDArray[np.int64]:
    """1, 2, 3, 4, 6, 8, 12, ... below `limit`: steps of a half and a third of an octave."""
    powers = 2 ** np.arange(0, max(int(limit).bit_length(), 1))
    grid = sorted_distinct(np.concatenate([powers, powers[1:] * 3 // 2]))
    return grid[grid < limit].astype(np.int64)


def with_batches(
    table: Table, limit: NDArray[np.int64], fixed_batch: int | None = None, only_limit: bool = False
) -> Table:
    """Each row with every batch of the grid below its own limit, and the limit itself; none where it is below 1.

    only_limit: the limit alone. fixed_batch: this batch on every row with a limit.
    """
    if fixed_batch is not None or only_limit:
        kept = table.take(np.flatnonzero(limit >= 1))
        batch = limit[limit >= 1] if fixed_batch is None else np.full(size(kept), fixed_batch, dtype=np.int64)
        return kept.having(batch=batch)
    grid = batch_grid(int(limit.max(initial=1)))
    count = np.where(limit >= 1, np.searchsorted(grid, limit) + 1, 0)
    index = np.repeat(np.arange(len(limit)), count)
    rank = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    batch = np.where(rank == count[index] - 1, limit[index], np.append(grid, 0)[np.minimum(rank, len(grid))])
    return table.take(index).having(batch=batch.astype(np.int64))
