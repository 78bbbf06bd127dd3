"""The variants of `mlaplan verify` as a table, json, csv or markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import as_csv, as_json, as_markdown, wrapped

if TYPE_CHECKING:
    from mlaplan.kernel.verify import Row

SCHEMA = "mlaplan.verify/1"
HEADER = ("variant", "max abs", "relative", "cosine", "sent B", "expected", "verdict")


def render(about: Mapping[str, Any], rows: Sequence[Row], how: str) -> str:
    """`about` are the inputs by name; bytes are those that all ranks send in one step."""
    if how == "json":
        return as_json({"schema": SCHEMA, **about, "rows": [_finite(row) for row in rows]})
    if how == "csv":
        return as_csv([asdict(row) for row in rows])
    cells = [_cells(row) for row in rows]
    if how == "md":
        return as_markdown(HEADER, cells)
    head = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in about.items() if value is not None)
    columns = [text(title) if title in ("variant", "verdict") else Column(title) for title in HEADER]
    return f"{wrapped(head)}\n\n{grid(columns, cells)}"


def _finite(row: Row) -> dict[str, Any]:
    """JSON has no infinity: the error of a result with NaN is null there."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(row).items()}


def _cells(row: Row) -> tuple[str, ...]:
    errors = (f"{error:.1e}" for error in (row.max_abs, row.relative, row.cosine))
    sent, expected = (f"{size:.0f}" if size else "-" for size in (row.sent_bytes, row.expected_bytes))
    return (row.variant, *errors, sent, expected, row.verdict)
