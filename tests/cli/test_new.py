"""`mlaplan new`: a template that passes `check`, and is never written over a file by accident."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlaplan.specs.lookup import load_chip, load_model
from tests.cli.conftest import Run


@pytest.mark.parametrize("kind", ["chip", "model"])
def test_a_new_file_passes_check(run: Run, kind: str) -> None:
    result = run("new", kind, "mine")
    assert (result.code, result.out) == (0, "mine.yaml\n")
    assert result.err == "fill it in, then: mlaplan check mine.yaml\n"
    checked = run("check", "mine.yaml")
    assert (checked.code, checked.out) == (0, "")
    assert "NAME" not in Path("mine.yaml").read_text()
    load = load_chip if kind == "chip" else load_model
    assert load("mine.yaml").name == "mine"
    assert run("show", "mine.yaml").code == 0


@pytest.mark.parametrize("kind", ["chip", "model"])
def test_what_the_template_has_in_comments_is_valid_too(run: Run, kind: str) -> None:
    run("new", kind, "mine")
    text = Path("mine.yaml").read_text()
    full = re.sub(r"(?m)^(\s*)# (\s*(?:- )?\w+:.*)$", r"\1\2", text)
    full = full.replace("  gqa: {", "  # gqa: {")  # stands there to replace mla, not beside it
    assert len(re.findall("(?m)^ *#", full)) < len(re.findall("(?m)^ *#", text)) - 5
    Path("full.yaml").write_text(full)
    checked = run("check", "full.yaml")
    assert (checked.code, checked.out) == (0, "")


def test_an_existing_file_is_kept(run: Run) -> None:
    Path("mine.yaml").write_text("precious")
    result = run("new", "chip", "mine")
    assert result.code == 2
    assert result.err == "mine.yaml: already exists; use --force to overwrite it\n"
    assert Path("mine.yaml").read_text() == "precious"
    assert run("new", "chip", "mine", "--force").code == 0
    assert Path("mine.yaml").read_text() != "precious"


@pytest.mark.parametrize("name", ["My Chip", "../up", "a/b", "", "-x"])
def test_a_name_must_be_plain(run: Run, name: str) -> None:
    result = run("new", "chip", "--", name)
    assert result.code == 2
    assert "is not a plain name; expected lower-case letters" in result.err
    assert list(Path().iterdir()) == []


def test_the_suffix_may_be_given(run: Run) -> None:
    assert run("new", "chip", "mine.yaml").out == "mine.yaml\n"
