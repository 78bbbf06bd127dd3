"""The timeline of a gather in slices, the two-buffer pipeline of one chip, the sweep, and where slices pay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs import chunks, overlap
from mlaplan.report.picture import save
from mlaplan.report.plots import timeline
from mlaplan.report.words import kib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mlaplan.costs.chunks import GatherPlan
    from mlaplan.costs.study import Study
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

PLATEAU, PICKED = "#66ccee", "#ee6677"
DEPTHS = (1, 2, 4, 8, 16)
US = 1e6


def draw(model: Model, chip: Chip, s: Study, path: str) -> None:
    """Write the figure to `path`; the suffix decides the file type."""
    from matplotlib.figure import Figure

    plan = s.plan
    figure = Figure(figsize=(11, 7.5 if plan else 3.2), layout="constrained")
    a = s.asked
    figure.suptitle(f"{model.title} on {a.devices} {chip.name}, {a.batch} sequences of {a.context:,} tokens, one layer")
    if plan is None:
        timeline.draw(figure.subplots(), own(chip, s), 11)
    else:
        grid = figure.subplot_mosaic([["time", "time"], ["own", "own"], ["sweep", "border"]], height_ratios=[1, 1, 1.7])
        timeline.draw(grid["time"], timeline.gathered(plan), 11)
        timeline.draw(grid["own"], own(chip, s), 11)
        sweep(grid["sweep"], plan)
        border(grid["border"], plan)
    save(figure, path)


def own(chip: Chip, s: Study) -> timeline.Track:
    """What a chip holds itself: whole sequences to each core where there are several, else the slices of one core."""
    return timeline.local(s.local) if s.buffered.items == 1 else timeline.buffered(s.buffered, chip)


def sweep(axes: Axes, p: GatherPlan) -> None:
    """Step over slice, one line per depth; the pick as a ring, spilled points hollow."""
    for i, depth in enumerate(DEPTHS):
        line = [c for c in p.sweep if c.depth == depth]
        shade = str(0.75 - 0.75 * i / (len(DEPTHS) - 1))
        axes.plot([c.slice_bytes for c in line], [c.step_s * US for c in line], color=shade, lw=1.2, label=str(depth))
        for c in line:
            face = "white" if c.spill_s > 0 else shade
            axes.plot(c.slice_bytes, c.step_s * US, marker="o", ms=4, color=shade, markerfacecolor=face)
    best = min(c.step_s for c in p.sweep)
    axes.axhspan(best * US, best * US * (1 + overlap.PLATEAU), color=PLATEAU, alpha=0.5, lw=0)
    axes.plot(p.picked.slice_bytes, p.picked.step_s * US, "o", ms=11, mfc="none", mec=PICKED, mew=2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({c.slice_bytes for c in p.sweep})[::2]
    axes.set_xticks(sizes, [kib(size) for size in sizes])
    axes.minorticks_off()
    _plain_log(axes, [c.step_s * US for c in p.sweep])
    axes.set_xlabel("slice", fontsize=8)
    axes.set_ylabel("step, us", fontsize=8)
    axes.legend(title="depth", fontsize=7, title_fontsize=7)
    axes.tick_params(labelsize=8)
    axes.set_title("step over slice and depth (band: within 2 %, ring: picked, hollow: spills)", fontsize=9, loc="left")


def _plain_log(axes: Axes, values: list[float]) -> None:
    """Ticks 1, 2, 5 times a power of ten within the data, as plain numbers."""
    low, high = min(values), max(values)
    ticks = [m * 10.0**k for k in range(-3, 9) for m in (1, 2, 5) if low * 0.8 <= m * 10.0**k <= high * 1.2]
    axes.set_yticks(ticks, [f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks])


def border(axes: Axes, p: GatherPlan) -> None:
    """Share saved by slices against one gather, over batch and context; the line is where it begins."""
    grid = overlap.engagement(p.work, p.rates, chunks.BATCHES, chunks.CONTEXTS, p.picked.depth)
    share = np.asarray(grid.share) * 100
    limit = max(float(np.abs(share).max()), 1.0)
    mesh: Any = axes.pcolormesh(
        np.arange(len(grid.contexts) + 1), np.arange(len(grid.batches) + 1), share, cmap="RdBu", vmin=-limit, vmax=limit
    )
    for i, row in enumerate(share):
        for j, value in enumerate(row):
            color = "white" if abs(value) > 0.6 * limit else "black"
            axes.text(j + 0.5, i + 0.5, f"{round(value)}", ha="center", va="center", fontsize=6, color=color)
            below = share[i, j - 1] > 0 if j else value > 0
            if (value > 0) != below:
                axes.plot([j, j], [i, i + 1], color="black", lw=2)
            if i and (value > 0) != (share[i - 1, j] > 0):
                axes.plot([j, j + 1], [i, i], color="black", lw=2)
    names = [f"{c // 1024}k" if c >= 1024 else str(c) for c in grid.contexts]
    axes.set_xticks(np.arange(len(names)) + 0.5, names)
    axes.set_yticks(np.arange(len(grid.batches)) + 0.5, [str(b) for b in grid.batches])
    axes.tick_params(labelsize=8)
    axes.set_xlabel("context", fontsize=8)
    axes.set_ylabel("batch", fontsize=8)
    axes.figure.colorbar(mesh, ax=axes, label="% saved").ax.tick_params(labelsize=7)
    axes.set_title("saved by slices against one gather, %", fontsize=9, loc="left")
