"""What a page is made of, whatever it is written as.

Texts may hold `code` between backticks; everything else in them is taken literally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.report.grid import Column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mlaplan.report.block import Block


class Text(NamedTuple):
    """A paragraph. `kind`: plain, verdict (the sentence that answers), or warning."""

    text: str
    kind: str = "plain"


class Items(NamedTuple):
    """A list; numbered where its order matters."""

    items: Sequence[str]
    numbered: bool = False


class Facts(NamedTuple):
    """Terms with what they are."""

    rows: Sequence[tuple[str, str]]


class Card(NamedTuple):
    """One figure of the answer: what it is, its value, and what is known of it."""

    name: str
    value: str
    band: str
    remark: str = ""


class Cards(NamedTuple):
    """The figures of the answer side by side."""

    cards: Sequence[Card]


class Table(NamedTuple):
    """Rows under a caption. `marked`: the rows that stand out; `head`: the column that names a row."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    marked: frozenset[int] = frozenset()
    head: int = 0


class Code(NamedTuple):
    """Commands to paste."""

    label: str
    text: str


class Picture(NamedTuple):
    """A drawing, and what it shows in words for those who do not see it; only HTML has it."""

    name: str
    caption: str
    told: str
    draw: Callable[[], Figure]


Element = Text | Items | Facts | Cards | Table | Code | Picture


class Section(NamedTuple):
    """A heading with what stands under it; `name` is its anchor."""

    name: str
    title: str
    elements: Sequence[Element]


class Page(NamedTuple):
    """The whole; `numbers`: the figures on it as data, for programs that read the page."""

    title: str
    about: str
    sections: Sequence[Section]
    numbers: dict[str, Any]
    made_by: str


def heading(column: Column) -> str:
    """A column's title on one line: `tok/s/chip` is two in a terminal."""
    return column.title.replace("/\n", "/").replace("tok/s\n", "tok/s/").replace("\n", " ")


def table(caption: str, block: Block, marked: frozenset[int] = frozenset(), head: int = 0) -> list[Element]:
    """A block of a text report as a table under a caption, what it says first before it."""
    shown = Table(caption, block.columns, block.rows, block.notes, marked, head)
    return [Text(block.title), shown] if block.title else [shown]
