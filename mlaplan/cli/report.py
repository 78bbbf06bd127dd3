"""`mlaplan report`: a recommendation as one page to hand on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlaplan.cli.answers import with_question
from mlaplan.cli.options import Output
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.cli.answers import Answered

SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}


class PageFormat(StrEnum):
    """How a page is written."""

    html = "html"
    md = "md"


@with_question()
def report(
    output: Annotated[
        PageFormat | None,
        typer.Option("--format", help="How to write the page; else as the file's name ends, or HTML."),
    ] = None,
    file: Output = None,
    **question: Any,
) -> int:
    """Write the answer to a question as one page: HTML without anything from elsewhere, or Markdown.

    The question is that of `recommend`, with the same options. Exit code: 0 with a plan, 1 if nothing is feasible;
    the page is written in both cases.
    """
    from mlaplan.cli import questions
    from mlaplan.cli.answers import command_line
    from mlaplan.cli.output import check, write
    from mlaplan.report.page import content, html, markdown
    from mlaplan.report.page.front import front_of

    check(file)
    written = _format(output, file)
    found = answer(question)
    questions.tell(found.said)
    command = command_line("report", report, question)
    asked = content.Asked(
        found.answer, front_of(found.answer, found.given), found.given, found.subject.settings, command
    )
    page = content.page(asked)
    write((html if written is PageFormat.html else markdown).document(page).rstrip("\n"), file)
    return EXIT_OK if found.answer.found.plans else EXIT_FINDINGS


def answer(question: dict[str, Any]) -> Answered:
    """The answer; an engine that was named launches the plan, if it has commands."""
    from mlaplan.cli.answers import answered
    from mlaplan.engines import MODULES
    from mlaplan.engines.load import split_name

    engine = question["engine"]
    if question["emit"] is None and engine is not None and split_name(engine)[0] in MODULES:
        question = {**question, "emit": engine}
    return answered(question)


def _format(output: PageFormat | None, file: str | None) -> PageFormat:
    """The format asked for; a file's name must not say another."""
    named = SUFFIXES.get(Path(file).suffix.lower()) if file else None
    if output is None and file not in (None, "-") and named is None:
        expected = f"a name that ends in {', '.join(SUFFIXES)}, or --format"
        raise MlaplanError(f"{file}: its name does not say what to write; expected {expected}")
    if output is not None and named is not None and output.value != named:
        raise MlaplanError(f"--format {output.value} and {file} contradict each other: one says {named}")
    return output or PageFormat(named or "html")
