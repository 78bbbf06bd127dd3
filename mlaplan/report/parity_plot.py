"""Predicted over measured, every point with its band, one colour for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report.picture import save
from mlaplan.validation.score import KEYS, grouped, ratable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlaplan.validation.score import Scored

RANGE = (0.25, 4.0)  # of predicted over measured; points beyond sit on the edge


def draw_parity(scored: Sequence[Scored], by: str, path: str) -> None:
    """Write the plot to `path`; the suffix decides the file type."""
    from matplotlib.figure import Figure

    found = {name: [s for s in group if s.fits] for name, group in grouped(ratable(scored), KEYS[by]).items()}
    found = {name: group for name, group in found.items() if group}
    figure = Figure(figsize=(8, 0.45 * len(found) + 1.6), layout="constrained")
    axes = figure.subplots()
    for row, (name, group) in enumerate(found.items()):
        ratios = [min(max(1.0 + s.error, RANGE[0]), RANGE[1]) for s in group]
        heights = [row + 0.3 * ((i * 0.618) % 1.0 - 0.5) for i in range(len(group))]
        colours = ["tab:blue" if s.inside else "tab:red" for s in group]
        axes.scatter(ratios, heights, s=12, c=colours, alpha=0.7, linewidths=0)
        del name
    axes.axvspan(0.85, 1.15, color="0.92", zorder=0)
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(RANGE[0] * 0.95, RANGE[1] * 1.05)
    axes.set_xticks([0.25, 0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 2.0, 4.0], labels=["0.25", "0.5", "0.7", "0.85", "1", "1.15",
                                                                             "1.4", "2", "4"])  # fmt: skip
    axes.minorticks_off()
    axes.set_yticks(range(len(found)), labels=[f"{name} ({len(group)})" for name, group in found.items()])
    axes.invert_yaxis()
    axes.set_xlabel("predicted / measured; blue: the measured value lies in the 80 % band; grey: within 15 %")
    axes.grid(axis="x", alpha=0.3)
    save(figure, path)
