"""Findings as text: the line they stand on, a caret under the very word, and the help."""

from __future__ import annotations

from mlaplan.lint.finding import Finding
from mlaplan.lint.run import Report

WIDEST = 160  # of a source line; longer ones are cut around the word


def text(report: Report) -> str:
    """All findings, problems of specs first, each in the order of its file."""
    parts = [problem.text() for problem in report.problems]
    parts += [_block(report, one) for one in report.findings]
    return "\n".join(parts)


def _block(report: Report, one: Finding) -> str:
    lines = [one.head()]
    source = report.sources.get(one.file)
    line = source.line(one.line) if source is not None and one.line is not None else None
    if line is not None and one.col is not None:
        shown, col = _cut(line, one.col)
        before = "".join("\t" if c == "\t" else " " for c in shown[: col - 1])
        width = max(min(one.width, len(shown) - col + 1), 1)
        lines += [f"    {shown}", f"    {before}{'^' * width}"]
    if one.help:
        lines.append(f"    help: {one.help}")
    return "\n".join(lines)


def _cut(line: str, col: int) -> tuple[str, int]:
    line = line.rstrip()
    if len(line) <= WIDEST:
        return line, col
    start = max(min(col - WIDEST // 3, len(line) - WIDEST), 0)
    piece = line[start : start + WIDEST]
    head = "..." if start else ""
    tail = "..." if start + WIDEST < len(line) else ""
    return head + piece + tail, col - start + len(head)
