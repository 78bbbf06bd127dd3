"""Heat map of the best strategy over context and load: regimes with their borders, the strategy's name in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.report.plots import frames, scale, style, subject
from mlaplan.report.plots.sheet import Sheet, text_width
from mlaplan.report.plots.subject import Unfit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 4


@dataclass(frozen=True, slots=True)
class Panel:
    """Best plan of each cell; values[i, j] at y i and x j, NaN and '' where nothing is feasible."""

    name: str
    values: tuple[tuple[float, ...], ...]
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Heatmap:
    about: str
    x: str
    y: str
    z: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    panels: tuple[Panel, ...]


class Region(NamedTuple):
    """Neighbouring cells with one strategy, as (row, column)."""

    label: str
    cells: tuple[tuple[int, int], ...]


def of_frame(
    frame: pd.DataFrame, x: str = "isl", y: str | None = None, z: str = "tok_s_chip", by: Sequence[str] | None = None
) -> Heatmap:
    """The best feasible plan in z at each (x, y); y: requests in flight, the rate or the batch, whichever varies."""
    x, z = frames.numbers(frame, x, "--x"), frames.numbers(frame, z, "--y")
    y = frames.numbers(frame, y, "--y") if y else _load(frame)
    for name in (x, y):
        if frame[name].nunique() < 2:
            raise Unfit(f"heatmap: {name} does not vary, and the map needs two axes")
    rows = frames.feasible(frame)
    keys = [frames.column(rows, c, "--by") for c in by or ()]
    keys = [k for k in keys if k != "label"] if by else [c for c in ("model", "chip", "devices") if rows[c].nunique() > 1]
    frames.one_of_each(rows, (x, y, *keys), "heatmap")
    xs, ys = (sorted(frame[name].dropna().unique()) for name in (x, y))
    parts = list(frames.groups(rows, keys))
    if len(parts) > MOST_PANELS:
        raise Unfit(f"heatmap: {len(parts)} panels ({', '.join(keys)}); at most {MOST_PANELS} fit: narrow it with --where")
    panels = tuple(_panel(name, part, (x, y, z), xs, ys) for name, part in parts)
    about = subject.of_frame(rows, (x, y, *keys) if keys else (x, y))
    return Heatmap(about, x, y, z, tuple(map(float, xs)), tuple(map(float, ys)), panels)


def _load(frame: pd.DataFrame) -> str:
    found = [c for c in ("concurrency", "rate", "batch") if c in frame and frame[c].nunique() > 1]
    if not found:
        raise Unfit("heatmap: neither concurrency nor rate nor batch varies; sweep over --concurrency 1:4096:x4")
    return found[0]


def _panel(name: str, rows: pd.DataFrame, axes: tuple[str, str, str], xs: Sequence[float], ys: Sequence[float]) -> Panel:
    x, y, z = axes
    values = np.full((len(ys), len(xs)), np.nan)
    names = np.full(values.shape, "", dtype=object)
    for _, r in frames.best(rows, [x, y], z).iterrows():
        at = ys.index(r[y]), xs.index(r[x])
        values[at], names[at] = float(r[z]), str(r["label"])
    return Panel(name, tuple(map(tuple, values.tolist())), tuple(map(tuple, names.tolist())))


def regions(labels: Sequence[Sequence[str]]) -> list[Region]:
    """Connected cells (by their sides) with the same label, in reading order; cells without one are left out."""
    seen: set[tuple[int, int]] = set()
    found = []
    for i, row in enumerate(labels):
        for j, label in enumerate(row):
            if (i, j) in seen or not label:
                continue
            cells, edge = [], [(i, j)]
            seen.add((i, j))
            while edge:
                a, b = edge.pop()
                cells.append((a, b))
                for c, d in ((a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)):
                    if 0 <= c < len(labels) and 0 <= d < len(row) and (c, d) not in seen and labels[c][d] == label:
                        seen.add((c, d))
                        edge.append((c, d))
            found.append(Region(label, tuple(sorted(cells))))
    return found


def figure(data: Heatmap, width: float = style.FULL) -> Figure:
    """Shade: z of the best plan. Lines: where another strategy becomes best. Hatched: nothing is feasible."""
    with style.drawing(width):
        narrow, n = width < 5, len(data.panels)
        columns = 1 if narrow else min(n, 2)
        rows = -(-n // columns)
        each = min(0.26 * len(data.ys) + 0.6, 3.2) if not narrow else min(0.22 * len(data.ys) + 0.6, 2.6)
        sheet = Sheet(width, rows * each + 0.1, f"Best strategy by {scale.axis_label(data.z)}", data.about)
        grid = sheet.figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        norm = _norm(data)
        mesh: Any = None
        for ax, panel in zip(grid, data.panels, strict=False):
            mesh = _draw(ax, panel, norm)
            if panel.name:
                ax.set_title(panel.name, loc="left")
            _ticks(ax, data, narrow)
        for ax in grid[n:]:
            ax.remove()
        for i, ax in enumerate(grid[:n]):
            if i % columns == 0:
                ax.set_ylabel(scale.axis_label(data.y))
            if i + columns >= n:
                ax.set_xlabel(scale.axis_label(data.x))
                ax.tick_params(labelbottom=True)
        bar = sheet.figure.colorbar(mesh, ax=list(grid[:n]), pad=0.02, aspect=30 if rows > 1 else 18)
        bar.set_label(scale.axis_label(data.z))
        bar.outline.set_visible(False)  # type: ignore[operator]
        if norm.__class__.__name__ == "LogNorm":
            scale.log_ticks(bar.ax.yaxis, float(norm.vmin), float(norm.vmax), 6)
        else:
            scale.plain_ticks(bar.ax.yaxis)
        key = _key(data, sheet, grid[:n])
        sheet.note("Lines: borders between best strategies." + _nothing(data) + key)
        sheet.finish()
        _write_all(data, grid[:n], norm)
        return sheet.figure
