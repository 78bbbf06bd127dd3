"""Claims of four articles against what follows from shapes, arithmetic and this cost model.

The data are in articles.yaml, in our words; the numbers computed beside each claim in article_*.py. A verdict is that
of the two numbers, or stated in the data with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mlaplan.costs.study import Stated

FILE = Path(__file__).with_name("articles.yaml")
HOLDS, WITH, NOT, UNKNOWN = "holds", "holds with", "does not hold", "cannot be checked"
VERDICTS = (HOLDS, WITH, NOT, UNKNOWN)
ARTICLES = ("k3", "sc11", "h100", "ascend")


class Row(NamedTuple):
    """One claim. claimed, recomputed: in `unit`, None where there is no number."""

    article: str
    id: str
    claim: str
    claimed: float | None
    recomputed: float | None
    unit: str
    verdict: str
    reason: str


@cache
def data() -> dict[str, Any]:
    """articles.yaml, read once."""
    from mlaplan.specs import source

    return dict(source.read(FILE).data)


def figures(article: str) -> dict[str, Any]:
    """What an article states."""
    return dict(data()["figures"][article])


def stated() -> Stated:
    """Slices, depth and threshold of the K3 article, for `chunks` to compare with."""
    from mlaplan.costs.study import Stated

    k3 = figures("k3")
    low, high = k3["slice_bytes"]
    return Stated("The K3 article", (low, high), k3["depth"], k3["from_batch"], k3["from_context"])


def articles_rows() -> list[Row]:
    """Every claim of every article, in the order of the data."""
    return [row for article in ARTICLES for row in rows_of(article)]


def rows_of(article: str) -> list[Row]:
    """The claims of one article."""
    computed = computations(article)
    out = []
    for c in data()["claims"][article]:
        found = computed[c["id"]]() if c["id"] in computed else None
        claimed = c.get("value")
        out.append(
            Row(
                article, c["id"], c["claim"], None if claimed is None else float(claimed), found, c.get("unit", ""),
                c.get("verdict") or verdict(claimed, found, c["within"]), c["reason"],
            )
        )  # fmt: skip
    return out


def verdict(claimed: float, recomputed: float | None, within: float) -> str:
    """holds, if the two are within this part of the claim."""
    return HOLDS if recomputed is not None and agrees(claimed, recomputed, within) else NOT


def agrees(claimed: float, recomputed: float, within: float) -> bool:
    return abs(recomputed - claimed) <= within * abs(claimed) + 1e-9


def computations(article: str) -> Mapping[str, Callable[[], float]]:
    """Numbers by claim."""
    from importlib import import_module

    # the modules read their article's figures from here
    found: Mapping[str, Callable[[], float]] = import_module(f"mlaplan.validation.article_{article}").COMPUTED
    return found
