"""`mlaplan new`: a commented chip or model file to start from."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """What is written."""

    chip = "chip"
    model = "model"


def new(
    kind: Annotated[Kind, typer.Argument(help="chip or model", metavar="chip|model")],
    name: Annotated[str, typer.Argument(help="its name; the file is NAME.yaml in this folder")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented template to fill in.

    The file is NAME.yaml in this folder, and passes `mlaplan check` as it is.
    """
    from mlaplan.specs.template import write

    path = write(kind.value, name, overwrite=force)
    print(path)
    print(f"fill it in, then: mlaplan check {path}", file=sys.stderr)
