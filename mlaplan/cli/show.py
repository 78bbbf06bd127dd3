"""`mlaplan show`: one chip or model with every figure, or what was understood of a config.json."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mlaplan.cli.formats import SheetFormat


def show(
    name: Annotated[str, typer.Argument(help="a chip or model by name, a YAML file or a config.json")],
    output: Annotated[SheetFormat, typer.Option("--format", help="How to write it.")] = SheetFormat.text,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Another value for a chip's figure, such as memory.bandwidth=x0.9.",
            metavar="PATH=VALUE",
        ),
    ] = None,
) -> None:
    """Show a chip or model with every source.

    Each figure with its confidence and where it is from; of a model, what was understood of its shapes.
    """
    from mlaplan.report.tables import as_json
    from mlaplan.specs.lookup import kind_of, load_chip, load_model

    if kind_of(name) == "chip":
        from mlaplan.report import chip_sheet

        chip = load_chip(name, settings or ())
        for warning in chip.warnings:
            print(warning.text(), file=sys.stderr)
        print(as_json(chip_sheet.data(chip)) if output is SheetFormat.json else chip_sheet.text(chip))
        return
    if settings:
        raise typer.BadParameter("only figures of a chip can be set", param_hint="--set")
    from mlaplan.report import model_sheet

    model = load_model(name)
    print(as_json(model_sheet.data(model)) if output is SheetFormat.json else model_sheet.text(model))
