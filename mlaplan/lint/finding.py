"""A finding: what is wrong where, how bad it is, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mlaplan.lint.text import Word

SEVERITIES = ("error", "warning", "info")


class Found(NamedTuple):
    """What a rule finds at a word. `severity` None is the rule's own.

    needed, available: the numbers that decide, with their unit, for scripts. `edit`: the text that would replace
    the word, where that is safe.
    """

    word: Word
    message: str
    help: str | None = None
    severity: str | None = None
    needed: float | None = None
    available: float | None = None
    unit: str | None = None
    edit: str | None = None


class Finding(NamedTuple):
    """A finding as it is reported."""

    code: str
    slug: str
    severity: str
    file: str
    line: int | None
    col: int | None
    width: int
    message: str
    help: str | None = None
    numbers: Mapping[str, float | str] = MappingProxyType({})
    edit: str | None = None
    replaces: str = ""  # what must stand at the place of an edit

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        return self.file, self.line or 0, self.col or 0, self.code, self.message

    def head(self) -> str:
        """`file:line:col: severity CODE message [slug]`"""
        where = ":".join(str(part) for part in (self.file, self.line, self.col) if part is not None)
        return f"{where}: {self.severity} {self.code} {self.message} [{self.slug}]"


def finding(code: str, slug: str, severity: str, found: Found) -> Finding:
    """A rule's find as a finding."""
    w = found.word
    numbers: dict[str, float | str] = {}
    if found.needed is not None:
        numbers["needed"] = found.needed
    if found.available is not None:
        numbers["available"] = found.available
    if numbers and found.unit:
        numbers["unit"] = found.unit
    return Finding(
        code, slug, found.severity or severity, w.file, w.line, w.col, w.width, found.message, found.help, numbers,
        found.edit, w.text if found.edit is not None else "",
    )  # fmt: skip
