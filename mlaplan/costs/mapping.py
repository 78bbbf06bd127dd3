"""Decode attention over the cores of one chip: heads, batch or sequence over them, and two buffers in L2.

    heads       every core takes ceil(h / C) heads of all sequences; each reads the whole cache from L2
    batch       every core takes whole sequences, C at a time
    sequence    C cores share each sequence; their partial outputs are merged by log-sum-exp through L2
    mixed       groups of p cores share a sequence, C / p sequences at a time; the best p

Compute, cache from device memory into L2 and from L2 into a core run beside each other, so a scheme takes the longest
of the three and what follows: syncs and merge. One core draws at most 1/C of the device memory's rate and of L2's.
Source: flash-decoding (Dao et al., 2023) for the split; sophgo/torch-tpu csrc/ops/my_ops/mla_decode.pl for the first
two on SC11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import chain, kv, mla
from mlaplan.costs.overlap import Rates, rates
from mlaplan.costs.roofline import Numeric, ceil_div, pad_to

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import MLA

SCHEMES = ("heads", "batch", "sequence", "mixed")
PARTIAL_BYTES = 4.0
MERGE_FLOPS = 3.0  # rescale, multiply and add of one partial output element


class Decode(NamedTuple):
    """One decode step of one block on one chip; `heads` on this chip."""

    attention: MLA
    heads: int
    batch: int
    context: int
    q_len: int = 1
    kv_dtype: str = "bf16"

    @property
    def row_bytes(self) -> float:
        return kv.row_bytes(self.attention, self.kv_dtype)


class Cores(NamedTuple):
    """What one core does per second. `l2_known`: else L2 is taken to be as fast as the device memory."""

    number: int
    flops_per_s: float
    memory_bytes_per_s: float
    l2_bytes_per_s: float
    vector_flops_per_s: float
    sync_s: float
    row_tile: int
    token_tile: int
    l2_known: bool


class Scheme(NamedTuple):
    """One way over the cores. `parts`: cores that share a sequence."""

    name: str
    parts: int
    step_s: float
    compute_s: float
    memory_s: float
    l2_s: float
    merge_s: float
    used: int  # cores that have work

    @property
    def bound(self) -> str:
        times = {"compute": self.compute_s, "memory": self.memory_s, "l2": self.l2_s, "merge": self.merge_s}
        return max(times, key=lambda name: times[name])


def cores_of(chip: Chip) -> Cores:
    """Per-core rates from those of the chip."""
    r: Rates = rates(chip, 1, "absorbed")
    shared = [level for level in chip.on_chip if level.scope == "chip" and level.bandwidth is not None]
    l2 = float(shared[-1].bandwidth) if shared and shared[-1].bandwidth is not None else 0.0
    sync = chip.overheads.core_sync if chip.overheads.core_sync is not None else chip.overheads.task_switch
    n = r.cores
    return Cores(
        n, r.matrix_flops_per_s / n, r.memory_bytes_per_s / n, (l2 or r.memory_bytes_per_s) / n,
        r.vector_flops_per_s / n, float(sync) if sync is not None else float(chip.overheads.kernel), r.row_tile,
        r.token_tile, bool(l2),
    )  # fmt: skip


def _core_compute_s(d: Decode, c: Cores, heads: Numeric, tokens: Numeric) -> float:
    """One sequence's share on one core, rows and tokens in whole tiles. [s]"""
    a = d.attention
    rows = pad_to(d.q_len * heads, c.row_tile)
    flops = mla.core_flops(1, 1, pad_to(tokens, c.token_tile), rows, a.kv_lora_rank, a.qk_rope_head_dim)
    return float(flops / c.flops_per_s)


def heads_over_cores(d: Decode, c: Cores) -> Scheme:
    """Heads over cores: the cache comes into L2 once, and from there into every core."""
    each = int(ceil_div(d.heads, c.number))
    used = int(ceil_div(d.heads, each))
    cache = d.batch * d.context * d.row_bytes
    compute = d.batch * _core_compute_s(d, c, each, d.context)
    memory, l2 = cache / (c.memory_bytes_per_s * c.number), cache / c.l2_bytes_per_s
    return Scheme("heads", 1, max(compute, memory, l2) + c.sync_s, compute, memory, l2, c.sync_s, used)


def sequence_over_cores(d: Decode, c: Cores, parts: int, name: str = "mixed") -> Scheme:
    """`parts` cores to a sequence, number // parts sequences at a time; with one part: batch over cores."""
    together = c.number // parts
    rounds = int(ceil_div(d.batch, together))
    local = int(ceil_div(d.context, parts))
    compute = rounds * _core_compute_s(d, c, d.heads, local)
    cache = rounds * local * d.row_bytes
    memory, l2 = cache / c.memory_bytes_per_s, cache / c.l2_bytes_per_s
    merge = c.sync_s
    if parts > 1:
        width = d.q_len * d.heads
        moved = 2.0 * parts * width * (d.attention.kv_lora_rank + 1) * PARTIAL_BYTES
        vector = MERGE_FLOPS * parts * width * d.attention.kv_lora_rank
        one = moved / (c.l2_bytes_per_s * parts) + vector / (c.vector_flops_per_s * parts)
        merge = rounds * one + 2 * c.sync_s
    used = min(d.batch, together) * parts
    return Scheme(name, parts, max(compute, memory, l2) + merge, compute, memory, l2, merge, used)


def schemes(d: Decode, c: Cores) -> list[Scheme]:
    """All schemes, best first; `mixed` is the best number of cores to a sequence between one and all."""
    found = [heads_over_cores(d, c), sequence_over_cores(d, c, 1, "batch")]
    if c.number > 1:
        found.append(sequence_over_cores(d, c, c.number, "sequence"))
        between = [sequence_over_cores(d, c, p) for p in range(2, c.number) if c.number % p == 0]
        if between:
            found.append(min(between, key=lambda s: s.step_s))
    return sorted(found, key=lambda s: s.step_s)


def table(
    chip: Chip, a: MLA, heads: int, batches: Sequence[int], contexts: Sequence[int], q_len: int = 1
) -> dict[tuple[int, int], list[Scheme]]:
    """Schemes, best first, for every batch and context."""
    c = cores_of(chip)
    return {(b, s): schemes(Decode(a, heads, b, s, q_len), c) for b in batches for s in contexts}


# ---- sizes: what tensor parallelism divides and what it repeats ----


class Sizes(NamedTuple):
    """One block at `tokens` cached tokens, all sequences together. [B], per chip for tp and dp."""

    tokens: int
    up_bytes: float
    weight_bytes: float
    cache_bytes: float
    tp_bytes: float
    dp_bytes: float


def sizes(a: MLA, hidden: int, tokens: int, ranks: int, element_bytes: float, kv_dtype: str = "bf16") -> Sizes:
    """Up-projections and all weights of a block against its cache; bytes a chip reads under TP and under DP.

    TP: W / n + cache; DP: W + cache / n, W the up-projections.
    """
    up, whole = (n * element_bytes for n in mla.attention_weight_elements(a, hidden, replicated_down=False))
    cache = tokens * kv.row_bytes(a, kv_dtype)
    return Sizes(tokens, up, whole, cache, up / ranks + cache, up + cache / ranks)


# ---- two buffers in L2: gather of pages, copy into the core, compute ----


class Buffered(NamedTuple):
    """Pages gathered into L2 (SDMA), copied into the core (GDMA), computed on: one after the other, and overlapped."""

    items: int
    gather_s: float
    copy_s: float
    compute_s: float
    weights_s: float
    serial_s: float
    overlapped_s: float

    @property
    def saving(self) -> float:
        return 1.0 - self.overlapped_s / self.serial_s


def double_buffered(
    chip: Chip, d: Decode, weight_bytes: float = 0.0, buffers: int = 2, copies: bool = True,
    compute_share: float | None = None, shared_memory: bool = True,
) -> Buffered:  # fmt: skip
    """Whole sequences over cores, C of them an item, with `buffers` in L2.

    weight_bytes: up-projections of this chip, streamed from device memory before the first item. copies: whether the
    copy from L2 into the core is a step of its own. compute_share: of the matrix peak, else the kernel's fit.
    shared_memory: weights and pages share the device memory's rate; else the copy engine brings the weights beside.
    """
    c = cores_of(chip)
    items = int(ceil_div(d.batch, c.number))
    gather = d.context * d.row_bytes / c.memory_bytes_per_s
    copy = d.context * d.row_bytes / c.l2_bytes_per_s if copies else 0.0
    compute = _core_compute_s(d, c, d.heads, d.context)
    if compute_share is not None:
        compute *= chip.kernel("mla_decode", "bf16").compute / compute_share
    weights = weight_bytes / (c.memory_bytes_per_s * c.number)
    times = np.tile([gather, copy, compute], (items, 1))
    if shared_memory:
        times[0, 0] += weights
    else:
        times[0, 1] += max(weights - gather, 0.0)
    spans = [chain.Span(0, 1, buffers), chain.Span(1, 2, buffers)]
    total = chain.long_schedule_s(times, (0.0, 0.0), spans)
    return Buffered(items, gather, copy, compute, weights, items * (gather + copy + compute) + weights, total)
