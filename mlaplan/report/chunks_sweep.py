"""Step of a gather over slice and depth in words: the plateau, its cliffs, and stated figures beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs import overlap, slices
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import wrapped
from mlaplan.report.words import kib
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.costs.chunks import GatherPlan
    from mlaplan.costs.study import Cliff, Stated, Study, Verdict

SHOWN_DEPTHS = (1, 2, 4, 8, 16)
BINDING = {
    "dma": "DMA descriptors",
    "link": "the link",
    "compute": "compute",
    "switch": "task switches",
    "staging": "staging buffers",
}


def sweep(s: Study, p: GatherPlan, stated: Stated | None) -> str:
    """Step time over slice and depth; the plateau and its cliffs."""
    by = {(c.slice_bytes, c.depth): c for c in p.sweep}
    sizes = sorted({c.slice_bytes for c in p.sweep})
    rows = []
    for size in sizes:
        cells = [by[size, d] for d in SHOWN_DEPTHS]
        rows.append((kib(size), *(_cell(c.step_s, c.on_plateau, c.spill_s) for c in cells)))
    columns = (text("slice"), *(Column(f"depth {d}") for d in SHOWN_DEPTHS))
    level = [c for c in p.sweep if c.on_plateau]
    least, most = min(c.slice_bytes for c in level), max(c.slice_bytes for c in level)
    said = [
        f"* within {overlap.PLATEAU:.0%} of the best, + part of the tile outside the on-chip memory. The plateau has "
        f"slices of {_range(least, most, sizes)}, {min(c.depth for c in level)} deep or deeper; {_below(p, least)}, "
        f"above it the first slice is late and the staging outgrows its memory. Picked: {kib(p.picked.slice_bytes)}, "
        f"{p.picked.depth} deep, which rides out one slice slower by {s.jitter:.0%}."
    ]
    if s.cliff is not None:
        said.append(_cliff(s.cliff))
    if stated is not None:
        said += [_verdict(v, stated) for v in s.verdicts]
    body = "\n".join(wrapped(one) for one in said)
    return f"Step over slice and depth, {p.work.form}\n{grid(columns, rows)}\n{body}"


def _below(p: GatherPlan, least: int) -> str:
    """What slices below the plateau pay, and what sets the pace of those half as large as its least."""
    r = p.rates
    pays = f"{format_seconds(r.descriptor_s)} for its descriptor and {format_seconds(r.switch_s)} for a task"
    if least == overlap.SLICES[0]:
        return f"every slice pays {pays}"
    pace = slices.binding(overlap.pipeline(p.work, r, least // 2, p.picked.depth))
    return f"half of that would be bound by {BINDING[pace]}: every slice pays {pays}"


def _cliff(c: Cliff) -> str:
    """How far the lower cliff moves with what is not known of a slice's fixed costs."""
    known = f"assumed figures ({' and '.join(c.assumed)})" if c.assumed else "figures with a range"
    if c.costs_s[0] == c.costs_s[1]:
        return f"The lower cliff rests on {known} of unknown range."
    costs = [f"{format_seconds(d)} a descriptor and {format_seconds(t)} a task" for d, t in c.costs_s]
    starts = [kib(least) for least in c.least_bytes]
    steps = [format_seconds(step) for step in c.step_s]
    pays = ["faster" if p else "not faster" for p in c.pays]
    moves = starts[0] != starts[1]
    base = f"The lower cliff rests on {known}" if moves else f"The lower cliff stays where {known} vary"
    return (
        f"{base}: with {costs[0]} the plateau begins at {starts[0]} and slices take {steps[0]}, {pays[0]} than without "
        f"slices; with {costs[1]} at {starts[1]}, {steps[1]}, {pays[1]}."
    )


def _range(least: int, most: int, sizes: list[int]) -> str:
    """From the least to the most, or from the least on where the most is the largest tried."""
    if most == sizes[-1]:
        return f"{kib(least)} and more (up to {kib(most)} tried)"
    return f"{kib(least)} to {kib(most)}"


def _cell(step_s: float, plateau: bool, spill_s: float) -> str:
    return format_seconds(step_s) + ("*" if plateau else "+" if spill_s > 0 else " ")


def _verdict(v: Verdict, stated: Stated) -> str:
    on = "on the plateau" if v.excess <= overlap.PLATEAU else f"{v.excess:.0%} above the best"
    jitter = (
        f"; at depth {v.depth} one slice may be {format_seconds(v.jitter_s)} late"
        if v.jitter_s >= 0
        else f"; depth {v.depth} does not even cover the way of a slice, {v.depth_needed} would with jitter"
    )
    best = f"the best size if a slice cost {format_seconds(v.overhead_s)} (here {format_seconds(v.counted_s)})"
    return f"{stated.source}, {kib(v.slice_bytes)} at depth {v.depth}, {v.form}: {on}; {best}{jitter}."
