"""Typed access to the keys of a config.json, with every complaint collected at its place in the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlaplan.errors import Problem
from mlaplan.specs.figure import kind_of
from mlaplan.specs.source import Document

LARGEST = 10**9
REQUIRED = -1  # no default: the key sizes something, so a guess would be silent


class Keys:
    """One mapping of a document. A complaint is noted and a harmless value returned: all are told at once."""

    def __init__(self, document: Document, path: tuple[str | int, ...], problems: list[Problem]) -> None:
        self.document = document
        self.path = path
        self.problems = problems
        here: Any = document.data
        for step in path:
            here = here[step]
        self.data: dict[str, Any] = here

    def given(self, *names: str) -> str | None:
        """The first of these keys that is present and not null."""
        return next((name for name in names if self.data.get(name) is not None), None)

    def count(self, *names: str, default: int = REQUIRED, least: int = 1, most: int = LARGEST) -> int:
        """A whole number under the first of these names that is given."""
        name = self.given(*names)
        if name is None:
            if default == REQUIRED:
                self.missing(names[0])
                return least
            return default
        value = self.data[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            above = isinstance(value, int) and value > most
            expected = f"a whole number of at {f'most {most}' if above else f'least {least}'}"
            self.complain(name, f"{name}: {_shown(value)} does not belong here", expected=expected)
            return least
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A true or false value."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.complain(name, f"{name}: {_shown(value)} does not belong here", expected="true or false")
            return default
        return value

    def words(self, name: str, allowed: Sequence[str | int], length: int, spare: int = 0) -> list[Any] | None:
        """A list with one word a layer (MTP layers may add `spare` more), or None where it is not given."""
        values = self.data.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or not length <= len(values) <= length + spare:
            has = f"has {len(values)} entries" if isinstance(values, list) else f"is {_shown(values)}"
            self.complain(name, f"{name} {has}", expected=f"a list of {length}, one for each layer")
            return None
        for i, value in enumerate(values[:length]):
            if value not in allowed:
                expected = f"one of {', '.join(map(str, allowed))}"
                self.complain((name, i), f"{name}[{i}]: {_shown(value)} is not known here", expected=expected)
                return None
        return values[:length]

    def missing(self, name: str) -> None:
        """Notes that a key is not there and no default can stand in for it."""
        inside = f" in {'.'.join(map(str, self.path))}" if self.path else ""
        expected = "the key, since it sizes the model"
        problem = self.document.problem(self.path, f"missing key '{name}'{inside}", expected=expected)
        self.problems.append(problem)

    def complain(
        self,
        name: str | tuple[str | int, ...],
        message: str,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Notes a complaint about the value of a key of this mapping."""
        path = (*self.path, *((name,) if isinstance(name, str) else name))
        self.problems.append(self.document.problem(path, message, expected=expected, hint=hint))


def _shown(value: Any) -> str:
    text = kind_of(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
