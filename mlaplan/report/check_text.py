"""Findings as text: the line they stand on, a caret under the very word, and the help."""

from __future__ import annotations

from mlaplan.lint.finding import Finding
from mlaplan.lint.run import Report
from mlaplan.report.tables import WIDTH, wrapped

DOTS = "..."
MARGIN = "    "
WIDEST = WIDTH - len(MARGIN)  # of a source line; longer ones are cut around the word, so that the caret stays under it


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
        lines += [f"{MARGIN}{shown}", f"{MARGIN}{before}{'^' * width}"]
    if one.help:
        lines.append(wrapped(one.help, label=f"{MARGIN}help: "))
    return "\n".join(lines)


def _cut(line: str, col: int) -> tuple[str, int]:
    line = line.rstrip()
    if len(line) <= WIDEST:
        return line, col
    room = WIDEST - 2 * len(DOTS)
    start = max(min(col - room // 3, len(line) - room), 0)
    head = DOTS if start else ""
    tail = DOTS if start + room < len(line) else ""
    return head + line[start : start + room] + tail, col - start + len(head)
