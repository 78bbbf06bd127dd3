"""`mlaplan report`: what it takes, where it writes, and what it says about mistakes."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from mlaplan.cli.answers import APART, QUESTION, command_line
from mlaplan.cli.recommend import recommend
from mlaplan.cli.report import report
from tests.cli.conftest import Run

ASKED = ("report", "deepseek-v2-lite", "h200-sxm", "--devices", "1", "--isl", "64", "--osl", "16", "--top", "1")


def test_it_asks_with_the_options_of_recommend() -> None:
    theirs, mine = (inspect.signature(verb).parameters for verb in (recommend, report))
    assert set(mine) == {*QUESTION, *APART, "output", "file"}
    assert all(mine[name].default == theirs[name].default for name in QUESTION)


@pytest.mark.parametrize(("name", "start"), [("a.html", "<!DOCTYPE html>"), ("a.md", "# DeepSeek"), ("a.json", "{")])
def test_the_name_of_the_file_says_what_is_written(name: str, start: str, run: Run, tmp_path: Path) -> None:
    result = run(*ASKED, "-o", name)
    assert result.code == 0 and result.out == "" and result.err == f"written to {name}\n"
    assert (tmp_path / name).read_text("utf-8").startswith(start)
    assert run(*ASKED, "--format", Path(name).suffix[1:]).out == (tmp_path / name).read_text("utf-8")


def test_a_page_holds_the_command_that_asks_again(run: Run) -> None:
    first = run(*ASKED, "--set", "memory.bandwidth=x0.9", "--no-two-batch-overlap", "--format", "md").out
    command = next(line for line in first.splitlines() if line.startswith("mlaplan report"))
    assert "--set memory.bandwidth=x0.9" in command and "--no-two-batch-overlap" in command
    assert run(*command.split()[1:], "--format", "md").out == first


def test_flags_are_written_as_they_are_typed() -> None:
    asked = {
        "model": "a b",
        "chip": "c",
        "devices": 4,
        "rate": "0.5",
        "kv_dtype": None,
        "settings": ["x=1", "y='2 GB'"],
    }
    assert command_line("report", report, asked) == (
        """mlaplan report 'a b' c --devices 4 --rate 0.5 --set x=1 --set 'y='"'"'2 GB'"'"''"""
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("-o", "page.pdf"), "page.pdf: its name does not say what to write; expected a name that ends in .html, .htm, "
         ".md, .markdown, .json, or --format"),
        (("-o", "page.md", "--format", "html"), "--format html and page.md contradict each other: one says md"),
        (("-o", "no/page.html"), "no/page.html: cannot be written: there is no folder no"),
        (("-o", "."), ".: is a folder; expected a file to write to"),
        (("--tp", "3"), "--tp 3 does not divide --devices 1"),
        (("--emit", "vlm"), "did you mean 'vllm'?"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_line(more: tuple[str, ...], told: str, run: Run) -> None:
    result = run(*ASKED, *more)
    assert result.code == 2 and result.out == ""
    assert told in result.err and len(result.err.splitlines()) == 1 and "Traceback" not in result.err


def test_an_engine_that_was_named_launches_the_plan(run: Run) -> None:
    assert "vllm serve" in run(*ASKED, "--engine", "vllm", "--format", "md").out
    generic = run(*ASKED, "--format", "md").out
    assert "vllm serve" not in generic and "`--emit vllm`" in generic


def test_one_output_token_has_a_page_too(run: Run) -> None:
    result = run("report", "deepseek-v2-lite", "h200-sxm", "--devices", "1", "--isl", "64", "--osl", "1", "--top", "1",
                 "--concurrency", "2")  # fmt: skip
    assert result.code == 0 and "Requests end with their first token" in result.out


def test_a_limit_that_nothing_keeps_shows_what_is_possible(run: Run) -> None:
    result = run(*ASKED, "--concurrency", "4", "--tpot", "1us", "--format", "md")
    assert result.code == 1
    assert "**Nothing feasible" in result.out and "would admit it" in result.out
    assert "## Throughput against speed" in result.out


def test_numbers_alone_are_json(run: Run) -> None:
    found = json.loads(run(*ASKED, "--format", "json").out)
    assert found["schema"] == "mlaplan.report/1"
    assert set(found["sensitivity"]["tok_s_chip"]) >= {"memory bandwidth", "memory capacity"}
