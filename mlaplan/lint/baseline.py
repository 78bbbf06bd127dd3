"""Findings that are known and accepted: kept in a file, and left out of later reports.

A finding is known again by its file, its rule and the text of its line, so that lines may move.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from mlaplan.errors import MlaplanError
from mlaplan.lint.finding import Finding
from mlaplan.lint.text import Source

SCHEMA = "mlaplan.baseline/1"
Key = tuple[str, str, str]


def _key(one: Finding, sources: dict[str, Source]) -> Key:
    source = sources.get(one.file)
    line = source.line(one.line) if source is not None and one.line is not None else None
    return Path(one.file).as_posix(), one.code, " ".join((line or "").split())


def document(findings: list[Finding], sources: dict[str, Source]) -> dict[str, Any]:
    """The content of a baseline file with these findings."""
    known = Counter(_key(one, sources) for one in findings)
    rows = [{"file": file, "code": code, "line": line, "count": n} for (file, code, line), n in sorted(known.items())]
    return {"schema": SCHEMA, "findings": rows}


def without(findings: list[Finding], sources: dict[str, Source], file: str) -> list[Finding]:
    """The findings that a baseline file does not hold."""
    left = _read(file)
    kept = []
    for one in findings:
        key = _key(one, sources)
        if left[key] > 0:
            left[key] -= 1
        else:
            kept.append(one)
    return kept


def _read(file: str) -> Counter[Key]:
    expected = f"expected a file that --write-baseline wrote, of schema {SCHEMA}"
    try:
        data = json.loads(Path(file).read_text("utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError
        return Counter({(row["file"], row["code"], row["line"]): int(row["count"]) for row in data["findings"]})
    except OSError as error:
        raise MlaplanError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MlaplanError(f"{file}: no baseline; {expected}") from None
