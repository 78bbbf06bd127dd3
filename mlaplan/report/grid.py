"""Tables for 80 columns: numbers to the right, headers of two lines, a first column that folds."""

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


def grid(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: int = 0, fold: int = 0) -> str:
    """The table in at most 80 columns: first the gaps shrink to one space, then column `fold` is folded."""
    heads = _heads(columns)
    cells = [*heads, *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    room = WIDTH - indent
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= room else 1
    excess = sum(widths) + gap * (len(widths) - 1) - room
    if excess > 0:
        widths[fold] = max(widths[fold] - excess, min(NARROWEST, widths[fold]))
    lines = [line for row in cells for line in _folded(row, columns, widths, gap, fold)]
    return "\n".join((" " * indent + line).rstrip() for line in lines)


def _heads(columns: Sequence[Column]) -> list[list[str]]:
    """Header lines, shorter titles on the lower one."""
    parts = [column.title.split("\n") for column in columns]
    height = max(len(part) for part in parts)
    padded = [[""] * (height - len(part)) + part for part in parts]
    return [[part[line] for part in padded] for line in range(height)]


def _folded(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], gap: int, fold: int) -> list[str]:
    folded = textwrap.wrap(row[fold], widths[fold], break_on_hyphens=False) or [""]
    lines = []
    for number, part in enumerate(folded):
        cells = [cell if number == 0 else "" for cell in row]
        cells[fold] = part
        lines.append((" " * gap).join(_cell(c, w, k.left) for c, w, k in zip(cells, widths, columns, strict=True)))
    return lines


def _cell(content: str, width: int, left: bool) -> str:
    return content.ljust(width) if left else content.rjust(width)
