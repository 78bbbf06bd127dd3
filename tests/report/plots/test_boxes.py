"""Nothing is clipped and no text lies on another: by bounding boxes, of every kind, narrow and wide, easy and hard."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from mlaplan.report.plots import heatmap, labels, style
from tests.report.plots.examples import EXAMPLES, HARD, many_fronts

CASES = {**EXAMPLES, **HARD}
SLACK = 0.5  # pixels at 200 dots an inch that boxes may share: they are a little larger than the ink

cases = pytest.mark.parametrize(
    ("module", "data", "width"),
    [pytest.param(m, d, w, id=f"{name}-{w}") for name, (m, d) in CASES.items() for w in (style.COLUMN, style.FULL)],
)


def texts(figure: Figure) -> list[tuple[Text, Bbox]]:
    """Every visible text with its box in pixels; rotated ones other than upright have boxes of mostly air."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    hidden = {label for axes in figure.axes for label in _not_drawn(axes)}
    found = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text.get_rotation() % 90 == 0 and text not in hidden:
            found.append((text, text.get_window_extent()))
    return found


def _not_drawn(axes: Axes) -> Iterator[Text]:
    """Labels of ticks outside of the limits, and of ticks put aside."""
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        shown = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        for tick in (*axis.majorTicks, *axis.minorTicks):
            if tick not in shown or not min(limits) - 1e-9 <= tick.get_loc() <= max(limits) + 1e-9:
                yield from (tick.label1, tick.label2)


@cases
def test_nothing_is_clipped(module: Any, data: Callable[[], Any], width: float) -> None:
    figure = module.figure(data(), width)
    whole = figure.bbox
    for text, box in texts(figure):
        inside = (
            box.x0 >= -SLACK and box.y0 >= -SLACK and box.x1 <= whole.width + SLACK and box.y1 <= whole.height + SLACK
        )
        assert inside, f"'{text.get_text()}' {box} leaves {whole}"


@cases
def test_no_text_lies_on_another(module: Any, data: Callable[[], Any], width: float) -> None:
    for (one, a), (other, b) in itertools.combinations(texts(module.figure(data(), width)), 2):
        wide, tall = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= SLACK or tall <= SLACK, (
            f"'{one.get_text()}' and '{other.get_text()}' share {wide:.1f} x {tall:.1f}"
        )


@pytest.mark.parametrize("width", [style.COLUMN, style.FULL])
def test_names_of_a_front_cover_none_of_its_points(width: float) -> None:
    data = many_fronts()
    figure = CASES["many fronts"][0].figure(data, width)
    axes = figure.axes[0]
    at = axes.transData.transform([(p.x, p.y) for line in data.lines for p in line.points])
    names = [(t, box) for t, box in texts(figure) if t.get_gid() == "label"]
    assert len(names) >= len(data.lines)
    for text, box in names:
        inside = (at[:, 0] > box.x0) & (at[:, 0] < box.x1) & (at[:, 1] > box.y0) & (at[:, 1] < box.y1)
        assert not inside.any(), text.get_text()


def test_every_stretch_of_every_front_is_named_by_itself_or_by_a_letter_with_a_key() -> None:
    data = many_fronts()
    figure = CASES["many fronts"][0].figure(data, style.COLUMN)
    said = [t.get_text().replace("\n", " ") for t in figure.findobj(Text)]
    for name in {p.label for line in data.lines for p in line.points}:
        assert any(name in text for text in said), name


def test_every_regime_is_named_by_itself_or_by_a_letter_with_a_key() -> None:
    for data in (CASES["heatmap"][1](), CASES["patchwork"][1]()):
        figure = heatmap.figure(data, style.COLUMN)
        said = " ".join(t.get_text().replace("\n", " ") for t in figure.findobj(Text))
        for name in {n for panel in data.panels for row in panel.labels for n in row if n}:
            assert name in said, name


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=25),
    st.sampled_from([style.COLUMN, style.FULL]),
)
def test_placed_names_are_free_of_each_other_of_points_and_within_the_axes(
    points: list[tuple[float, float]], width: float
) -> None:
    with style.drawing(width):
        figure = Figure(figsize=(width, 2.5))
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        at = np.array(points)
        axes.plot(*at.T, "o")
        figure.draw_without_rendering()  # places are found in finished axes
        draw = random.Random(len(points))
        wanted = [labels.Wanted("TP8 " * draw.randint(1, 4), x, y) for x, y in points]
        left = labels.place(axes, wanted, at, [at], size=6.5)
        figure.draw_without_rendering()
        names = [t for t in axes.texts if t.get_gid() == "label"]
        assert len(names) + len(left) == len(points)
        boxes = [t.get_window_extent() for t in names]
        frame, pixels = axes.get_window_extent(), axes.transData.transform(at)
        for box in boxes:
            assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            inside = (
                (pixels[:, 0] > box.x0) & (pixels[:, 0] < box.x1) & (pixels[:, 1] > box.y0) & (pixels[:, 1] < box.y1)
            )
            assert not inside.any()
        assert not any(a.overlaps(b) for a, b in itertools.combinations([b.shrunk(0.98, 0.9) for b in boxes], 2))
