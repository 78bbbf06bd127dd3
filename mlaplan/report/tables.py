"""Rows to a plain table, json, csv or markdown; nothing here depends on a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 80


def aligned(rows: Sequence[Sequence[str]], *, header: Sequence[str] | None = None, indent: int = 0) -> str:
    """Columns as wide as their widest cell, two spaces apart, or one where the lines would be too long."""
    lines = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    if not lines:
        return ""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    margin = " " * indent
    gap = "  " if indent + sum(widths) + 2 * (len(widths) - 1) <= WIDTH else " "
    return "\n".join(
        margin + gap.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def wrapped(text: str, *, label: str = "", width: int = WIDTH) -> str:
    """A paragraph after a label, its further lines under the first word."""
    return textwrap.fill(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


def as_json(data: Any) -> str:
    """Indented JSON; a float that is a whole number is written without its `.0`."""
    import json

    return json.dumps(_whole(data), indent=2, ensure_ascii=False, allow_nan=False)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """One header line and one line per row."""
    import csv
    import io

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows[0] if rows else [])
    writer.writerows([_whole(value) for value in row.values()] for row in rows)
    return stream.getvalue().rstrip("\n")


def as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A GitHub table."""
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value
