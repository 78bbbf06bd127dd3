"""`mlaplan list`: the chips or models that can be asked for by name."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, SpecError


class Kind(StrEnum):
    """What is listed."""

    chips = "chips"
    models = "models"


def list_(
    what: Annotated[Kind, typer.Argument(help="chips or models", metavar="chips|models")],
    output: Annotated[Format, typer.Option("--format", help="How to write the list.")] = Format.table,
) -> int:
    """List the chips or models known by name."""
    from mlaplan.report import catalogue, tables
    from mlaplan.specs.lookup import chip_names, load_chip, load_model, model_names

    rows: list[dict[str, Any]] = []
    broken = False
    for name, file in chip_names() if what is Kind.chips else model_names():
        try:
            row = catalogue.chip_row(load_chip(file)) if what is Kind.chips else catalogue.model_row(load_model(file))
            rows.append({"name": name} | row)
        except SpecError as error:
            broken = True
            print(error, file=sys.stderr)
    if output is Format.json:
        print(tables.as_json({"schema": f"mlaplan.{what.value}/1", what.value: rows}))
    elif output is Format.csv:
        print(tables.as_csv(rows))
    else:
        header, cells = catalogue.columns(what.value, rows)
        print(tables.as_markdown(header, cells) if output is Format.md else tables.aligned(cells, header=header))
        if output is Format.table:
            print(catalogue.folders(rows))
    return EXIT_FINDINGS if broken else EXIT_OK
