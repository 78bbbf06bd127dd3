"""Distributions of TTFT and TPOT, requests running and waiting, and the cache over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlaplan.report.picture import save
from mlaplan.report.plots import style
from mlaplan.report.plots.sheet import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from mlaplan.report.simulate_text import Simulated
    from mlaplan.serving.simulator.outcome import Limit, PoolOutcome

MOST_POINTS = 1000  # of a curve
# running and held by requests, waiting and limits, kept for reuse
DONE, LATE, KEPT = style.look(0), style.look(3), style.look(4)
LINES = ("-", (0, (2.0, 1.5)))  # of the pool that serves outputs, of the one for prompts


def draw(s: Simulated, path: str) -> None:
    """Write the figure to `path`; the suffix decides the file type."""
    save(figure(s), path)


def figure(s: Simulated, width: float = style.FULL) -> Figure:
    """Two distributions above, two curves over time below."""
    from mlaplan.report.simulate_text import head

    o = s.outcome
    pools = [("", o.serve)] if o.prefill is None else [("outputs: ", o.serve), ("prompts: ", o.prefill)]
    with style.drawing(width):
        about = " ".join(head(s).split()).replace(": ", "; ", 1)
        sheet = Sheet(width, 4.6, "Simulation: times, requests and cache", about)
        axes = sheet.figure.subplots(2, 2)
        _distribution(axes[0, 0], o.ttft_s, "TTFT", s.limits[0])
        _distribution(axes[0, 1], o.tpot_s, "TPOT", s.limits[1])
        _queue(axes[1, 0], pools)
        _cache(axes[1, 1], pools)
        named: dict[str, object] = {}
        for one in axes.flat:
            for handle, name in zip(*one.get_legend_handles_labels(), strict=True):
                named.setdefault(name, handle)
        sheet.legend(list(named.values()), list(named))
        return sheet.finish()


def _distribution(axes: Axes, column: NDArray[np.float64], name: str, limit: Limit | None) -> None:
    """Share of requests within a time."""
    found = np.sort(column[np.isfinite(column)])
    unit = "s"
    if len(found):
        unit, scale = ("ms", 1e3) if found[-1] < 1.0 else ("s", 1.0)
        share = np.linspace(0, 1, min(len(found), MOST_POINTS))
        at = np.quantile(found, share) * scale
        axes.plot(at, share, color=DONE.color)
        for p, place, side in ((50, (7, -3), "left"), (95, (-7, 3), "right"), (99, (7, -11), "left")):
            value = float(np.percentile(found, p)) * scale
            axes.plot([value], [p / 100], DONE.marker, color=DONE.color)
            told = f"p{p} {value:.3g} {unit}"
            axes.annotate(told, (value, p / 100), xytext=place, textcoords="offset points", ha=side)
        axes.margins(x=0.28)
        if limit is not None:
            axes.axvline(limit.seconds * scale, color=LATE.color, linestyle=LATE.line, label="limit")
        low, high = float(at[0]), float(at[-1])
        if low > 0 and high / low > 50:  # a few long ones would hide the rest
            axes.set_xscale("log")
    axes.set_xlabel(f"{name}, {unit}")
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("share of requests")


def _queue(axes: Axes, pools: list[tuple[str, PoolOutcome]]) -> None:
    for (name, p), line in zip(pools, LINES, strict=False):
        if p.series.running.any():
            axes.plot(p.series.time_s, p.series.running, color=DONE.color, linestyle=line, label=f"{name}running")
        axes.plot(p.series.time_s, p.series.waiting, color=LATE.color, linestyle=line, label=f"{name}waiting")
    _over_time(axes, "requests")


def _cache(axes: Axes, pools: list[tuple[str, PoolOutcome]]) -> None:
    for (name, p), line in zip(pools, LINES, strict=False):
        held, kept = 100 * p.series.held, 100 * (p.series.held + p.series.cached)
        axes.plot(p.series.time_s, held, color=style.look(2).color, linestyle=line, label=f"{name}cache of requests")
        if p.series.cached.any():
            axes.fill_between(p.series.time_s, held, kept, color=KEPT.color, alpha=0.5, linewidth=0,
                              label=f"{name}kept for reuse")  # fmt: skip
    _over_time(axes, "% of the cache")


def _over_time(axes: Axes, label: str) -> None:
    axes.set_xlabel("time, s")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
