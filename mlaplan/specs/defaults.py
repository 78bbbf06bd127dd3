"""Kernel efficiencies by class of chip, for chips that have no fit of their own. Figures in class_fits/*.yaml."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mlaplan.errors import MlaplanError
from mlaplan.specs import source
from mlaplan.specs.chip import EFFICIENCY_CLASSES, Chip, KernelDtype, KernelFit, KernelOp
from mlaplan.specs.validate import build

CLASS_FITS = Path(__file__).with_name("class_fits")
FALLBACK = "generic"
MATRIX_OPS = ("gemm", "bmm", "grouped_gemm", "lm_head")
WEIGHT_ONLY = ("int4", "fp4")

ClassFits = dict[KernelOp, dict[KernelDtype, KernelFit]]  # of one efficiency class, by operator and dtype


@cache
def class_fits(efficiency_class: str) -> dict[str, dict[str, KernelFit]]:
    """The shipped fits of a class, read once."""
    found: dict[str, dict[str, KernelFit]] = build(ClassFits, source.read(CLASS_FITS / f"{efficiency_class}.yaml"))
    return found


@cache
def default_kernel(efficiency_class: str, op: str, dtype: str) -> KernelFit:
    """The fit of the class, else of the generic class; always `assumed`, and its source says which it is."""
    for owner in dict.fromkeys((efficiency_class, FALLBACK)):
        fit = class_fits(owner).get(op, {}).get(dtype)
        if fit is not None:
            source_text = f"class default: {owner} {op} {dtype}; {fit.source}"
            return fit.model_copy(update={"confidence": "assumed", "source": source_text})
    known = sorted({d for owner in EFFICIENCY_CLASSES for d in class_fits(owner).get(op, {})})
    have = f"fits of {op} exist for {', '.join(known)}" if known else f"no fit of {op} exists at all"
    raise MlaplanError(f"no efficiency is known for {op} in {dtype} on class {efficiency_class}; {have}")


def kernels(chip: Chip) -> dict[str, dict[str, KernelFit]]:
    """The fit in use for every operator and dtype: the chip's own, then its class's, then the generic one."""
    found: dict[str, dict[str, KernelFit]] = {}
    levels = [chip.efficiency, *(class_fits(c) for c in (chip.efficiency_class, FALLBACK))]
    for level in levels:
        for op, fits in level.items():
            for dtype in fits:
                if dtype in chip.efficiency.get(op, {}) or _runs(chip, op, dtype):
                    found.setdefault(op, {}).setdefault(dtype, chip.kernel(op, dtype))
    return found


def _runs(chip: Chip, op: str, dtype: str) -> bool:
    """Whether the chip multiplies in this dtype; a cache may be narrower, and weights as well."""
    narrow = dtype in WEIGHT_ONLY or (op not in MATRIX_OPS and dtype not in ("bf16", "fp16"))
    return narrow or dtype.removesuffix("_block") in chip.peak
