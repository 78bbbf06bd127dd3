"""A chip with one figure made larger or smaller, and everything that was measured of it with it.

A link's bandwidth stands in its datasheet figure and in the fits of its collectives, a kernel's start in every fit:
varied are all of them, since the cost model reads the fits where there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlaplan.specs.defaults import kernels

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip, Link

Change = Callable[["Chip", float], "Chip"]


def times(figure: Any, factor: float) -> Any:
    """A figure with its value and bounds multiplied; None stays."""
    if figure is None:
        return None
    known = {name: getattr(figure, name) for name in ("value", "low", "high")}
    return figure.model_copy(update={name: v * factor for name, v in known.items() if v is not None})


def memory_bandwidth(chip: Chip, factor: float) -> Chip:
    changed = chip.memory.model_copy(update={"bandwidth": times(chip.memory.bandwidth, factor)})
    return chip.model_copy(update={"memory": changed})


def memory_capacity(chip: Chip, factor: float) -> Chip:
    changed = chip.memory.model_copy(update={"capacity": times(chip.memory.capacity, factor)})
    return chip.model_copy(update={"memory": changed})


def matrix_peak(chip: Chip, factor: float) -> Chip:
    return chip.model_copy(update={"peak": {dtype: times(f, factor) for dtype, f in chip.peak.items()}})


def kernel_start(chip: Chip, factor: float) -> Chip:
    """The floor of every kernel."""
    fits = {
        op: {dtype: fit.model_copy(update={"floor": fit.floor * factor}) for dtype, fit in by_dtype.items()}
        for op, by_dtype in kernels(chip).items()
    }
    overheads = chip.overheads.model_copy(update={"kernel": times(chip.overheads.kernel, factor)})
    return chip.model_copy(update={"efficiency": fits, "overheads": overheads})


def scale_up_bandwidth(chip: Chip, factor: float) -> Chip:
    return chip.model_copy(update={"scale_up": _faster(chip.scale_up, factor)})


def scale_out_bandwidth(chip: Chip, factor: float) -> Chip:
    assert chip.scale_out is not None
    return chip.model_copy(update={"scale_out": _faster(chip.scale_out, factor)})


def scale_up_latency(chip: Chip, factor: float) -> Chip:
    """Start of every collective inside a node."""
    overheads = chip.overheads.model_copy(update={"collective": times(chip.overheads.collective, factor)})
    return chip.model_copy(update={"scale_up": _later(chip.scale_up, factor), "overheads": overheads})


def scale_out_latency(chip: Chip, factor: float) -> Chip:
    assert chip.scale_out is not None
    return chip.model_copy(update={"scale_out": _later(chip.scale_out, factor)})


def _faster(link: Link, factor: float) -> Link:
    fits = {
        op: fit.model_copy(update={"bandwidth": tuple(b * factor for b in fit.bandwidth)})
        for op, fit in link.collectives.items()
    }
    return link.model_copy(update={"bandwidth": times(link.bandwidth, factor), "collectives": fits})


def _later(link: Link, factor: float) -> Link:
    fits = {
        op: fit.model_copy(update={"alpha": tuple(a * factor for a in fit.alpha)})
        for op, fit in link.collectives.items()
    }
    return link.model_copy(update={"latency": times(link.latency, factor), "collectives": fits})


def figures(chip: Chip, devices: int) -> dict[str, Change]:
    """What may matter on so many chips: name -> how it is changed."""
    found: dict[str, Change] = {
        "memory bandwidth": memory_bandwidth,
        "memory capacity": memory_capacity,
        "matrix peak, all dtypes": matrix_peak,
        "start of a kernel": kernel_start,
    }
    if devices > 1:
        found["scale-up bandwidth"] = scale_up_bandwidth
        found["scale-up latency"] = scale_up_latency
    if devices > chip.scale_up.chips_per_node and chip.scale_out is not None:
        found["scale-out bandwidth"] = scale_out_bandwidth
        found["scale-out latency"] = scale_out_latency
    return found
