"""A figure with a title that says model, chip and workload, a body, a legend below it and a line of notes.

The body keeps its height whatever the words around it need: title, legend and notes are measured first and the
figure is made that much taller.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlaplan.report.plots.style import FAINT, INK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

MARGIN = 0.06  # inches around everything
GAP = 0.05  # inches between title, body, legend and notes
LEADING = 1.25  # lines of text are this far apart, in heights


class Sheet:
    """Collects the words around a body and lays all of it out once; made and finished within `style.drawing`."""

    def __init__(self, width: float, body: float, title: str, about: str) -> None:
        from matplotlib.figure import Figure

        self.width, self.body = width, body
        self.figure: Figure = Figure(figsize=(width, body), layout="constrained")
        self.title, self.about = title, about
        self.notes: list[str] = []
        self.handles: list[Artist] = []
        self.names: list[str] = []

    def note(self, text: str) -> None:
        """A sentence under the picture."""
        self.notes.append(text)

    def legend(self, handles: Sequence[Any], names: Sequence[str]) -> None:
        """Entries of the one legend."""
        self.handles += handles
        self.names += names

    def finish(self) -> Figure:
        """Lay out and freeze: what is put in later moves nothing."""
        from matplotlib import rcParams
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure, size = self.figure, float(rcParams["font.size"])
        room = self.width - 2 * MARGIN
        title = folded(self.title, room, size + 1, bold=True)
        about = folded(self.about, room, size)
        notes = folded(" ".join(self.notes), room, size - 1)
        head = height(title, size + 1) + height(about, size) + GAP
        legend, tall = self._legend(figure, room)
        foot = tall + height(notes, size - 1) + GAP * (1 + bool(tall) + bool(notes))
        whole = self.body + head + foot + 2 * MARGIN
        figure.set_size_inches(self.width, whole)
        top = 1 - MARGIN / whole
        left = MARGIN / self.width
        kinds: tuple[dict[str, Any], ...] = ({"fontsize": size + 1, "fontweight": "bold"}, {"fontsize": size})
        for text, kind in zip((title, about), kinds, strict=True):
            if text:
                figure.text(left, top, text, va="top", ha="left", linespacing=LEADING, color=INK, **kind)
                top -= height(text, kind["fontsize"]) / whole
        if notes:
            figure.text(
                left, MARGIN / whole, notes, va="bottom", ha="left", fontsize=size - 1, linespacing=LEADING,
                color=FAINT,
            )  # fmt: skip
        if legend is not None:
            # pads and all, its top is a gap below the body
            legend.set_bbox_to_anchor((0.5, (MARGIN + foot - GAP) / whole), transform=figure.transFigure)
        body = (left, (MARGIN + foot) / whole, 1 - 2 * left, self.body / whole)
        figure.set_layout_engine("constrained", rect=body, h_pad=0.02, w_pad=0.02)
        FigureCanvasAgg(figure)
        for _ in range(3):  # tick labels change with the size of the axes, and that with them
            figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    def _legend(self, figure: Figure, room: float) -> tuple[Any, float]:
        """The legend, in as many columns as there is room for, and its height in inches."""
        if not self.handles:
            return None, 0.0
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure.set_layout_engine("none")
        renderer = FigureCanvasAgg(figure).get_renderer()
        for columns in range(min(len(self.names), 6), 0, -1):
            legend = figure.legend(
                self.handles, self.names, loc="upper center", ncols=columns, borderpad=0, borderaxespad=0,
                columnspacing=1.2, handletextpad=0.5, labelspacing=0.3, bbox_to_anchor=(0.5, 1.0),
            )  # fmt: skip
            box = legend.get_window_extent(renderer)
            if box.width / figure.dpi <= room or columns == 1:
                break
            legend.remove()
        figure.set_layout_engine("constrained")
        legend.set_in_layout(False)
        return legend, float(box.height / figure.dpi)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Inches that a line of text takes."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72.0


def folded(text: str, room: float, size: float, bold: bool = False) -> str:
    """The text in lines no wider than `room` inches."""
    space = text_width("x x", size, bold) - 2 * text_width("x", size, bold)
    lines: list[str] = []
    wide = 0.0
    for word in text.replace(" %", "\N{NO-BREAK SPACE}%").split(" "):
        own = text_width(word, size, bold)
        if lines and wide + space + own <= room:
            lines[-1] += f" {word}"
            wide += space + own
        else:
            lines.append(word)
            wide = own
    return "\n".join(lines)


def height(text: str, size: float) -> float:
    """Inches that a block of text takes."""
    return (text.count("\n") + 1) * size * LEADING / 72.0 if text else 0.0
