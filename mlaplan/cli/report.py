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
    from mlaplan.report.page.elements import Page

SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}


class PageFormat(StrEnum):
    """How a page is written."""

    html = "html"
    md = "md"
    json = "json"


@with_question()
def report(
    output: Annotated[
        PageFormat | None,
        typer.Option("--format", help="How to write the page; else as the file's name ends, or HTML."),
    ] = None,
    file: Output = None,
    **question: Any,
) -> int:
    """Write the answer to a question as one page to hand on: HTML or Markdown.

    The HTML needs nothing from elsewhere. The question is that of `recommend`, with the same options; json holds the
    page's numbers alone. Exit code: 0 with a plan, 1 if nothing is feasible; the page is written in both cases.
    """
    from mlaplan.cli import questions
    from mlaplan.cli.answers import command_line
    from mlaplan.cli.output import check, write
    from mlaplan.report.page import content
    from mlaplan.report.page.front import front_of

    check(file)
    written = _format(output, file)
    found = answer(question)
    questions.tell(found.said)
    a, given, command = found.answer, found.given, command_line("report", report, question)
    page = content.page(content.Asked(a, front_of(a, given), given, found.subject.settings, command))
    write(_written(page, written), file)
    return EXIT_OK if a.found.plans else EXIT_FINDINGS


def _written(page: Page, how: PageFormat) -> str:
    from mlaplan.report import tables
    from mlaplan.report.page import html, markdown

    if how is PageFormat.json:
        return tables.as_json(page.numbers)
    return (html if how is PageFormat.html else markdown).document(page).rstrip("\n")


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
