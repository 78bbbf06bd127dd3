"""Findings for scripts: `mlaplan.check/1`."""

from __future__ import annotations

from typing import Any

from mlaplan.errors import Problem
from mlaplan.lint.finding import Finding
from mlaplan.lint.run import SCHEMA, Report

NAMES = ("file", "line", "col", "severity", "code", "message", "expected", "hint")


def data(report: Report) -> dict[str, Any]:
    """The report. `problems` are those of specs and of reading; `findings` those of deployments."""
    return {
        "schema": SCHEMA,
        "files": report.files,
        "deployments": report.deployments,
        "errors": report.count("error"),
        "warnings": report.count("warning"),
        "infos": report.count("info"),
        "problems": [_problem(one) for one in [*report.problems, *report.unreadable]],
        "findings": [_finding(one) for one in report.findings],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in NAMES}


def _finding(one: Finding) -> dict[str, Any]:
    out: dict[str, Any] = {
        "file": one.file, "line": one.line, "col": one.col, "width": one.width, "severity": one.severity,
        "code": one.code, "slug": one.slug, "message": one.message, "help": one.help,
    }  # fmt: skip
    return {**out, **one.numbers}
