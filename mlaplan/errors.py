"""What a user can get wrong, told as one line per problem, and the exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_INTERRUPT = 130


class MlaplanError(Exception):
    """A mistake in what the user gave; never a defect of the program. str() is what the user reads."""

    exit_code = EXIT_USAGE


class Problem(NamedTuple):
    """One complaint about one place. `expected` and `hint` are phrases without a closing full stop."""

    file: str
    line: int | None
    col: int | None
    message: str
    expected: str | None = None
    hint: str | None = None
    severity: str = "error"
    code: str | None = None

    def where(self) -> str:
        """`file:line:col`, as far as they are known."""
        return ":".join(str(part) for part in (self.file, self.line, self.col) if part is not None)

    def text(self) -> str:
        """`file:line:col: message; expected ...; did you mean 'x'?`"""
        label = "" if self.severity == "error" else f"{self.severity}: "
        parts = [label + self.message]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.hint:
            parts.append(self.hint)
        code = f" [{self.code}]" if self.code else ""
        return f"{self.where()}: {'; '.join(parts)}{code}"


class SpecError(MlaplanError):
    """A file that cannot be used, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.text() for problem in problems))
        self.problems = list(problems)


class Unreadable(SpecError):
    """A file that is missing or that the system does not hand out."""


class UnknownName(MlaplanError):
    """A name that is not known; shows the nearest and the list."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        parts = [f"unknown {what} '{name}'"]
        if hint := did_you_mean(name, names):
            parts.append(hint)
        parts.append(f"known are {', '.join(names)}" if names else "none is known here")
        super().__init__("; ".join(parts))
        self.name = name
        self.known = names


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that looks most like `name`, or None if none does."""
    import difflib

    by_folded = {_folded(choice): choice for choice in sorted(choices, reverse=True)}
    key = _folded(name)
    if key in by_folded:
        return by_folded[key]
    # a beginning that a person would complete, 'h100' for 'h100-sxm', before a look-alike such as 'h20'
    begins = [folded for folded in by_folded if len(key) >= 3 and folded.startswith(key)]
    if begins:
        return by_folded[min(begins, key=lambda folded: (len(folded), folded))]
    found = difflib.get_close_matches(key, list(by_folded), n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, choices: Iterable[str]) -> str | None:
    """The hint `did you mean 'x'?`, or None."""
    best = nearest(name, choices)
    return f"did you mean '{best}'?" if best is not None and best != name else None


def _folded(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-")
