"""A table with what is said before and after it: written once, shown by a terminal, a page or markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mlaplan.report.grid import Column, grid
from mlaplan.report.tables import wrapped


class Block(NamedTuple):
    """`fold`: the column that is folded where 80 columns do not hold the table."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()
    fold: int = 0

    def text(self) -> str:
        """In 80 columns."""
        said = [wrapped(self.title)] if self.title else []
        return "\n".join([*said, grid(self.columns, self.rows, fold=self.fold), *map(wrapped, self.notes)])
