"""Tables that are wider than a terminal fold there, and are whole lines in a pipe."""

from __future__ import annotations

import io
import os
import sys

import pytest

from tests.cli.conftest import Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, columns: int, *words: str) -> list[str]:
    """What a terminal of so many columns shows."""
    from mlaplan.__main__ import main

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    assert main(list(words)) == 0
    return terminal.getvalue().splitlines()


@pytest.mark.parametrize("words", [("rules",), ("validate", "--set", "kernels"), ("validate", "--set", "steps")])
def test_a_terminal_of_80_columns_is_kept_to(words: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    piped = run(*words).out.splitlines()
    narrow = shown(monkeypatch, 80, *words)
    assert max(map(len, narrow)) <= 80 < max(map(len, piped))
    assert max(map(len, shown(monkeypatch, 200, *words))) == max(map(len, piped))
    # nothing is lost but line ends
    assert sorted(" ".join(narrow).replace("worst:", "").split()) == sorted(" ".join(piped).split())


def test_a_rule_is_one_line_of_a_pipe(run: Run) -> None:
    lines = run("rules").out.splitlines()
    assert sum(line.startswith("MLA") for line in lines) == len(lines) - 1
