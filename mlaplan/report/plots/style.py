"""What all pictures share: sizes, colours that survive colour blindness and grey, marks, hatches, fonts.

Colours are those of Okabe and Ito (jfly.uni-koeln.de/color), in an order whose lightness alternates; every colour comes
with a marker, a line style and a hatch of its own, so that nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

COLUMN = 3.3  # inches: one column of a two-column page
FULL = 7.0  # inches: both columns

INK = "0.15"
FAINT = "0.4"
GRID = "0.9"


class Look(NamedTuple):
    """How one series is told from the others."""

    color: str
    marker: str
    line: str | tuple[int, tuple[float, ...]]
    hatch: str


# hatches of lines only: circles make an SVG ten times as large
LOOKS = (
    Look("#0072B2", "o", "-", ""),
    Look("#E69F00", "s", "--", "////"),
    Look("#009E73", "^", "-.", "||||"),
    Look("#D55E00", "D", ":", "\\\\\\\\"),
    Look("#56B4E9", "v", (0, (5.0, 1.0, 1.0, 1.0, 1.0, 1.0)), "xxxx"),
    Look("#CC79A7", "P", (0, (8.0, 2.0)), "++++"),
    Look("#000000", "X", (0, (1.0, 1.0)), "----"),
    Look("#F0E442", "*", (0, (3.0, 3.0)), "//"),
)


def look(index: int) -> Look:
    """The look of the n-th series; after the last one they begin again."""
    return LOOKS[index % len(LOOKS)]


@contextmanager
def drawing(width: float) -> Iterator[None]:
    """Settings under which a figure is made and written: matplotlib's defaults and ours, none of the user's.

    Only the font that matplotlib brings along is used, and ids in SVG follow from the content alone.
    """
    import matplotlib

    size = 7.0 if width < 5 else 8.0
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": "DejaVu Sans",
                "font.size": size,
                "axes.titlesize": size,
                "axes.labelsize": size,
                "xtick.labelsize": size - 0.5,
                "ytick.labelsize": size - 0.5,
                "legend.fontsize": size - 0.5,
                "axes.linewidth": 0.6,
                "axes.edgecolor": "0.55",
                "axes.labelcolor": INK,
                "text.color": INK,
                "xtick.color": INK,
                "ytick.color": INK,
                "xtick.major.width": 0.6,
                "ytick.major.width": 0.6,
                "xtick.minor.width": 0.4,
                "ytick.minor.width": 0.4,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                "axes.grid": True,
                "grid.color": GRID,
                "grid.linewidth": 0.5,
                "lines.linewidth": 1.3,
                "lines.markersize": 4.0,
                "hatch.linewidth": 0.5,
                "legend.frameon": False,
                "legend.handlelength": 2.4,
                "figure.dpi": 200,
                "savefig.dpi": 200,
                "text.hinting": "no_hinting",  # text as wide in pixels as in vectors
                "svg.hashsalt": "mlaplan",
                "svg.fonttype": "path",
                "pdf.fonttype": 42,
                "axes.unicode_minus": False,
            }
        )
        yield
