"""Source text and where each of its characters stands."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from mlaplan.specs.source import decoded


class Mapped(NamedTuple):
    """A text and the (offset, line, column) from which on its characters follow each other in the file."""

    text: str
    marks: tuple[tuple[int, int, int], ...]

    def at(self, offset: int) -> tuple[int, int]:
        """Line and column in the file, from 1."""
        i = max(bisect_right(self.marks, (offset, 1 << 60, 1 << 60)) - 1, 0)
        start, line, col = self.marks[i] if self.marks else (0, 1, 1)
        return line, col + offset - start


class Source(NamedTuple):
    """A file as text: line ends are newlines, no byte-order mark."""

    name: str
    text: str
    lines: list[str]

    def line(self, number: int) -> str | None:
        """One line, from 1; None outside of the text."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else None

    def mapped(self) -> Mapped:
        """The whole text, where it stands."""
        return plain(self.text)


def read_text(raw: bytes | str, name: str) -> Source:
    """The source in these bytes; SpecError for what is no text."""
    text = decoded(raw, name)
    return Source(name, text, text.split("\n"))


def plain(text: str, line: int = 1, col: int = 1) -> Mapped:
    """A text that starts at this place of a file and goes on as written."""
    marks = [(0, line, col)]
    at = text.find("\n")
    while at >= 0:
        line += 1
        marks.append((at + 1, line, 1))
        at = text.find("\n", at + 1)
    return Mapped(text, tuple(marks))


@dataclass(slots=True, eq=False)
class Word:
    """A word of a command and its place. `unknown`: the part of it whose value is not known here.

    Never changed once made; a frozen class would take three times as long to make.
    """

    text: str
    file: str
    line: int
    col: int
    width: int = 1
    unknown: str | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        return self.file, self.line, self.col
