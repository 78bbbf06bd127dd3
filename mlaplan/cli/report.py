"""`mlaplan report`: a recommendation as one page to hand on."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlaplan.cli.answers import APART, with_question
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


@with_question(also=APART)
def report(
    emit: Annotated[
        str | None, typer.Option("--emit", metavar="ENGINE", help="Launch commands of an engine: vllm[@VERSION].")
    ] = None,
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
    from mlaplan.cli import emitting_apart, manifesting, questions
    from mlaplan.cli.answers import command_line
    from mlaplan.cli.disagg import Apart, decide, exit_code
    from mlaplan.cli.output import check, write
    from mlaplan.report.page import content
    from mlaplan.report.page.front import front_of

    check(file)
    written, question = _format(output, file), {**question, "emit": emit}
    if (kind := manifesting.kind_of(emit)) is not None:
        raise MlaplanError(f"--emit {kind}: a page holds commands; mlaplan recommend writes manifests")
    apart = Apart(question["disagg"], *(question[name] for name in APART[1:]))
    apart.check(question["devices"], question["objective"].value)
    found = answer(question)
    questions.tell(found.said)
    a, given, command = found.answer, found.given, command_line("report", report, _portable(question))
    two = decide(a, found.subject, apart, given, dict(a.pins)) if apart.wanted else None
    if two is not None and two.wins == "apart":
        engine = emit or _launches(question["engine"])
        a = replace(a, launch=emitting_apart.commands(two, engine) if engine is not None else None)
    page = content.page(content.Asked(a, front_of(a, given), given, found.subject.settings, command, two))
    write(_written(page, written), file)
    if two is not None:
        return exit_code(a, two)
    return EXIT_OK if a.found.plans else EXIT_FINDINGS


def _portable(question: dict[str, Any]) -> dict[str, Any]:
    """The question as a page may tell it: files of this host by what others see of them."""
    from mlaplan.report.words import file

    named = ("model", "chip", "prefill_chip", "decode_chip")
    return {name: file(value) if name in named and value else value for name, value in question.items()}


def _launches(engine: str | None) -> str | None:
    """The engine, if it has commands."""
    from mlaplan.engines import MODULES
    from mlaplan.engines.load import split_name

    return engine if engine is not None and split_name(engine)[0] in MODULES else None


def _written(page: Page, how: PageFormat) -> str:
    from mlaplan.report import tables
    from mlaplan.report.page import html, markdown

    if how is PageFormat.json:
        return tables.as_json(page.numbers)
    return (html if how is PageFormat.html else markdown).document(page).rstrip("\n")


def answer(question: dict[str, Any]) -> Answered:
    """The answer; an engine that was named launches the plan, if it has commands."""
    from mlaplan.cli.answers import answered

    if question["emit"] is None and (engine := _launches(question["engine"])) is not None:
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
