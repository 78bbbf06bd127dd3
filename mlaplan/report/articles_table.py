"""Claims of articles beside what follows from arithmetic and the cost model."""

from __future__ import annotations

from typing import Any

from mlaplan.report.tables import aligned, as_markdown, wrapped

HEAD = ("article", "claim", "claimed", "recomputed", "verdict")


def _rows() -> list[Any]:
    from mlaplan.validation.articles import articles_rows

    return list(articles_rows())


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.4g} {unit}".rstrip()


def _cells(row: Any) -> list[str]:
    return [row.article, row.claim, _number(row.claimed, row.unit), _number(row.recomputed, row.unit), row.verdict]


def text() -> str:
    """One line for each claim, and the reason below where it does not simply hold."""
    out = []
    for row in _rows():
        article, claim, claimed, found, verdict = _cells(row)
        numbers = [[claimed or "-", found or "-", verdict]]
        out.append(wrapped(claim, label=f"{article}: ", width=100))
        out.append(aligned(numbers, indent=4))
        out.append(wrapped(row.reason, label="    ", width=100))
    return "\n".join(out)


def markdown() -> str:
    return as_markdown([*HEAD, "reason"], [[*_cells(row), row.reason] for row in _rows()])


def document() -> dict[str, Any]:
    return {"schema": "mlaplan.articles/1", "claims": [row._asdict() for row in _rows()]}
