"""Edits that change nothing but a name: as a diff, or written into the files."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlaplan.lint.finding import Finding
from mlaplan.lint.text import Source


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file before and after its edits, and how many there were."""

    file: str
    before: str
    after: str
    edits: int

    def diff(self) -> str:
        """The change as a unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), self.file, self.file
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def fixes(findings: Sequence[Finding], sources: dict[str, Source]) -> list[Fixed]:
    """The files with all safe edits made. A place that does not hold the expected word is left alone."""
    by_file: dict[str, list[Finding]] = {}
    for one in findings:
        if one.edit is not None and one.line is not None and one.col is not None and one.file in sources:
            by_file.setdefault(one.file, []).append(one)
    return [fixed for file, found in by_file.items() if (fixed := _fixed(sources[file], found)).edits]


def _fixed(source: Source, found: list[Finding]) -> Fixed:
    lines = list(source.lines)
    edits = 0
    done: set[tuple[int, int]] = set()
    for one in sorted(found, key=lambda f: (f.line or 0, f.col or 0), reverse=True):
        assert one.line is not None
        assert one.col is not None
        line = lines[one.line - 1] if one.line <= len(lines) else ""
        start = one.col - 1
        if (one.line, start) in done or not line.startswith(one.replaces, start) or one.edit is None:
            continue
        done.add((one.line, start))
        lines[one.line - 1] = line[:start] + one.edit + line[start + len(one.replaces) :]
        edits += 1
    return Fixed(source.name, source.text, "\n".join(lines), edits)


def as_it_was_written(fixed: Fixed) -> str | None:
    """The text to write: with the file's own line ends and byte-order mark; None where these are mixed."""
    raw = Path(fixed.file).read_bytes().decode("utf-8")
    mark = "\ufeff" if raw.startswith("\ufeff") else ""
    plain = raw.removeprefix("\ufeff")
    for end in ("\n", "\r\n", "\r"):
        if fixed.before.replace("\n", end) == plain:
            return mark + fixed.after.replace("\n", end)
    return None
