"""The command line: one small file per verb, each importing what it needs when it runs.

Setting up a verb's options takes longer than `--help` should, so only the verb that is asked for is set up; of the
others the list of verbs needs no more than the first sentence of their help. Annotations are not deferred here: typer
would compile each of them from its text, and twice.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from mlaplan import __version__

VERBS = {
    "recommend": "Find the best strategies for a workload, and say why.",
    "explain": "Price one strategy, operator by operator, and say whether it fits.",
    "size": "Find the fewest chips for a request rate and limits on percentiles.",
    "tiers": "Show what cache tiers in host memory or a pooled store are worth.",
    "kv": "Show what a KV cache holds: formats, blocks, shared prefixes, buckets.",
    "report": "Write the answer to a question as one page to hand on: HTML or Markdown.",
    "compare": "Compare saved plans, or the best plan for one workload on several chips.",
    "sweep": "Price a whole grid of questions: the best plan of each point, its Pareto front or every plan.",
    "plot": "Draw the rows of a sweep, or the plan of one question.",
    "chunks": "Choose query chunk, slice and pipeline depth of a group of chips.",
    "list": "List the chips or models known by name.",
    "show": "Show a chip or model with every source.",
    "simulate": "Run requests through a plan, event by event: queues, cache, tails.",
    "validate": "Compare predictions with published measurements, or a plan with your own benchmark.",
    "verify": "Prove that every variant computes the same attention.",
    "calibrate": "Fit kernel and collective constants to measured times.",
    "check": "Find mistakes in deployments, chips, models and plans; `-- COMMAND` checks a launch command.",
    "rules": "Show the rules that `check` applies: what, why, bad and good example, versions, source.",
    "new": "Write a commented template to fill in.",
}


def asked_for(arguments: Sequence[str]) -> str | None:
    """The verb: the first word, as no option of the application takes a value."""
    return next((word for word in arguments if not word.startswith("-")), None)


def command_line(arguments: Sequence[str]) -> typer.Typer:
    """The application, able to run the verb that the arguments begin with."""
    app = typer.Typer(
        name="mlaplan",
        help="Plan the deployment of Multi-head Latent Attention models on any accelerator.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    wanted = asked_for(arguments)
    for verb, summary in VERBS.items():
        if verb == wanted:
            app.command(verb, cls=_class_of(verb))(function_of(verb))
        else:
            app.command(verb, help=summary)(_listed)
    return app


def function_of(verb: str) -> Callable[..., Any]:
    """The function that runs a verb; `list` would hide Python's own."""
    name = "list_" if verb == "list" else verb
    return getattr(import_module(f"mlaplan.cli.{name}"), name)


def _class_of(verb: str) -> Any:
    """The class of a verb's command, where it reads its arguments in a way of its own."""
    return getattr(import_module(function_of(verb).__module__), "COMMAND", None)


def _listed() -> None:
    """A verb that was not asked for."""
    raise AssertionError("never run")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mlaplan {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
