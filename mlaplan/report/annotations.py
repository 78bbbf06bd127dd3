"""Findings for continuous integration: GitHub workflow commands, and SARIF 2.1.0."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from mlaplan import __version__
from mlaplan.errors import Problem
from mlaplan.lint.finding import Finding
from mlaplan.lint.rules import lint_rules
from mlaplan.lint.rules.reading import UNREADABLE
from mlaplan.lint.run import Report, severities_in_order

GITHUB = {"error": "error", "warning": "warning", "info": "notice"}
SHOWN = 10  # annotations of one kind that GitHub shows for a step
SARIF = {"error": "error", "warning": "warning", "info": "note"}
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def findings_of(report: Report) -> list[Finding]:
    """All findings, with problems of specs and of reading as findings of one rule."""
    return [_of_problem(problem) for problem in [*report.unreadable, *report.problems]] + report.findings


def _of_problem(p: Problem) -> Finding:
    message = p.message + (f"; expected {p.expected}" if p.expected else "")
    return Finding(UNREADABLE.code, UNREADABLE.slug, p.severity, p.file, p.line, p.col, 1, message, p.hint)


def github(report: Report) -> str:
    """Workflow commands, errors first, since only the first ten of a kind are shown; the summary as a notice."""
    found = list(severities_in_order(findings_of(report)))
    lines = [_command(one) for one in found]
    hidden = sum(max(sum(one.severity == severity for one in found) - SHOWN, 0) for severity in GITHUB)
    note = f" ({hidden} more than the {SHOWN} of a kind that are shown here)" if hidden else ""
    lines.append(f"::notice title=mlaplan::{_data(report.summary() + note)}")
    return "\n".join(lines)


def _command(one: Finding) -> str:
    values = [("file", one.file)]
    if one.line is not None:
        values.append(("line", str(one.line)))
    if one.col is not None:
        values += [("col", str(one.col)), ("endColumn", str(one.col + one.width))]
    values.append(("title", f"{one.code} {one.slug}"))
    shown = ",".join(f"{name}={_property(value)}" for name, value in values)
    message = one.message + (f"\nhelp: {one.help}" if one.help else "")
    return f"::{GITHUB[one.severity]} {shown}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(report: Report) -> dict[str, Any]:
    """A SARIF 2.1.0 log of one run, with the rules that have findings."""
    found = findings_of(report)
    used = {one.code for one in found}
    rules = [rule for rule in lint_rules() if rule.code in used]
    index = {rule.code: i for i, rule in enumerate(rules)}
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {
                    "name": "mlaplan", "semanticVersion": __version__, "version": __version__,
                    "rules": [_rule(rule) for rule in rules],
                }},
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": not report.unreadable}],
                "results": [_result(one, index) for one in found],
            }
        ],
    }  # fmt: skip


def _rule(rule: Any) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.slug.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": SARIF[rule.severity]},
    }


def _result(one: Finding, index: dict[str, int]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(one.file)}}
    if one.line is not None:
        place["region"] = {"startLine": one.line}
        if one.col is not None:
            place["region"] |= {"startColumn": one.col, "endColumn": one.col + one.width}
    text = one.message + (f". Help: {one.help}" if one.help else "")
    result: dict[str, Any] = {
        "ruleId": one.code, "level": SARIF[one.severity], "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }  # fmt: skip
    if one.code in index:
        result["ruleIndex"] = index[one.code]
    if one.numbers:
        result["properties"] = dict(one.numbers)
    return result


def _uri(file: str) -> str:
    from urllib.parse import quote

    return quote(PurePath(file).as_posix())
