"""A rule of the linter: when it fires, and all that `mlaplan rules` says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.lint.finding import Found

if TYPE_CHECKING:
    from mlaplan.lint.view import View

Check = Callable[["View"], Iterator[Found]]


class LintRule(NamedTuple):
    """`bad` and `good`: texts named `file`, of which the first brings the finding and the second does not.

    needs: what must be known for the rule to run, of model and chip. engines: those it holds for; empty: all.
    """

    code: str
    slug: str
    severity: str
    title: str
    why: str
    fix: str
    bad: str
    good: str
    source: str
    check: Check | None = None
    versions: str = "all that are known"
    engines: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    file: str = "example.sh"

    @property
    def name(self) -> str:
        return f"{self.code} {self.slug}"
