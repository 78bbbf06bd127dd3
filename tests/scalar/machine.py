"""One chip: what a dtype means on it, what a kernel takes, and a ledger that adds kernels up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from . import links

SIXTEEN_BIT = ("bf16", "fp16")
PLAIN_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.5}
WIRE = 2.0  # bytes of an activation


@dataclass(frozen=True)
class Case:
    """A chip, a model and an engine under one choice of precision."""

    chip: Any
    model: Any
    engine: Any
    weight_dtype: str
    kv_dtype: str
    redundant_experts: int = 0


# ---- dtypes ----


def checkpoint_dtype(model: Any) -> str:
    """What the checkpoint is quantised to: routed experts first, then dense blocks, attention, shared experts."""
    for part in ("routed", "dense", "attention", "shared"):
        if model.weight_dtype(part) not in SIXTEEN_BIT:
            return model.weight_dtype(part)
    return model.weights.default


def dtype_of(model: Any, part: str, target: str) -> str:
    """Parts in the checkpoint's dtype go to the target, parts that it left alone stay."""
    if part == "norm":
        return "bf16"
    stored = model.weight_dtype(part)
    return target if stored not in SIXTEEN_BIT and stored == checkpoint_dtype(model) else stored


def weight_width(model: Any, dtype: str) -> float:
    """Bytes per weight: the number, and its share of a scale where the checkpoint has scales of its own."""
    width, w = PLAIN_BYTES[dtype], model.weights
    if dtype not in SIXTEEN_BIT and dtype == checkpoint_dtype(model):
        if w.block is not None:
            return width + w.scale_bytes / (w.block[0] * w.block[1])
        if w.group is not None:
            return width + w.scale_bytes / w.group
    return width


def of_draft(case: Case) -> Case:
    """The case of an MTP layer, whose weights may have a dtype of their own."""
    model = case.model
    if model.weights.mtp is None:
        return case
    own = dict.fromkeys(("attention", "dense", "routed", "shared", "indexer"), model.weights.mtp)
    changed = model.model_copy(update={"weights": model.weights.model_copy(update=own)})
    return replace(case, model=changed, weight_dtype=dtype_of(model, "mtp", case.weight_dtype))


def part_width(case: Case, part: str) -> float:
    return weight_width(case.model, dtype_of(case.model, part, case.weight_dtype))


def sixteen_bit(chip: Any) -> str:
    return "bf16" if "bf16" in chip.peak else "fp16"


def products(case: Case, part: str) -> tuple[str, float]:
    """(name of the fit, dense peak) of products with the weights of a part."""
    dtype, peak = dtype_of(case.model, part, case.weight_dtype), case.chip.peak
    wide = sixteen_bit(case.chip)
    if dtype in SIXTEEN_BIT or dtype == "fp32":
        return wide, float(peak[wide])
    name = "fp8_block" if dtype == "fp8" and case.model.weights.block is not None else dtype
    return name, float(peak[dtype] if dtype in peak else peak[wide])


# ---- one kernel ----


def smooth_max(a: float, b: float, n: float) -> float:
    """(a^n + b^n)^(1/n)"""
    return max(a, b) if math.isinf(n) else (a**n + b**n) ** (1.0 / n)


def tiles(count: float, tile: int) -> int:
    """`count` rounded up to whole tiles; a count that is off a whole tile by rounding alone is that tile."""
    return math.ceil(count / tile - 1e-9) * tile


class Ledger:
    """Time on the chip and on the link, added up kernel by kernel."""

    def __init__(self, case: Case) -> None:
        self.case, self.chip_s, self.link_s = case, 0.0, 0.0

    def kernel(
        self, op: str, fit_name: str, peak: float, flops: float, nbytes: float, *, io: float = 0.0,
        blocks: float = 0.0, units: float = 0.0, longest: float = 0.0, rows: float = 0.0,
        active: float = 0.0, stored: float = 0.0,
    ) -> float:  # fmt: skip
        """t0 + smooth maximum of FLOP / (b peak) and bytes / (a BW), and the steps that do not overlap.

        Returns the smooth maximum alone.

        io: bytes of queries and outputs. blocks, units: thread blocks and their tiles. longest: FLOP of the longest
        thread block. rows: token copies of experts. active, stored: experts with tokens, and all of the chip.
        """
        fit, cores = self.case.chip.kernel(op, fit_name), float(self.case.chip.cores)
        compute_s = flops / (fit.compute * peak)
        if fit.longest:
            compute_s = smooth_max(compute_s, fit.longest * longest / (fit.compute * peak / cores), fit.norm)
        memory_s = (nbytes + fit.passes * io) / (fit.memory * float(self.case.chip.memory.bandwidth))
        busy = smooth_max(compute_s, memory_s, fit.norm)
        self.chip_s += fit.floor + busy
        self.chip_s += fit.wave * max(blocks - cores, 0.0) / cores
        if units > 2 * blocks:
            self.chip_s += fit.split * max(cores - blocks, 0.0) / cores
        if units > cores:
            self.chip_s += fit.ramp * min(math.log2(units / cores), 4.0)
        self.chip_s += fit.row * rows + fit.active * active + fit.stored * stored
        return busy

    def gemm(self, part: str, m: float, k: float, n: float) -> None:
        """[m, k] x [k, n]: 2 m k n FLOP with m in whole tiles; weights once, 16-bit activations in and out."""
        chip, (name, peak), width = self.case.chip, products(self.case, part), part_width(self.case, part)
        fit, bandwidth = chip.kernel("gemm", name), float(chip.memory.bandwidth)
        if fit.tile is None:
            compute_s = 2.0 * tiles(m, chip.padding.gemm_rows) * k * n / (fit.compute * peak)
        else:
            compute_s = min(self.tiled(fit, h, m, k, n, peak, width) for h in (fit.tile / 2, fit.tile))
        memory_s = (k * n * width + (m * k + m * n) * WIRE) / (fit.memory * bandwidth)
        # reading 16 bit and writing 8 to quantise the input, 16 bit more to store the output
        self.chip_s += (fit.quantise * m * k * 3 + fit.store * m * n * 2) / bandwidth
        self.chip_s += fit.floor + smooth_max(compute_s, memory_s, fit.norm)

    def tiled(self, fit: Any, height: float, m: float, k: float, n: float, peak: float, width: float) -> float:
        """Waves of tiles over the cores, each multiplied at the core's rate and fed at its part of the supply."""
        cores = float(self.case.chip.cores)
        blocks = tiles(m / height, 1) * tiles(n / fit.tile, 1)
        waves = blocks / cores
        waves = (1.0 - fit.fill) * waves + fit.fill * math.ceil(waves - 1e-9)
        multiply_s = 2.0 * height * fit.tile * k / (fit.compute * peak / cores)
        feed_s = 0.0 if fit.supply is None else (height + fit.tile) * k * width / (fit.supply / cores)
        return waves * (multiply_s + feed_s)

    def router(self, t: float, choices: int) -> None:
        """Scores of all experts; of few tokens by a kernel for the shape, a row a token at 256 experts."""
        most, hidden, experts = self.case.engine.small_router
        d = self.case.model.hidden_size
        if t > most or d != hidden or choices not in experts:
            self.gemm("router", t, d, choices)
            return
        _, peak = products(self.case, "router")
        nbytes = d * choices * part_width(self.case, "router") + (t * d + t * choices) * WIRE
        rows = 0.5 * t + 0.5 * t * choices / 256
        self.kernel("router", "bf16", peak, 2.0 * t * d * choices, nbytes, rows=rows)

    def per_head(self, heads: int, m: float, k: int, n: int) -> None:
        """`heads` products [m, k] x [k, n], all in 16 bit."""
        wide = sixteen_bit(self.case.chip)
        rows = tiles(m, self.case.chip.padding.gemm_rows)
        nbytes = heads * (k * n + m * k + m * n) * WIRE
        self.kernel("bmm", wide, float(self.case.chip.peak[wide]), 2.0 * heads * rows * k * n, nbytes)

    def core(
        self, op: str, flops: float, nbytes: float, dtype: str | None = None, *, widened: float = 0.0, **more: float
    ) -> None:
        """An attention core in `dtype`; if not given in the cache's, or in 16 bit where the engine widens it.

        widened: numbers that the vector units turn into 16 bit meanwhile.
        """
        if dtype is None:
            own = self.case.engine.core_mode(self.case.kv_dtype).compute == "native"
            dtype = self.case.kv_dtype if own or self.case.kv_dtype in ("int8", "fp8_ds_mla") else "bf16"
        peak = self.case.chip.peak
        fast = dtype in ("fp8", "int8") and dtype in peak
        rate = float(peak[dtype if fast else sixteen_bit(self.case.chip)])
        busy = self.kernel(op, dtype, rate, flops, nbytes, **more)
        if widened:
            norm = self.case.chip.kernel(op, dtype).norm
            self.chip_s += smooth_max(busy, self.vector_s(widened), norm) - busy

    def widens(self) -> bool:
        """Whether the cache has scales per group, which are multiplied in on the vector units."""
        grouped = self.case.kv_dtype in ("int8", "fp8_ds_mla")
        return grouped and self.case.engine.core_mode(self.case.kv_dtype).compute == "upcast"

    def vector_s(self, numbers: float) -> float:
        """Two FLOP a number at the share of the vector rate that conversions reach."""
        chip = self.case.chip
        rates = [float(rate) for rate in chip.vector.values()] or [float(chip.peak[sixteen_bit(chip)]) / 16]
        return 2 * numbers / (max(rates) * chip.kernel("kv_dequantise", self.case.kv_dtype).compute)

    def widen(self, numbers: float, nbytes: float) -> None:
        """A pass that turns so many numbers into 16 bit, and moves so many bytes."""
        if numbers > 0:
            fit = self.case.chip.kernel("kv_dequantise", self.case.kv_dtype)
            memory_s = nbytes / (fit.memory * float(self.case.chip.memory.bandwidth))
            self.chip_s += fit.floor + smooth_max(self.vector_s(numbers), memory_s, fit.norm)

    def move(self, nbytes: float) -> None:
        """A kernel that only moves memory."""
        fit = self.case.chip.kernel("elementwise", "bf16")
        self.chip_s += fit.floor + nbytes / (fit.memory * float(self.case.chip.memory.bandwidth))

    def norm(self, t: float, tp: int, dp: int) -> None:
        """Residual and norm; nothing where they are part of the sum over TP before them."""
        if not self.fused(t, tp, dp):
            self.move(4 * t * self.case.model.hidden_size * WIRE)

    def fused(self, t: float, tp: int, dp: int) -> bool:
        """Whether a sum over TP takes the norm after it with it."""
        most, alone = self.case.engine.fused_sum
        return tp > 1 and t <= most and not (alone and (dp > 1 or tp > self.case.chip.scale_up.chips_per_node))

    def sum_over_tp(self, t: float, tp: int, dp: int) -> None:
        """Sum of the TP ranks' partial outputs."""
        size, fits = t * self.case.model.hidden_size * WIRE, self.case.chip.scale_up.collectives
        if "all_reduce_fused" in fits and self.fused(t, tp, dp):
            self.link_s += links.fitted(fits["all_reduce_fused"], "all_reduce", size, tp)
        else:
            self.collective("all_reduce", size, tp)

    def cast(self, elements: float) -> None:
        """Widening of the whole cache before the core, where the engine does that."""
        mode = self.case.engine.core_mode(self.case.kv_dtype)
        if mode.compute != "cast_pool":
            return
        if self.case.kv_dtype in self.case.chip.efficiency.get("kv_cast", {}):
            self.kernel("kv_cast", self.case.kv_dtype, 1.0, 0.0, elements * mode.cast_bytes)
        else:
            self.chip_s += elements * mode.cast_bytes / (mode.cast_share * float(self.case.chip.memory.bandwidth))

    def collective(self, op: str, size: float, ranks: int, stride: int = 1) -> None:
        """A collective over `ranks` chips that are `stride` apart."""
        limit = dict(self.case.engine.custom_all_reduce).get(ranks, 0.0) if op == "all_reduce" else 0.0
        self.link_s += links.collective(self.case.chip, op, size, ranks, stride, limit)

    def add(self, other: Ledger) -> None:
        self.chip_s += other.chip_s
        self.link_s += other.link_s
