"""`mlaplan rules`: every rule of the linter, or one of them with its examples."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class RulesFormat(StrEnum):
    """How rules are written."""

    text = "text"
    md = "md"


def rules(
    code: Annotated[str | None, typer.Argument(help="a code or a slug; all rules if none", metavar="CODE")] = None,
    output: Annotated[RulesFormat, typer.Option("--format", help="md: the page of all rules.")] = RulesFormat.text,
) -> int:
    """Show the rules that `check` applies: what, why, bad and good example, versions, source."""
    from mlaplan.cli.output import terminal_width
    from mlaplan.lint.rules import lint_rules, rule_named
    from mlaplan.report.rule_text import listed, sheet

    if code:
        print(sheet(rule_named(code)))
    elif output is RulesFormat.md:
        from mlaplan.report.rules_page import page

        print(page(lint_rules()), end="")
    else:
        print(listed(lint_rules(), terminal_width(None)))
    return 0
