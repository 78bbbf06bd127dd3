"""The command line: one small file per verb, each importing what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from mlaplan import __version__
from mlaplan.cli.calibrate import calibrate
from mlaplan.cli.check import DashedCommand, check
from mlaplan.cli.chunks import chunks
from mlaplan.cli.explain import explain
from mlaplan.cli.list_ import list_
from mlaplan.cli.new import new
from mlaplan.cli.recommend import recommend
from mlaplan.cli.rules import rules
from mlaplan.cli.show import show
from mlaplan.cli.validate import validate
from mlaplan.cli.verify import verify

app = typer.Typer(
    name="mlaplan",
    help="Plan the deployment of Multi-head Latent Attention models on any accelerator.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("recommend")(recommend)
app.command("explain")(explain)
app.command("chunks")(chunks)
app.command("list")(list_)
app.command("show")(show)
app.command("validate")(validate)
app.command("verify")(verify)
app.command("calibrate")(calibrate)
app.command("check", cls=DashedCommand)(check)
app.command("rules")(rules)
app.command("new")(new)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mlaplan {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
