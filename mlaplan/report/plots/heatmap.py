"""Heat map of the best strategy over context and load: regimes with their borders, the strategy's name in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.report.plots import frames, labels, scale, style, subject
from mlaplan.report.plots.sheet import Sheet, folded, text_width
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
    keys = (
        [k for k in keys if k != "label"] if by else [c for c in ("model", "chip", "devices") if rows[c].nunique() > 1]
    )
    frames.one_of_each(rows, (x, y, *keys), "heatmap")
    xs, ys = (sorted(frame[name].dropna().unique()) for name in (x, y))
    parts = list(frames.groups(rows, keys))
    if len(parts) > MOST_PANELS:
        raise Unfit(
            f"heatmap: {len(parts)} panels ({', '.join(keys)}); at most {MOST_PANELS} fit: narrow it with --where"
        )
    panels = tuple(_panel(name, part, (x, y, z), xs, ys) for name, part in parts)
    about = subject.of_frame(rows, (x, y, *keys) if keys else (x, y))
    return Heatmap(about, x, y, z, tuple(map(float, xs)), tuple(map(float, ys)), panels)


def _load(frame: pd.DataFrame) -> str:
    found = [c for c in ("concurrency", "rate", "batch") if c in frame and frame[c].nunique() > 1]
    if not found:
        raise Unfit("heatmap: neither concurrency nor rate nor batch varies; sweep over --concurrency 1:4096:x4")
    return found[0]


def _panel(
    name: str, rows: pd.DataFrame, axes: tuple[str, str, str], xs: Sequence[float], ys: Sequence[float]
) -> Panel:
    x, y, z = axes
    values = np.full((len(ys), len(xs)), np.nan)
    names = np.full(values.shape, "", dtype=object)
    for _, r in frames.best(rows, [x, y], z).iterrows():
        at = ys.index(r[y]), xs.index(r[x])
        values[at], names[at] = float(r[z]), str(r["label"])
    return Panel(name, tuple(map(tuple, values.tolist())), tuple(map(tuple, names.tolist())))


def regions(names: Sequence[Sequence[str]]) -> list[Region]:
    """Connected cells (by their sides) with the same label, in reading order; cells without one are left out."""
    seen: set[tuple[int, int]] = set()
    found = []
    for i, row in enumerate(names):
        for j, label in enumerate(row):
            if (i, j) in seen or not label:
                continue
            cells, edge = [], [(i, j)]
            seen.add((i, j))
            while edge:
                a, b = edge.pop()
                cells.append((a, b))
                for c, d in ((a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)):
                    if 0 <= c < len(names) and 0 <= d < len(row) and (c, d) not in seen and names[c][d] == label:
                        seen.add((c, d))
                        edge.append((c, d))
            found.append(Region(label, tuple(sorted(cells))))
    return found


def figure(data: Heatmap, width: float = style.FULL) -> Figure:
    """Shade: z of the best plan. Lines: where another strategy becomes best. Hatched: nothing is feasible."""
    with style.drawing(width):
        made, without = _make(data, width, {})
        if without:  # names that no cell has room for become letters, explained below
            made, _ = _make(data, width, {name: labels.letter(i) for i, name in enumerate(sorted(without))})
        return made


def _make(data: Heatmap, width: float, letters: dict[str, str]) -> tuple[Figure, set[str]]:
    """The figure, and the names for which some region has no room."""
    narrow, n = width < 5, len(data.panels)
    columns = 1 if narrow else min(n, 2)
    rows = -(-n // columns)
    cell, most = (0.2, 2.6) if narrow else (0.24, 3.2)
    each = min(max(cell * len(data.ys), 1.2), most) + 0.45 + 0.15 * bool(data.panels[0].name)
    sheet = Sheet(width, rows * each, "The best strategy, and what it delivers", data.about)
    grid = list(sheet.figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel())
    for ax in grid[n:]:
        ax.remove()
    grid = grid[:n]
    norm = _norm(data)
    mesh: Any = None
    for i, (ax, panel) in enumerate(zip(grid, data.panels, strict=True)):
        mesh = _draw(ax, panel, norm)
        if panel.name:
            ax.set_title(panel.name, loc="left")
        _ticks(ax, data, narrow)
        if i % columns == 0:
            ax.set_ylabel(scale.axis_label(data.y))
        if i + columns >= n:
            ax.set_xlabel(scale.axis_label(data.x))
            ax.tick_params(labelbottom=True)
    bar = sheet.figure.colorbar(mesh, ax=grid, pad=0.02, aspect=30 if rows > 1 else 18)
    # no longer than the bar
    bar.set_label(folded(scale.axis_label(data.z), rows * each - 0.7, 7.0 if narrow else 8.0))
    bar.outline.set_visible(False)
    if norm.__class__.__name__ == "LogNorm":
        scale.log_ticks(bar.ax.yaxis, float(norm.vmin), float(norm.vmax), 6)
    else:
        scale.plain_ticks(bar.ax.yaxis)
    sheet.note("Black lines: where another strategy becomes the best.")
    if any(not label for panel in data.panels for row in panel.labels for label in row):
        sheet.note("Hatched: nothing is feasible.")
    if letters:
        sheet.note(", ".join(f"{letter}: {name}" for name, letter in letters.items()) + ".")
    sheet.finish()
    without: set[str] = set()
    for ax, panel in zip(grid, data.panels, strict=True):
        for region in regions(panel.labels):
            if not _write(ax, region, panel, norm, letters):
                without.add(region.label)
    return sheet.figure, without


def _norm(data: Heatmap) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    found = [v for panel in data.panels for row in panel.values for v in row if v == v]
    low, high = min(found), max(found)
    if low > 0 and high / low > 8:
        return LogNorm(low, high)
    return Normalize(low, high if high > low else low + 1)


def _draw(ax: Axes, panel: Panel, norm: Any) -> Any:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    values = np.ma.masked_invalid(np.array(panel.values))
    rows, columns = values.shape
    mesh = ax.pcolormesh(np.arange(columns + 1), np.arange(rows + 1), values, cmap="cividis", norm=norm, linewidth=0)
    for i, j in zip(*np.nonzero(np.array(panel.labels) == ""), strict=True):
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor="0.95", edgecolor="0.75", hatch="////", linewidth=0))
    names = panel.labels
    edges = [((j, j), (i, i + 1)) for i in range(rows) for j in range(1, columns) if names[i][j] != names[i][j - 1]]
    edges += [((j, j + 1), (i, i)) for i in range(1, rows) for j in range(columns) if names[i][j] != names[i - 1][j]]
    lines = [list(zip(x, y, strict=True)) for x, y in edges]
    for color, wide, above in (("white", 2.6, 3), ("black", 1.3, 4)):
        ax.add_collection(LineCollection(lines, colors=color, linewidths=wide, capstyle="round", zorder=above))
    ax.set_xlim(0, columns)
    ax.set_ylim(0, rows)
    ax.grid(visible=False)
    return mesh


def _ticks(ax: Axes, data: Heatmap, narrow: bool) -> None:
    for axis, values, name, most in ((ax.xaxis, data.xs, data.x, 6 if narrow else 12), (ax.yaxis, data.ys, data.y, 10)):
        every = -(-len(values) // most)
        shown = list(range(0, len(values), every))
        text = [scale.tokens(values[i]) if name in scale.TOKENS else scale.number(values[i]) for i in shown]
        axis.set_ticks([i + 0.5 for i in shown], labels=text)
        axis.set_ticks([], minor=True)


def _write(ax: Axes, region: Region, panel: Panel, norm: Any, letters: dict[str, str]) -> bool:
    """The name in the widest row of the region, over two rows if it fits only so; else its letter."""
    from matplotlib import rcParams

    size = float(rcParams["font.size"]) - 1
    box = ax.get_window_extent()
    wide, tall = (
        extent / ax.figure.dpi / n for extent, n in ((box.width, ax.get_xlim()[1]), (box.height, ax.get_ylim()[1]))
    )
    for text, lines in _ways(region.label):
        place = _place(
            region, max(text_width(part, size) for part in text.split("\n")) + 0.06, lines * size / 60, wide, tall
        )
        if place is not None:
            break
    else:
        if region.label not in letters:
            return False
        text, place = letters[region.label], _place(region, 0, 0, wide, tall)
    assert place is not None
    x, y = place
    dark = float(norm(panel.values[min(int(y), len(panel.values) - 1)][min(int(x), len(panel.values[0]) - 1)])) < 0.55
    front, back = ("white", "black") if dark else ("black", "white")
    drawn = ax.text(
        x, y, text, ha="center", va="center", fontsize=size, color=front, zorder=5, linespacing=1.05, gid="label",
        bbox={"facecolor": back, "alpha": 0.3, "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip
    drawn.set_in_layout(False)
    return True


def _ways(label: str) -> list[tuple[str, int]]:
    """The name in one line, in two, in three, ..."""
    words = label.split(" ")
    out = []
    for lines in range(1, len(words) + 1):
        each = -(-len(words) // lines)
        parts = [" ".join(words[i : i + each]) for i in range(0, len(words), each)]
        if len(parts) == lines:
            out.append(("\n".join(parts), lines))
    return out


def _place(region: Region, width: float, height: float, wide: float, tall: float) -> tuple[float, float] | None:
    """The middle of a large and central rectangle of the region's cells; None if the text fits in none. Inches."""
    cells = set(region.cells)
    across, up = max(int(np.ceil(width / wide - 1e-9)), 1), max(int(np.ceil(height / tall - 1e-9)), 1)
    middle = np.mean(region.cells, axis=0) + 0.5
    best: tuple[float, float, float] | None = None
    for i, j in region.cells:
        n, m = up, across
        if not all((i + a, j + b) in cells for a in range(n) for b in range(m)):
            continue
        while all((i + a, j + m) in cells for a in range(n)):  # as wide and then as tall as the region goes
            m += 1
        while all((i + n, j + b) in cells for b in range(m)):
            n += 1
        y, x = i + n / 2, j + m / 2
        far = float(np.hypot((x - middle[1]) * wide, (y - middle[0]) * tall)) - 0.5 * float(
            np.sqrt(n * m * wide * tall)
        )
        if best is None or far < best[0] - 1e-9:
            best = (far, x, y)
    return None if best is None else best[1:]
