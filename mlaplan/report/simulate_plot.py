"""Distributions of TTFT and TPOT, requests running and waiting, and the cache over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlaplan.report.picture import save
from mlaplan.report.tables import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from mlaplan.report.simulate_text import Simulated
    from mlaplan.serving.simulator.outcome import Limit, PoolOutcome

BLUE, RED, GREY, GREEN = "#4477aa", "#ee6677", "#bbbbbb", "#228833"
MOST_POINTS = 1000  # of a curve


def draw(s: Simulated, path: str) -> None:
    """Write the figure to `path`; the suffix decides the file type."""
    import matplotlib
    from matplotlib.figure import Figure

    from mlaplan.report.simulate_text import head

    matplotlib.rcParams["svg.hashsalt"] = "mlaplan"  # the same file for the same numbers
    o = s.outcome
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    figure.suptitle(wrapped(head(s).replace("\n", " ").replace("  ", " "), width=120), fontsize=10)
    axes = figure.subplots(2, 2)
    _distribution(axes[0, 0], o.ttft_s, "TTFT", s.limits[0])
    _distribution(axes[0, 1], o.tpot_s, "TPOT", s.limits[1])
    pools = [("", o.serve)] if o.prefill is None else [("outputs: ", o.serve), ("prompts: ", o.prefill)]
    _queue(axes[1, 0], pools)
    _cache(axes[1, 1], pools)
    save(figure, path)


def _distribution(axes: Axes, column: NDArray[np.float64], name: str, limit: Limit | None) -> None:
    """Share of requests within a time."""
    found = np.sort(column[np.isfinite(column)])
    axes.set_title(name, fontsize=10)
    if len(found):
        unit, scale = ("ms", 1e3) if found[-1] < 1.0 else ("s", 1.0)
        share = np.linspace(0, 1, min(len(found), MOST_POINTS))
        at = np.quantile(found, share) * scale
        axes.plot(at, share, color=BLUE)
        for p, place, side in ((50, (8, -4), "left"), (95, (-8, 4), "right"), (99, (8, -14), "left")):
            value = float(np.percentile(found, p)) * scale
            axes.plot([value], [p / 100], "o", color=BLUE, markersize=4)
            axes.annotate(f"p{p} {value:.3g} {unit}", (value, p / 100), xytext=place, textcoords="offset points",
                          ha=side, fontsize=8)  # fmt: skip
        axes.margins(x=0.12)
        if limit is not None:
            axes.axvline(limit.seconds * scale, color=RED, linestyle="--", linewidth=1)
            axes.annotate("limit", (limit.seconds * scale, 0.03), xytext=(4, 0), textcoords="offset points", fontsize=8,
                          color=RED)  # fmt: skip
        low, high = float(at[0]), float(at[-1])
        if low > 0 and high / low > 50:  # a few long ones would hide the rest
            axes.set_xscale("log")
        axes.set_xlabel(unit)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of requests")
    axes.grid(alpha=0.3)


def _queue(axes: Axes, pools: list[tuple[str, PoolOutcome]]) -> None:
    axes.set_title("Requests", fontsize=10)
    for (name, p), style in zip(pools, ("-", ":"), strict=False):
        if p.series.running.any():
            axes.plot(p.series.time_s, p.series.running, color=BLUE, linestyle=style, linewidth=1,
                      label=f"{name}running")  # fmt: skip
        axes.plot(p.series.time_s, p.series.waiting, color=RED, linestyle=style, linewidth=1, label=f"{name}waiting")
    _over_time(axes, "requests")


def _cache(axes: Axes, pools: list[tuple[str, PoolOutcome]]) -> None:
    axes.set_title("KV cache", fontsize=10)
    for (name, p), style in zip(pools, ("-", ":"), strict=False):
        held, kept = 100 * p.series.held, 100 * (p.series.held + p.series.cached)
        axes.plot(p.series.time_s, held, color=GREEN, linestyle=style, linewidth=1, label=f"{name}held by requests")
        if p.series.cached.any():
            axes.fill_between(p.series.time_s, held, kept, color=GREY, alpha=0.6, linewidth=0,
                              label=f"{name}kept for reuse")  # fmt: skip
    _over_time(axes, "% of the cache")


def _over_time(axes: Axes, label: str) -> None:
    axes.set_xlabel("s")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="best")
