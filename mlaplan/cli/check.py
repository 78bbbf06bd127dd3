"""`mlaplan check`: every mistake in chip files, model files and config.json files."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mlaplan.cli.formats import SheetFormat


def check(
    files: Annotated[list[str], typer.Argument(help="chip or model YAML, config.json, or folders of them")],
    output: Annotated[SheetFormat, typer.Option("--format", help="How to write the findings.")] = SheetFormat.text,
) -> int:
    """Find every mistake in chip and model files.

    Exit code: 0 if there is none, 1 with findings, 2 if a file cannot be read.
    """
    from mlaplan.check import check as run
    from mlaplan.report.tables import as_json

    report = run(files)
    if output is SheetFormat.json:
        print(as_json(report.data()))
    else:
        for problem in report.problems:
            print(problem.text())
    for problem in report.unreadable:
        print(problem.text(), file=sys.stderr)
    print(report.summary(), file=sys.stderr)
    return report.exit_code
