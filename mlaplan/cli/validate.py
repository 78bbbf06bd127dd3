"""`mlaplan validate`: the model against what others measured, or against your own run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli.options import Output
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.validation.run import Run


class Set(StrEnum):
    """Which measurements."""

    kernels = "kernels"
    collectives = "collectives"
    steps = "steps"
    served = "served"
    decisions = "decisions"
    articles = "articles"


class By(StrEnum):
    """What the table has a line for."""

    group = "group"
    chip = "chip"
    engine = "engine"


class ReportFormat(StrEnum):
    """How the comparison is written."""

    table = "table"
    json = "json"
    md = "md"


def validate(
    which: Annotated[
        list[Set] | None, typer.Option("--set", help="Measurements to compare with; all but the articles by default.")
    ] = None,
    by: Annotated[By, typer.Option("--by", help="One line of the table for each.")] = By.group,
    plot: Annotated[str | None, typer.Option("--plot", metavar="PATH", help="Draw predicted over measured.")] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 where a bar is missed.")] = False,
    measured: Annotated[
        str | None,
        typer.Option("--measured", metavar="PATH", help="Result of `vllm bench serve` or SGLang's bench_serving."),
    ] = None,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="PATH", help="The plan that ran, from `recommend --save-plan`.")
    ] = None,
    output: Annotated[ReportFormat, typer.Option("--format", help="How to write the result.")] = ReportFormat.table,
    file: Output = None,
) -> int:
    """Compare predictions with published measurements, or a plan with your own benchmark.

    Exit code: 0, with --gate 1 where a bar is missed, 2 for bad usage.
    """
    from mlaplan.cli.output import check, check_picture, terminal_width, write

    check(file)
    check_picture(plot)

    if measured is not None or plan is not None:
        if measured is None or plan is None:
            raise MlaplanError("--measured and --plan go together: the result of a benchmark and the plan that it ran")
        if gate or plot is not None or which:
            raise MlaplanError("--measured compares one run: it takes no --gate, --plot or --set")
        write(_own_run(measured, plan, output), file)
        return EXIT_OK
    sets = list(dict.fromkeys(which or ()))
    if Set.articles in sets:
        if len(sets) > 1 or gate or plot is not None:
            raise MlaplanError("--set articles stands alone: it has no bars and no plot")
        write(_articles(output), file)
        return EXIT_OK
    from mlaplan.validation.run import SETS, run

    found = run([s.value for s in sets] or SETS)
    write(_rendered(found, by.value, output, terminal_width(file)), file)
    if plot is not None:
        from mlaplan.report.parity_plot import draw_parity

        draw_parity(found.scored, by.value, plot)
    return EXIT_FINDINGS if gate and found.missed else EXIT_OK


def _rendered(run: Run, by: str, output: ReportFormat, width: int | None) -> str:
    from mlaplan.report import tables, validate_data, validate_md, validate_text

    if output is ReportFormat.json:
        return tables.as_json(validate_data.document(run, by))
    if output is ReportFormat.md:
        return validate_md.document(run)
    return validate_text.report(run, by, width)


def _articles(output: ReportFormat) -> str:
    from mlaplan.report import articles_table, tables

    if output is ReportFormat.json:
        return tables.as_json(articles_table.document())
    return articles_table.markdown() if output is ReportFormat.md else articles_table.text()


def _own_run(measured: str, plan: str, output: ReportFormat) -> str:
    from mlaplan.report import measured_text, tables
    from mlaplan.validation.measured import compare

    found = compare(measured, plan)
    if output is ReportFormat.json:
        return tables.as_json(measured_text.document(found))
    return measured_text.markdown(found) if output is ReportFormat.md else measured_text.report(found)
