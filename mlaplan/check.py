"""Checks files that a user wrote: which files, what is wrong with each, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, MlaplanError, Problem, Unreadable
from mlaplan.specs.lookup import SUFFIXES, validate_file

SCHEMA = "mlaplan.check/1"
NOT_PRICED = "not-priced"  # a config.json that is well-formed but of an architecture without a cost model


@dataclass(slots=True)
class Report:
    """Problems of readable files, problems of reading, and how many files were read."""

    problems: list[Problem] = field(default_factory=list)
    unreadable: list[Problem] = field(default_factory=list)
    files: int = 0

    def count(self, severity: str) -> int:
        return sum(problem.severity == severity for problem in [*self.problems, *self.unreadable])

    @property
    def exit_code(self) -> int:
        if self.unreadable:
            return EXIT_USAGE
        return EXIT_FINDINGS if self.count("error") else EXIT_OK

    def summary(self) -> str:
        """`2 files checked: 1 error, 0 warnings`"""
        parts = [_counted(self.files, "file") + " checked: " + _counted(self.count("error"), "error")]
        parts.append(_counted(self.count("warning"), "warning"))
        if self.unreadable:
            parts.append(f"{len(self.unreadable)} not readable")
        return ", ".join(parts)

    def data(self) -> dict[str, Any]:
        """The report for scripts."""
        names = ("file", "line", "col", "severity", "code", "message", "expected", "hint")
        found = [*self.problems, *self.unreadable]
        return {
            "schema": SCHEMA,
            "files": self.files,
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "problems": [{name: getattr(problem, name) for name in names} for problem in found],
        }


def check(paths: Sequence[str]) -> Report:
    """Checks every file, and in a folder every spec and config.json."""
    report = Report()
    for path in dict.fromkeys(file for given in paths for file in _files(given)):
        try:
            report.problems += [_lint(problem) for problem in validate_file(path)]
            report.files += 1
        except Unreadable as error:
            report.unreadable += error.problems
    return report


def _lint(problem: Problem) -> Problem:
    """An architecture that cannot be priced is no mistake in its file."""
    from dataclasses import replace

    return replace(problem, severity="warning") if problem.code == NOT_PRICED else problem


def _files(given: str) -> Iterator[str]:
    if not given.strip():
        raise MlaplanError("an empty file name; expected a file or a folder")
    folder = Path(given)
    if not folder.is_dir():
        yield given
        return
    found = [path for path in sorted(folder.iterdir()) if _is_spec(path)]
    if not found:
        raise MlaplanError(f"{given}: holds nothing to check; expected *.yaml, *.yml or config.json")
    yield from map(str, found)


def _is_spec(path: Path) -> bool:
    if not path.is_file() or path.name.startswith("."):
        return False
    return path.name == "config.json" if path.suffix == ".json" else path.suffix in SUFFIXES


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
