"""Warnings about chip figures that are possible but are usually a slip: sparse peaks, overrides of what is not read."""

from __future__ import annotations

from collections.abc import Iterator

from mlaplan.errors import Problem
from mlaplan.specs.chip import Chip
from mlaplan.specs.source import Document

# Dense matrix rate of a dtype as a multiple of the bf16 (or fp16) rate of the same chip.
# Source: NVIDIA A100, H100 and Blackwell architecture whitepapers, AMD CDNA3 and CDNA4 whitepapers.
DENSE_RATIO = {"tf32": 0.5, "bf16": 1.0, "fp16": 1.0, "fp8": 2.0, "int8": 2.0, "fp4": 4.0, "int4": 4.0}

# Dense bf16 FLOP per core and cycle of a full part of the class, same sources.
DENSE_PER_CYCLE = {
    "nvidia-ampere": 2048.0,
    "nvidia-hopper": 4096.0,
    "nvidia-blackwell": 8192.0,
    "amd-cdna3": 2048.0,
    "amd-cdna4": 4096.0,
}
SPARSE = (1.8, 2.2)  # the figure over what is expected, when structured sparsity was counted


def warnings(chip: Chip, document: Document) -> list[Problem]:
    """Peaks about twice what the chip's other figures imply; link figures set beside measurements that hold instead."""
    sparse = [
        document.problem(
            ("peak", dtype, "value"),
            f"peak.{dtype}: {_shown(chip, dtype)} looks like a sparsity figure, {ratio:.1f} x {reason}",
            expected="the dense rate",
            severity="warning",
        )
        for dtype, ratio, reason in _sparse(chip)
    ]
    return sparse + list(_unread(chip, document))


def _unread(chip: Chip, document: Document) -> Iterator[Problem]:
    """A link's datasheet figures price only the collectives that have no measured fit."""
    for tier in ("scale_up", "scale_out"):
        link = getattr(chip, tier)
        if link is None or not link.collectives:
            continue
        for figure in ("bandwidth", "efficiency", "latency"):
            if (tier, figure) in document.overrides:
                measured = list(link.collectives)
                yield document.problem(
                    (tier, figure),
                    f"{tier}.{figure} prices only what is not measured: {', '.join(measured)} keep their fits",
                    expected=f"{tier}.collectives.{measured[0]}.bandwidth=x0.5 and the like to vary those",
                    severity="warning",
                )


def _sparse(chip: Chip) -> Iterator[tuple[str, float, str]]:
    base = next((dtype for dtype in ("bf16", "fp16") if dtype in chip.peak), None)
    if base is None:
        return
    base_peak = float(chip.peak[base])
    per_cycle = DENSE_PER_CYCLE.get(chip.efficiency_class)
    if per_cycle is not None:
        ratio = base_peak / (per_cycle * float(chip.cores) * float(chip.clock))
        if _twice(ratio):
            yield base, ratio, f"what its cores and clock give at {per_cycle:.0f} FLOP a cycle"
    for dtype, figure in chip.peak.items():
        if dtype in DENSE_RATIO and dtype != base:
            ratio = float(figure) / (base_peak * DENSE_RATIO[dtype] / DENSE_RATIO[base])
            if _twice(ratio):
                yield dtype, ratio, f"what its {base} rate implies"


def _twice(ratio: float) -> bool:
    return SPARSE[0] <= ratio <= SPARSE[1]


def _shown(chip: Chip, dtype: str) -> str:
    from mlaplan.units import format_flops

    return format_flops(float(chip.peak[dtype]))
