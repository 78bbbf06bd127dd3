"""One chip: what a dtype means on it, what a kernel takes, and a ledger that adds kernels up."""

from __future__ import annotations

import math
from dataclasses import dataclass
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

    def kernel(self, op: str, fit_name: str, peak: float, flops: float, nbytes: float) -> None:
        """t0 + smooth maximum of FLOP / (b peak) and bytes / (a BW)."""
        fit = self.case.chip.kernel(op, fit_name)
        compute_s = flops / (fit.compute * peak)
        memory_s = nbytes / (fit.memory * float(self.case.chip.memory.bandwidth))
        self.chip_s += fit.floor + smooth_max(compute_s, memory_s, fit.norm)

    def gemm(self, part: str, m: float, k: float, n: float) -> None:
        """[m, k] x [k, n]: 2 m k n FLOP with m in whole tiles; weights once, 16-bit activations in and out."""
        rows = tiles(m, self.case.chip.padding.gemm_rows)
        name, peak = products(self.case, part)
        nbytes = k * n * part_width(self.case, part) + (m * k + m * n) * WIRE
        self.kernel("gemm", name, peak, 2.0 * rows * k * n, nbytes)

    def per_head(self, heads: int, m: float, k: int, n: int) -> None:
        """`heads` products [m, k] x [k, n], all in 16 bit."""
        wide = sixteen_bit(self.case.chip)
        rows = tiles(m, self.case.chip.padding.gemm_rows)
        nbytes = heads * (k * n + m * k + m * n) * WIRE
        self.kernel("bmm", wide, float(self.case.chip.peak[wide]), 2.0 * heads * rows * k * n, nbytes)

    def core(self, op: str, flops: float, nbytes: float, dtype: str | None = None) -> None:
        """An attention core in `dtype`; if not given in the cache's, or in 16 bit where the engine widens it."""
        if dtype is None:
            native = self.case.engine.core_mode(self.case.kv_dtype).compute == "native"
            dtype = self.case.kv_dtype if native else "bf16"
        peak = self.case.chip.peak
        fast = dtype in ("fp8", "int8") and dtype in peak
        self.kernel(op, dtype, float(peak[dtype if fast else sixteen_bit(self.case.chip)]), flops, nbytes)

    def move(self, nbytes: float) -> None:
        """A kernel that only moves memory."""
        fit = self.case.chip.kernel("elementwise", "bf16")
        self.chip_s += fit.floor + nbytes / (fit.memory * float(self.case.chip.memory.bandwidth))

    def cast(self, elements: float) -> None:
        """Widening of the whole cache before the core, where the engine does that."""
        mode = self.case.engine.core_mode(self.case.kv_dtype)
        if mode.compute == "cast_pool":
            self.chip_s += elements * mode.cast_bytes / (mode.cast_share * float(self.case.chip.memory.bandwidth))

    def collective(self, op: str, size: float, ranks: int, stride: int = 1) -> None:
        """A collective over `ranks` chips that are `stride` apart."""
        limit = dict(self.case.engine.custom_all_reduce).get(ranks, 0.0) if op == "all_reduce" else 0.0
        self.link_s += links.collective(self.case.chip, op, size, ranks, stride, limit)

    def add(self, other: Ledger) -> None:
        self.chip_s += other.chip_s
        self.link_s += other.link_s
