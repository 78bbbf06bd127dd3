"""Gathering the latent cache over a group and attending to it, serially or slice by slice.

Each of N ranks holds 1/N of every sequence and receives the rest, (N-1)/N B S row bytes, in every step and layer.

    serial           the whole gather, then the kernel: the gathered cache goes through device memory
    query chunking   groups of whole sequences: the gather of one runs beside the kernel of another, two buffers
    fused            slices of the gather start tasks as they arrive, two staging buffers
    deep pipeline    the same with more buffers

Compute is absorbed (2 rows (2 d_c + d_r) FLOP a token) or naive (keys and values of every head recovered from the
latent first: 2 d_c h (d_n + d_v) more a token and query chunk). A slice is worked on in tiles of rows x tokens, a
wave of as many tiles as there are cores at a time.
Left out: skew between ranks, and what other traffic takes of the link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.costs import chain, kv, sram
from mlaplan.costs import collectives as net
from mlaplan.costs.precision import attention_peak
from mlaplan.costs.roofline import Numeric, ceil_div, smooth_max
from mlaplan.costs.slices import Pipeline

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import MLA

SLICES = tuple(2**k for k in range(12, 21))  # 4 KiB to 1 MiB
DEPTHS = tuple(range(1, 17))
PLATEAU = 0.02  # a step within this part of the best is as good
RESCALE_FLOPS = 2.0  # a multiplication and an addition for each output element
MATRIX_OVER_VECTOR = 16.0  # where neither a vector nor an fp32 rate is known


@dataclass(frozen=True, slots=True)
class Work:
    """One attention block of a decode step on one chip; batch and context may be arrays."""

    attention: MLA
    form: str
    batch: Numeric
    context: Numeric
    heads: int  # on this chip
    ranks: int
    q_len: Numeric = 1
    q_chunk: int | None = None  # query tokens of a task; None: all
    kv_dtype: str = "bf16"
    from_memory: bool = False  # slices come from the chip's own memory: nothing is there before, ranks do not count

    @property
    def row_bytes(self) -> float:
        return kv.row_bytes(self.attention, self.kv_dtype)

    @property
    def tokens(self) -> Numeric:
        return self.batch * self.context

    @property
    def received_bytes(self) -> Numeric:
        """(N-1)/N B S row: what the rank does not hold. [B]"""
        return self.missing * self.tokens * self.row_bytes

    @property
    def missing(self) -> float:
        """Part of the cache that comes in slices."""
        return 1.0 if self.from_memory else (self.ranks - 1) / self.ranks

    @property
    def chunks(self) -> Numeric:
        """Query chunks of a sequence."""
        return ceil_div(self.q_len, self.q_chunk) if self.q_chunk else 1


class Rates(NamedTuple):
    """What the chip and the link do in a second, and fixed times; `assumed` names figures that stand in for others."""

    link_bytes_per_s: float
    latency_s: float
    descriptor_s: float
    switch_s: float
    kernel_s: float
    matrix_flops_per_s: float
    vector_flops_per_s: float
    memory_bytes_per_s: float
    norm: float
    cores: int
    row_tile: int
    token_tile: int
    assumed: tuple[str, ...] = ()


def rates(chip: Chip, ranks: int, form: str) -> Rates:
    """Rates of a chip in a group. The link of a group that spans nodes is the network between them."""
    assumed: list[str] = []

    def first(name: str, *choices: tuple[str, Any]) -> float:
        """The first figure that the chip states; says so where it is not the one asked for."""
        for i, (label, figure) in enumerate(choices):
            if figure is not None:
                if i:
                    assumed.append(f"{name} as {label}")
                return float(figure)
        return 0.0

    over = chip.overheads
    descriptor = first(
        "DMA descriptor", ("descriptor", chip.dma.descriptor if chip.dma else None), ("core sync", over.core_sync),
        ("kernel floor", over.kernel),
    )  # fmt: skip
    switch = first(
        "task switch", ("switch", over.task_switch), ("core sync", over.core_sync), ("kernel floor", over.kernel)
    )
    peak = attention_peak(chip, "bf16")
    vector = max((float(f) for f in chip.vector.values()), default=0.0)
    if not vector:
        vector = float(chip.peak["fp32"]) if "fp32" in chip.peak else peak / MATRIX_OVER_VECTOR
        assumed.append("vector rate as " + ("fp32 peak" if "fp32" in chip.peak else "1/16 of the matrix rate"))
    fit = chip.kernel("mla_decode" if form == "absorbed" else "gemm", "bf16")
    link, latency = tier(chip, ranks)
    return Rates(
        link, latency, descriptor, switch, float(over.kernel), fit.compute * peak, vector,
        fit.memory * float(chip.memory.bandwidth), fit.norm, round(float(chip.cores)),
        chip.padding.attention_rows, chip.padding.kv_tokens, tuple(assumed),
    )  # fmt: skip


class Fixed(NamedTuple):
    """Ends of the fixed costs of a slice, descriptor and task switch; `assumed` names those without a measurement."""

    low: tuple[float, float]
    high: tuple[float, float]
    assumed: tuple[str, ...]


def fixed_costs(chip: Chip) -> Fixed:
    """What a slice costs beside its bytes, as an interval: the figures that `rates` takes the middle of. [s]"""
    over, dma = chip.overheads, chip.dma
    descriptor = (dma.descriptor if dma else None) or over.core_sync or over.kernel
    switch = over.task_switch or over.core_sync or over.kernel
    named = (("descriptor", descriptor), ("task switch", switch))
    ends = [(float(f.bounds[0]), float(f.bounds[2])) for _, f in named]
    unknown = tuple(name for name, f in named if f.confidence == "assumed")
    return Fixed((ends[0][0], ends[1][0]), (ends[0][1], ends[1][1]), unknown)


def link_jitter(chip: Chip, ranks: int) -> Any:
    """The jitter figure of the slowest link of a group: how much longer a single slice may take; None if not stated."""
    inside = ranks <= chip.scale_up.chips_per_node or chip.scale_out is None
    link = chip.scale_up if inside else chip.scale_out
    assert link is not None
    return link.jitter


def tier(chip: Chip, ranks: int) -> tuple[float, float]:
    """(bytes per second that a rank receives, latency of a slice) of the slowest link of a group."""
    if ranks <= chip.scale_up.chips_per_node or chip.scale_out is None:
        up = chip.scale_up
        latency = float(up.latency) if up.latency is not None else float(chip.overheads.collective)
        return float(net.link_bandwidth(up, min(ranks, up.chips_per_node))), latency
    out = chip.scale_out
    efficiency = float(out.efficiency) if out.efficiency is not None else net.DEFAULT_LINK_EFFICIENCY
    hop = float(out.latency) if out.latency is not None else 0.0
    return float(out.bandwidth) * efficiency, float(chip.overheads.collective) + hop


# ---- compute ----


def tile_flops(w: Work, r: Rates) -> tuple[float, Numeric]:
    """(FLOP of one tile of one chunk, tiles that a tile of tokens makes)."""
    a = w.attention
    q = w.q_len if w.q_chunk is None else np.minimum(w.q_len, w.q_chunk)
    if w.form == "absorbed":
        rows = q * w.heads
        return 2.0 * r.row_tile * r.token_tile * (2 * a.kv_lora_rank + a.qk_rope_head_dim), ceil_div(rows, r.row_tile)
    recover = 2.0 * a.kv_lora_rank * (a.qk_nope_head_dim + a.v_head_dim)
    scores = 2.0 * q * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim)
    return r.token_tile * (recover + scores), w.heads


def compute_s(w: Work, r: Rates, tokens: Numeric) -> Numeric:
    """One query chunk against `tokens` cached tokens, in whole tiles and waves. [s]"""
    flops, per_token_tile = tile_flops(w, r)
    tiles = ceil_div(tokens, r.token_tile) * per_token_tile
    return np.ceil(tiles / r.cores) * flops * r.cores / r.matrix_flops_per_s


def rescale_s(w: Work, r: Rates) -> Numeric:
    """The accumulator of one chunk, multiplied by exp(old maximum - new) once a slice. [s]"""
    q = w.q_len if w.q_chunk is None else np.minimum(w.q_len, w.q_chunk)
    width = w.attention.kv_lora_rank if w.form == "absorbed" else w.attention.v_head_dim
    return RESCALE_FLOPS * q * w.heads * width / r.vector_flops_per_s


def whole_s(w: Work, r: Rates) -> Numeric:
    """All chunks against all tokens. [s]"""
    return w.chunks * compute_s(w, r, w.tokens)


# ---- modes ----


def serial_s(w: Work, r: Rates) -> Numeric:
    """Gather, then one kernel that reads the gathered cache back from device memory. [s]"""
    comm = r.latency_s * (w.ranks > 1) + w.received_bytes / r.link_bytes_per_s
    memory = (w.received_bytes + w.tokens * w.row_bytes) / r.memory_bytes_per_s
    return comm + r.kernel_s + smooth_max(whole_s(w, r), memory, r.norm)


def chunked_s(w: Work, r: Rates, groups: Numeric) -> Numeric:
    """The same in `groups` of whole sequences, the gather of one beside the kernel of another. [s]"""
    one = replace(w, batch=w.batch / groups)
    comm = r.latency_s * (w.ranks > 1) + one.received_bytes / r.link_bytes_per_s
    memory = (one.received_bytes + one.tokens * w.row_bytes) / r.memory_bytes_per_s
    return chain.two_stage_s(comm, r.kernel_s + smooth_max(whole_s(one, r), memory, r.norm), groups)


def best_groups(w: Work, r: Rates) -> tuple[int, float]:
    """(groups of sequences, step) of the best query chunking: any number up to one sequence each."""
    counts = np.arange(1, int(w.batch) + 1)
    times = chunked_s(w, r, counts)
    best = int(np.argmin(times))
    return int(counts[best]), float(times[best])


def slice_count(w: Work, slice_bytes: Numeric) -> Numeric:
    """Slices of about `slice_bytes`, equal in size; at least one."""
    return np.maximum(np.ceil(w.received_bytes / slice_bytes), 1.0)


def slice_tokens(w: Work, slice_bytes: Numeric) -> Numeric:
    """Tokens of one task: those of a slice, and as large a share of what the rank holds itself."""
    return np.ceil(w.tokens / slice_count(w, slice_bytes))


def fused_s(w: Work, r: Rates, slice_bytes: Numeric, depth: Numeric) -> Numeric:
    """Slices as they come, the closed form of `slices`; each task takes a share of the rank's own part along. [s]"""
    n = slice_count(w, slice_bytes)
    task = r.switch_s + compute_s(w, r, slice_tokens(w, slice_bytes)) + rescale_s(w, r)
    times = (r.descriptor_s, w.received_bytes / n / r.link_bytes_per_s, w.chunks * task)
    return r.kernel_s + chain.equal_items_s(times, r.latency_s, n, depth)


def pipeline(w: Work, r: Rates, slice_bytes: float, depth: int) -> Pipeline:
    """The same as a pipeline for the timeline; `kernel_s` is its finish."""
    n = int(slice_count(w, slice_bytes))
    return Pipeline(
        n, depth, float(w.received_bytes / n / r.link_bytes_per_s),
        float(compute_s(w, r, slice_tokens(w, slice_bytes))), r.latency_s, r.descriptor_s, r.switch_s,
        float(rescale_s(w, r)), finish_s=r.kernel_s, tasks=int(w.chunks),
    )  # fmt: skip


# ---- choice of slice and depth ----


class Choice(NamedTuple):
    """One slice size and depth with its step, what spills, and whether it is as good as the best."""

    slice_bytes: int
    depth: int
    step_s: float
    spill_s: float
    on_plateau: bool


def tile_of(w: Work, r: Rates, slice_bytes: float, depth: int) -> sram.Tile:
    """The tile of one core: heads are spread over the cores where each is worked on alone (naive), tokens else."""
    q = int(np.max(w.q_len)) if w.q_chunk is None else min(int(np.max(w.q_len)), w.q_chunk)
    tokens = int(ceil_div(int(slice_bytes), int(w.row_bytes)))
    if w.form == "absorbed":
        return sram.Tile(q * w.heads, w.heads, int(ceil_div(tokens, r.cores)), depth)
    heads, sharing = int(ceil_div(w.heads, r.cores)), max(r.cores // w.heads, 1)
    return sram.Tile(q * heads, heads, int(ceil_div(tokens, sharing)), depth, weights_resident=True)


def sweep(chip: Chip, w: Work, r: Rates, slices: tuple[int, ...] = SLICES) -> list[Choice]:
    """Every slice size and depth, spills included. A slice larger than all there is is left out."""
    most = max(float(w.received_bytes), slices[0])
    sizes = [s for s in slices if s < 2 * most]
    grid = np.array([(s, d) for s in sizes for d in DEPTHS], dtype=float)
    times = fused_s(w, r, grid[:, 0], grid[:, 1])
    found = []
    for (size, depth), time_s in zip(grid, times, strict=True):
        parts = sram.working_set(w.attention, tile_of(w, r, size, int(depth)), w.form, w.row_bytes)
        n = int(slice_count(w, size)) * int(w.chunks)
        found.append((int(size), int(depth), float(time_s), sram.place(chip, parts, r.cores, n, int(depth)).spill_s))
    best = min(t + spill for _, _, t, spill in found)
    return [Choice(s, d, t + p, p, t + p <= (1 + PLATEAU) * best) for s, d, t, p in found]


def depth_for(p: Pipeline, jitter_s: float = 0.0) -> int:
    """Buffers that keep the slowest resource busy while one slice is late by `jitter_s`: ceil((L + J) / m)."""
    work = p.tasks * p.task_s
    whole = p.descriptor_s + p.transfer_s + p.latency_s + work
    slowest = max(p.descriptor_s, p.transfer_s, work)
    return int(np.ceil((whole + jitter_s) / slowest - 1e-9)) if slowest else 1


def jitter_covered_s(p: Pipeline) -> float:
    """How late a slice may be before `depth` buffers no longer hide it: d m - L, negative where they never do. [s]"""
    work = p.tasks * p.task_s
    return p.depth * max(p.descriptor_s, p.transfer_s, work) - (p.descriptor_s + p.transfer_s + p.latency_s + work)


def pick(choices: list[Choice], w: Work, r: Rates, jitter: float) -> Choice:
    """On the plateau, the least staging that rides out one slice slower by `jitter` of its transfer and latency.

    What stays in the on-chip memory goes before what rides out jitter.
    """
    level = [c for c in choices if c.on_plateau]
    level = [c for c in level if c.spill_s == 0] or level

    def holds(c: Choice) -> bool:
        p = pipeline(w, r, c.slice_bytes, c.depth)
        return c.depth >= min(depth_for(p, jitter * (p.transfer_s + p.latency_s)), DEPTHS[-1])

    steady = [c for c in level if holds(c)] or level
    return min(steady, key=lambda c: (c.slice_bytes * c.depth, c.depth))


def optimal_overhead_s(w: Work, r: Rates, slice_bytes: float) -> float:
    """Cost per slice for which this slice would be the best one where compute sets the pace.

    T(s) = s / W + (V / s) o is least at s = sqrt(V o W), so o = s^2 / (V W). [s]
    """
    return float(slice_bytes**2 / (w.received_bytes * r.link_bytes_per_s))


class Engagement(NamedTuple):
    """Saving of slices over the serial gather on a grid of batches and contexts."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    saved_s: Any  # [batch, context]
    share: Any


def engagement(w: Work, r: Rates, batches: tuple[int, ...], contexts: tuple[int, ...], depth: int) -> Engagement:
    """Serial less the best fused step, at this depth, for every batch and context."""
    batch, context = np.meshgrid(np.array(batches, float), np.array(contexts, float), indexing="ij")
    grid = replace(w, batch=batch, context=context)
    base = serial_s(grid, r)
    fused = np.min([fused_s(grid, r, float(s), depth) for s in SLICES], axis=0)
    return Engagement(batches, contexts, base - fused, (base - fused) / base)


def border(e: Engagement, cost_s: float = 0.0) -> list[int | None]:
    """For each batch the least context at which chunking saves more than it costs; None where it never does."""
    out: list[int | None] = []
    for row in e.saved_s:
        paying = [c for c, saved in zip(e.contexts, row, strict=True) if saved > cost_s]
        out.append(paying[0] if paying else None)
    return out
