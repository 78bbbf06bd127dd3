"""What every verb shares: exit codes, one line per mistake, closed pipes, interruption."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlaplan import __main__, __version__
from mlaplan.errors import MlaplanError, Problem, SpecError, nearest
from tests.cli.conftest import Run


def test_version(run: Run) -> None:
    assert run("--version").out == f"mlaplan {__version__}\n"


def test_nothing_asked_shows_the_help_and_fails(run: Run) -> None:
    result = run()
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("Usage: mlaplan ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "mlaplan: No such command 'lst'. Did you mean 'list'? See 'mlaplan --help'.\n"),
        (
            ["list"],
            "Missing argument 'chips|models'. Choose from: chips, models. See 'mlaplan list --help'.\n",
        ),
        (["show", "--fromat", "json", "x"], "See 'mlaplan show --help'.\n"),
        (["show", "x", "--format", "yaml"], "See 'mlaplan show --help'.\n"),
    ],
)
def test_bad_usage_is_one_line(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.endswith(message)
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (MlaplanError("one line"), 2, "one line\n"),
        (SpecError([Problem("f", 1, 2, "a"), Problem("f", 3, None, "b")]), 2, "f:1:2: a\nf:3: b\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_mistakes_and_interruption_become_exit_codes(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, shown: str
) -> None:
    def fail(_name: str) -> str:
        raise error

    monkeypatch.setattr("mlaplan.specs.lookup.kind_of", fail)
    result = run("show", "x")
    assert (result.code, result.out, result.err) == (code, "", shown)


def test_a_defect_of_the_program_is_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr("mlaplan.specs.lookup.kind_of", fail)
    with pytest.raises(ZeroDivisionError):
        run("show", "x")


@pytest.mark.parametrize("arguments", [["--help"], ["list", "models"], ["show", "deepseek-v3"]])
def test_a_reader_that_leaves_is_no_error(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "mlaplan", *arguments], stdout=closed, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mlaplan", "show", "deepseek-v3"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr == b"the result cannot be written: No space left on device\n"


def test_with_stderr_closed_nothing_else_goes_to_stdout() -> None:
    line = '"$0" -m mlaplan show no-such-chip 2>&-'
    done = subprocess.run(["sh", "-c", line, sys.executable], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_closed_stdout_is_no_defect() -> None:
    line = '"$0" -m mlaplan list models >&-'
    done = subprocess.run(["sh", "-c", line, sys.executable], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interruption_while_the_command_line_is_loaded_shows_no_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "_run", stop)
    result = run("--version")
    assert (result.code, result.out, result.err) == (130, "", "interrupted\n")


def test_the_entry_point_itself_imports_no_command_line_library() -> None:
    code = "import sys, mlaplan.__main__; sys.exit('typer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_terminal_without_unicode_gets_escapes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlaplan", "show", "µ-chip"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 2
    assert done.stderr.startswith(rb"unknown chip or model '\xb5-chip'")


@pytest.mark.parametrize(
    ("name", "choices", "best"),
    [
        ("bandwith", ["bandwidth", "type"], "bandwidth"),
        ("h100", ["h20", "h100-sxm", "h100-pcie"], "h100-sxm"),
        ("H100_SXM", ["h100-sxm"], "h100-sxm"),
        ("zzz", ["a", "b"], None),
        ("x", [], None),
    ],
)
def test_nearest(name: str, choices: list[str], best: str | None) -> None:
    assert nearest(name, choices) == best


def test_the_entry_point_returns_an_exit_code() -> None:
    assert __main__.main(["--version"]) == 0
