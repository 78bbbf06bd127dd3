"""Rules as text for `mlaplan rules`, and as the page docs/rules.md."""

from __future__ import annotations

from collections.abc import Sequence

from mlaplan.lint.rule import LintRule
from mlaplan.report.grid import grid, text
from mlaplan.report.tables import wrapped


def listed(rules: Sequence[LintRule], width: int | None = None) -> str:
    """One line a rule; titles fold where a terminal of `width` columns is narrower."""
    columns = [text("code"), text("severity"), text("slug"), text("what is wrong")]
    rows = [(rule.code, rule.severity, rule.slug, rule.title) for rule in rules]
    return grid(columns, rows, fold=3, width=width)


def sheet(rule: LintRule) -> str:
    """All of one rule."""
    parts = [
        f"{rule.code} {rule.slug} ({rule.severity})",
        wrapped(f"{rule.title}."),
        wrapped(rule.why, label="why       "),
        wrapped(rule.fix, label="fix       "),
        wrapped(rule.versions, label="versions  "),
        wrapped(needs(rule), label="needs     "),
        wrapped(rule.source, label="source    "),
    ]
    for label, example in (("bad", rule.bad), ("good", rule.good)):
        if example:
            parts.append(f"{label}:\n" + "\n".join(f"    {line}" for line in example.rstrip("\n").split("\n")))
    return "\n".join(parts)


def needs(rule: LintRule) -> str:
    """What must be known for the rule to run."""
    return "the " + " and the ".join(rule.needs) if rule.needs else "nothing but the command"
