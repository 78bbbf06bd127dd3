"""`mlaplan rules`: every rule of the linter, or one of them with its examples."""

from __future__ import annotations

from typing import Annotated

import typer


def rules(
    code: Annotated[str | None, typer.Argument(help="a code or a slug; all rules if none", metavar="CODE")] = None,
) -> int:
    """Show the rules that `check` applies: what, why, bad and good example, versions, source."""
    from mlaplan.lint.rules import lint_rules, rule_named
    from mlaplan.report.rule_text import listed, sheet

    print(sheet(rule_named(code)) if code else listed(lint_rules()))
    return 0
