"""The list of verbs: what it says of a verb is what the verb says of itself."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from mlaplan import cli
from mlaplan.cli.app import VERBS, command_line, function_of


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_has_the_first_sentence_of_a_verbs_help(verb: str) -> None:
    text = inspect.getdoc(function_of(verb)) or ""
    assert VERBS[verb] == text.split("\n\n")[0]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("before", [[], ["--"], ["-h"]], ids=str)
def test_the_verb_asked_for_is_the_one_set_up(verb: str, before: list[str]) -> None:
    commands = command_line([*before, verb, "--other"]).registered_commands
    assert [c.name for c in commands] == list(VERBS)
    assert [c.name for c in commands if c.callback is function_of(verb)] == [verb]


def test_no_verb_is_missing() -> None:
    """Every file with a function of its own name is a verb."""
    files = [p.stem for p in Path(cli.__path__[0]).glob("*.py")]
    named = [n for n in files if f"\ndef {n}(" in (Path(cli.__path__[0]) / f"{n}.py").read_text("utf-8")]
    assert sorted(named) == sorted("list_" if verb == "list" else verb for verb in VERBS)
