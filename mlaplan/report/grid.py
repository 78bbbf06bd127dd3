"""Tables for 80 columns: numbers to the right, headers of two lines, columns that fold."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from mlaplan.report.tables import WIDTH

NARROWEST = 12  # columns that the folded one keeps at least


class Column(NamedTuple):
    """`title`: one or two lines; `left`: text, where numbers stand to the right."""

    title: str
    left: bool = False


def text(title: str) -> Column:
    """A column of text."""
    return Column(title, left=True)


def grid(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: int = 0, fold: int | Sequence[int] = 0,
    width: int | None = WIDTH,
) -> str:  # fmt: skip
    """The table in at most `width` columns: first the gaps shrink to one space, then the columns `fold` are folded.

    Of several columns the widest gives way first. None: as wide as it needs to be.
    """
    heads = _heads(columns)
    cells = [*heads, *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    folds = [fold] if isinstance(fold, int) else list(fold)
    gaps, room = len(widths) - 1, None if width is None else width - indent
    gap = 2 if room is None or sum(widths) + 2 * gaps <= room else 1
    excess = 0 if room is None else sum(widths) + gap * gaps - room
    for _ in range(excess):
        widest = max(folds, key=lambda i: widths[i])
        widths[widest] -= widths[widest] > NARROWEST
    lines = [line for row in cells for line in _folded(row, columns, widths, gap, folds)]
    return "\n".join((" " * indent + line).rstrip() for line in lines)


def _heads(columns: Sequence[Column]) -> list[list[str]]:
    """Header lines, shorter titles on the lower one."""
    parts = [column.title.split("\n") for column in columns]
    height = max(len(part) for part in parts)
    padded = [[""] * (height - len(part)) + part for part in parts]
    return [[part[line] for part in padded] for line in range(height)]


def _folded(
    row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], gap: int, folds: Sequence[int]
) -> list[str]:
    parts = {i: textwrap.wrap(row[i], widths[i], break_on_hyphens=False) or [""] for i in folds}
    lines = []
    for number in range(max(map(len, parts.values()))):
        cells = [cell if number == 0 else "" for cell in row]
        for i, part in parts.items():
            cells[i] = part[number] if number < len(part) else ""
        lines.append((" " * gap).join(_cell(c, w, k.left) for c, w, k in zip(cells, widths, columns, strict=True)))
    return lines


def _cell(content: str, width: int, left: bool) -> str:
    return content.ljust(width) if left else content.rjust(width)
