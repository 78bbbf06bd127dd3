"""Benchmarks are run by hand: `pip install -e '.[test,bench]'`, then `pytest benchmarks`.

Each asserts its bar, and what it found is printed at the end in a sentence: medians and ratios. Pricing is
measured in CPU seconds of one thread, commands in wall seconds of a fresh process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests"))  # the scalar reference

FINDINGS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FINDINGS] = []


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keeps a sentence for the end of the run."""
    return request.config.stash[FINDINGS].append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[FINDINGS]:
        terminalreporter.section("findings")
        for sentence in config.stash[FINDINGS]:
            terminalreporter.write_line(sentence)
