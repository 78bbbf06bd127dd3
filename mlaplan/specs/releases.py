"""Releases of an engine, the minor lines they belong to, and which line's measurements stand for which release.

Kernels change from one minor release to the next by 5 to 20 %: fits are kept for a line, and all patch releases and
candidates of it share them, though kernels may move within a line too.
"""

from __future__ import annotations

import re
from collections.abc import Collection

Line = tuple[int, int]  # major and minor


def line_of(release: str | None) -> Line | None:
    """1.0.0rc3 -> (1, 0), 0.20.0 -> (0, 20); None for what names no minor line."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?![0-9])", release or "")
    return None if found is None else (int(found[1]), int(found[2]))


def text(line: Line) -> str:
    """(0, 20) -> 0.20"""
    return f"{line[0]}.{line[1]}"


def chosen(asked: Line, lines: Collection[Line]) -> Line:
    """The newest of the lines that is not newer than the one asked for; where all are newer, the oldest."""
    return max((line for line in lines if line <= asked), default=min(lines))
