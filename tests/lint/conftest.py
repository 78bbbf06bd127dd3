"""Runs the linter on a text, without a file."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlaplan.lint.deployment import Asked
from mlaplan.lint.finding import Finding
from mlaplan.lint.run import Checker, Report
from tests.cli.conftest import run

__all__ = ["run"]

Lint = Callable[..., list[Finding]]


def report_of(text: str | bytes, name: str = "serve.sh", **asked: object) -> Report:
    """The report of one text under this name."""
    checker = Checker(Asked(**asked))  # type: ignore[arg-type]
    checker.raw(text.encode() if isinstance(text, str) else text, name)
    return checker.finish([], [])


@pytest.fixture
def lint() -> Lint:
    """`lint("vllm serve ...")` -> findings."""

    def call(text: str | bytes, name: str = "serve.sh", **asked: object) -> list[Finding]:
        return report_of(text, name, **asked).findings

    return call
