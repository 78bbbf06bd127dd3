"""What a plan says about one chip group: query chunk, slice, pipeline depth and the mapping onto cores.

Two ways of streaming the cache, with one model: `gather_plan` receives it from the group's other ranks every step,
`local_plan` streams what the chip holds from its own memory into each core, which is what replicated and
sequence-sharded plans do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import kv, mapping, overlap, sram
from mlaplan.costs.mapping import Decode, Scheme
from mlaplan.costs.overlap import Choice, Rates, Work
from mlaplan.costs.slices import Pipeline

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import MLA

MODES = ("serial gather", "query chunking", "chunked and fused", "deep pipeline")
JITTER = 0.3  # slowdown of a single slice that a pick rides out
SHALLOW = 2  # staging buffers of the fused mode that is not deep


class Mode(NamedTuple):
    """One way to run the gather and the core. pieces: groups of sequences, or slices; 0 bytes: no slices."""

    name: str
    step_s: float
    compute_s: float
    slice_bytes: int = 0
    depth: int = 1
    pieces: int = 1

    @property
    def utilisation(self) -> float:
        return self.compute_s / self.step_s

    @property
    def exposed_s(self) -> float:
        return self.step_s - self.compute_s


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """Gather of one form (absorbed or naive): all modes, the sweep, and what was picked."""

    work: Work
    rates: Rates
    modes: tuple[Mode, ...]
    sweep: tuple[Choice, ...]
    picked: Choice
    q_chunk: sram.ChunkFit
    fit: sram.Fit

    @property
    def best(self) -> Mode:
        return min(self.modes, key=lambda m: m.step_s)


def on_chip_bytes(chip: Chip) -> int:
    """All memory that tiles are meant to stay in, over all cores. [B]"""
    cores = round(float(chip.cores))
    home = sram.home_levels(chip)
    return sum(int(float(level.capacity)) * (cores if level.scope == "core" else 1) for level in home)


def query_chunk(chip: Chip, a: MLA, heads: int, batch: int, q_len: int) -> sram.ChunkFit:
    """The largest query chunk whose Q/O tile stays within the guard of the on-chip memory, no more than q_len."""
    return sram.largest_chunk(batch, heads, a.v_head_dim, on_chip_bytes(chip), q_len=q_len)


def gather_plan(
    chip: Chip, a: MLA, form: str, batch: int, context: int, heads: int, ranks: int, q_len: int = 1,
    jitter: float = JITTER, kv_dtype: str = "bf16",
) -> GatherPlan:  # fmt: skip
    """Every mode of gathering the cache over `ranks`, and the slice and depth that do best."""
    chunk = query_chunk(chip, a, heads, batch, q_len)
    work = Work(a, form, batch, context, heads, ranks, q_len, chunk.chunk or min(sram.CHUNKS[0], q_len), kv_dtype)
    r = overlap.rates(chip, ranks, form)
    useful = float(overlap.whole_s(work, r))
    groups, chunked = overlap.best_groups(work, r)
    found = overlap.sweep(chip, work, r)
    picked = overlap.pick(found, work, r, jitter)
    shallow = min((c for c in found if c.depth == SHALLOW), key=lambda c: c.step_s)
    modes = (
        Mode(MODES[0], float(overlap.serial_s(work, r)), useful),
        Mode(MODES[1], chunked, useful, pieces=groups),
        _fused(MODES[2], work, shallow, useful),
        _fused(MODES[3], work, picked, useful),
    )
    tile = overlap.tile_of(work, r, picked.slice_bytes, picked.depth)
    parts = sram.working_set(a, tile, form, work.row_bytes)
    count = int(overlap.slice_count(work, picked.slice_bytes))
    return GatherPlan(
        work, r, modes, tuple(found), picked, chunk, sram.place(chip, parts, r.cores, count, picked.depth)
    )


def _fused(name: str, work: Work, c: Choice, useful: float) -> Mode:
    return Mode(name, c.step_s, useful, c.slice_bytes, c.depth, int(overlap.slice_count(work, c.slice_bytes)))


class LocalPlan(NamedTuple):
    """Streaming from the chip's own memory: what one task of one core works on, and how work is laid over the cores."""

    q_chunk: int  # query tokens of a task
    heads: int  # of a task
    slice_tokens: int
    slice_bytes: int
    depth: int
    scheme: Scheme
    fit: sram.Fit
    assumed: tuple[str, ...]
    pipeline: Pipeline  # of one core


def task_rows(chip: Chip, a: MLA, heads: int, q_len: int, tile_tokens: int, row_bytes: float) -> tuple[int, int]:
    """(query tokens, heads) of one task: all rows, or the most whose tile stays on the chip with two small slices.

    Fewer rows a task are more tasks, each of which reads the cache again.
    """
    options = [(q_len, heads)] + [(q, heads) for q in range(q_len - 1, 0, -1) if q_len % q == 0]
    options += [(1, h) for h in sorted({heads // k for k in (2, 4, 8, 16) if heads % k == 0}, reverse=True)]
    for q, h in options:
        parts = sram.working_set(a, sram.Tile(q * h, h, tile_tokens, SHALLOW), "absorbed", row_bytes)
        if not sram.place(chip, parts, round(float(chip.cores))).spilled:
            return q, h
    return options[-1]


def local_plan(
    chip: Chip, a: MLA, heads: int, batch: int, context: int, q_len: int = 1, kv_dtype: str = "bf16",
    jitter: float = JITTER,
) -> LocalPlan:  # fmt: skip
    """Slice and depth of one core by the same sweep, over whole tiles of tokens; the mapping that is fastest."""
    cores = mapping.cores_of(chip)
    scheme = mapping.schemes(Decode(a, heads, batch, context, q_len, kv_dtype), cores)[0]
    own_heads = -(-heads // cores.number) if scheme.name == "heads" else heads
    per_core = core_rates(chip)
    row = kv.row_bytes(a, kv_dtype)
    q_chunk, task_heads = task_rows(chip, a, own_heads, q_len, cores.token_tile, row)
    tasks = -(-q_len // q_chunk) * -(-own_heads // task_heads)
    sequences = max(-(-batch * scheme.parts // cores.number), 1) * tasks
    local = max(-(-context // scheme.parts), 1)
    work = Work(a, "absorbed", sequences, local, task_heads, 1, q_chunk, None, kv_dtype, from_memory=True)
    sizes = tuple(int(cores.token_tile * 2**k * row) for k in range(9) if cores.token_tile * 2**k < 2 * local)
    found = overlap.sweep(chip, work, per_core, sizes or (int(cores.token_tile * row),))
    picked = overlap.pick(found, work, per_core, jitter)
    tokens = max(picked.slice_bytes // int(row), 1)
    parts = sram.working_set(a, sram.Tile(q_chunk * task_heads, task_heads, tokens, picked.depth), "absorbed", row)
    count = int(overlap.slice_count(work, picked.slice_bytes))
    fit = sram.place(chip, parts, cores.number, count, picked.depth)
    costs = overlap.pipeline(work, per_core, picked.slice_bytes, picked.depth)
    return LocalPlan(
        q_chunk, task_heads, tokens, picked.slice_bytes, picked.depth, scheme, fit, per_core.assumed, costs
    )  # fmt: skip


def core_rates(chip: Chip) -> Rates:
    """One core as if it were a chip whose link is its share of the device memory.

    Launch, descriptor and switch costs are the chip's where it states them, and nothing where it does not: a kernel
    floor is no measure of a loop inside one kernel.
    """
    r = overlap.rates(chip, 1, "absorbed")
    over, dma = chip.overheads, chip.dma
    descriptor = dma.descriptor if dma is not None else None
    switch = over.task_switch or over.core_sync
    assumed = ("no cost per slice is known: none is counted",) if descriptor is None and switch is None else ()
    return r._replace(
        link_bytes_per_s=r.memory_bytes_per_s / r.cores, latency_s=0.0,
        descriptor_s=float(descriptor) if descriptor is not None else 0.0,
        switch_s=float(switch) if switch is not None else 0.0,
        kernel_s=0.0, matrix_flops_per_s=r.matrix_flops_per_s / r.cores,
        vector_flops_per_s=r.vector_flops_per_s / r.cores, cores=1, assumed=assumed,
    )  # fmt: skip


class Border(NamedTuple):
    """Where chunking pays. contexts: the least that does, for each batch; implied_s: fixed cost per layer for which
    the border passes through the stated batch and context; prefill_saved: share saved in prefill of that context."""

    batches: tuple[int, ...]
    contexts: tuple[int | None, ...]
    at: tuple[int, int]
    implied_s: float
    decode_saved: float
    prefill_saved: float


BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = tuple(2**k for k in range(6, 18))
PREFILL_CHUNK = 64


def border(plan: GatherPlan, at: tuple[int, int], cost_s: float = 0.0) -> Border:
    """The border for a fixed cost, and the cost that a threshold of batch and context would imply.

    cost_s: what chunking costs in every step and layer beside what the pipeline counts.
    """
    grid = overlap.engagement(plan.work, plan.rates, BATCHES, CONTEXTS, plan.picked.depth)
    batch, context = at
    one = overlap.engagement(plan.work, plan.rates, (batch,), (context,), plan.picked.depth)
    prompt = replace(plan.work, batch=1.0, context=float(context), q_len=context, q_chunk=PREFILL_CHUNK)
    base = overlap.serial_s(replace(prompt, q_chunk=None), plan.rates)
    fused = np.min([overlap.fused_s(prompt, plan.rates, float(s), plan.picked.depth) for s in overlap.SLICES])
    return Border(
        BATCHES, tuple(overlap.border(grid, cost_s)), at, float(one.saved_s[0, 0]), float(one.share[0, 0]),
        float((base - fused) / base),
    )  # fmt: skip
