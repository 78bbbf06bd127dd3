"""Time of one kernel from its work and its fit: the roofline, and what measured kernels add to it.

    t = t0 + wave + split + ramp + row + active + stored + smooth maximum of compute and memory

    wave    w max(blocks / cores - 1, 0)           each further wave of thread blocks pays its start again
    split   s max(1 - blocks / cores, 0)           sequences split over idle cores are merged by a second kernel;
                                                   where a block has more than two tiles, so that splitting pays
    ramp    r log2(units / cores), 0 to 4 doublings, while the stream of tiles builds up to full bandwidth
    row     one step for each row of a token copy  permutation, quantisation and weighted sum around expert GEMMs
    active  one step for each expert with tokens   its tiles start anew
    stored  one step for each expert of the chip   grouped kernels that visit every problem, empty or not

A causal prefill waits for its longest thread block, the last tile of queries over all keys: that block's time is
joined to the mean over the cores. `passes` counts extra reads and writes of queries and outputs (rotary embedding
and cache kernels that belong to the call).

A product [m, k] x [k, n] runs as tiles h x w in waves over the cores, and each tile is fed (h + w) k operands:

    compute = min over h in (tile / 2, tile) of  waves(h) cores k (2 h w / (b peak) + (h + w) bytes / supply)
    waves   = blocks / cores, and `fill` of what the last wave leaves empty

With every optional constant at its default the plain roofline remains. All of it takes scalars and arrays, and
rises with batch and context except where a split ends. The forms follow what published tables of MLA decode,
prefill and GEMM kernels show (ai-dynamo/aiconfigurator, systems/data), and FlashMLA's tile scheduler
(deepseek-ai/FlashMLA, csrc/smxx/get_mla_metadata.cu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs.roofline import ROUNDING, Numeric, gemm_flops, pad_to, smooth_max

if TYPE_CHECKING:
    from mlaplan.specs.fit import KernelFit

DOUBLINGS = 4.0  # of the work per core over which a ramp builds up
QUANTISE_BYTES = 3.0  # one element read in 16 bit, one written in 8


class Work(NamedTuple):
    """What one call has to do. FLOP as they are and as tiles make them; bytes moved."""

    flops: Numeric
    padded: Numeric
    nbytes: Numeric
    io_bytes: Numeric = 0.0  # the part of the bytes that is queries and outputs
    blocks: Numeric = 0.0  # thread blocks before any sequence is split
    units: Numeric = 0.0  # tiles of keys over all thread blocks
    longest: Numeric = 0.0  # FLOP of the longest thread block
    rows: Numeric = 0.0  # token copies
    active: Numeric = 0.0  # experts that have tokens
    stored: Numeric = 0.0  # experts that the chip holds


class Timing(NamedTuple):
    """Time of a call and what it is made of. [s]"""

    time_s: Numeric
    compute_s: Numeric
    memory_s: Numeric
    floor_s: Numeric


def timing(fit: KernelFit, work: Work, peak: float, bandwidth: float, cores: float) -> Timing:
    """Time of one call on a chip with this dense peak [FLOP/s], bandwidth [B/s] and number of cores."""
    compute_s = work.padded / (fit.compute * peak)
    if fit.longest:
        alone_s = fit.longest * work.longest * cores / (fit.compute * peak)
        compute_s = smooth_max(compute_s, alone_s, fit.norm)
    nbytes = work.nbytes + fit.passes * work.io_bytes if fit.passes else work.nbytes
    return _joined(fit, compute_s, nbytes / (fit.memory * bandwidth), fit.floor + _steps_s(fit, work, cores))


def _steps_s(fit: KernelFit, work: Work, cores: float) -> Numeric:
    """The optional terms that do not overlap with the work. [s]"""
    extra: Numeric = 0.0
    if fit.wave:
        extra = extra + fit.wave * np.maximum(work.blocks / cores - 1.0, 0.0)
    if fit.split:
        extra = extra + fit.split * np.maximum(1.0 - work.blocks / cores, 0.0) * (work.units > 2.0 * work.blocks)
    if fit.ramp:
        extra = extra + fit.ramp * np.clip(np.log2(np.maximum(work.units / cores, 1.0)), 0.0, DOUBLINGS)
    if fit.row:
        extra = extra + fit.row * work.rows
    if fit.active:
        extra = extra + fit.active * work.active
    if fit.stored:
        extra = extra + fit.stored * work.stored
    return extra


def _joined(fit: KernelFit, compute_s: Numeric, memory_s: Numeric, floor_s: Numeric) -> Timing:
    return Timing(floor_s + smooth_max(compute_s, memory_s, fit.norm), compute_s, memory_s, floor_s)


def product_compute_s(
    fit: KernelFit, m: Numeric, k: Numeric, n: Numeric, peak: float, cores: float, operand_bytes: float, rows: int
) -> Numeric:
    """Time of the multiplications of [m, k] x [k, n]; `rows` is the padding of m where the fit has no tiles. [s]"""
    if fit.tile is None:
        return gemm_flops(pad_to(m, rows), k, n) / (fit.compute * peak)
    width, best = float(fit.tile), None
    for height in (width / 2.0, width):
        waves = np.ceil(m / height - ROUNDING) * np.ceil(n / width - ROUNDING) / cores
        if fit.fill:
            waves = waves + fit.fill * (np.ceil(waves - ROUNDING) - waves)
        step = 2.0 * height * width / (fit.compute * peak)
        if fit.supply is not None:
            step = step + (height + width) * operand_bytes / fit.supply
        t = waves * cores * k * step
        best = t if best is None else np.minimum(best, t)
    return best


def product_timing(
    fit: KernelFit, m: Numeric, k: Numeric, n: Numeric, nbytes: Numeric, peak: float, bandwidth: float, cores: float,
    operand_bytes: float, rows: int,
) -> Timing:  # fmt: skip
    """Time of [m, k] x [k, n] that moves `nbytes`, with the quantisation of its input and the store of its output."""
    compute_s = product_compute_s(fit, m, k, n, peak, cores, operand_bytes, rows)
    floor_s: Numeric = fit.floor
    if fit.quantise:
        floor_s = floor_s + fit.quantise * QUANTISE_BYTES * m * k / bandwidth
    if fit.store:
        floor_s = floor_s + fit.store * 2.0 * m * n / bandwidth
    return _joined(fit, compute_s, nbytes / (fit.memory * bandwidth), floor_s)
