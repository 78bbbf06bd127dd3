"""Output formats that several verbs share."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How a result is written to stdout."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


class SheetFormat(StrEnum):
    """How one chip or model, or a list of findings, is written to stdout."""

    text = "text"
    json = "json"
