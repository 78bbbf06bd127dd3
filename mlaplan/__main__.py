"""Entry point: runs a verb; the only place where a user's mistake becomes a message and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence

from mlaplan.errors import EXIT_INTERRUPT, EXIT_OK, EXIT_USAGE, MlaplanError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    if sys.stderr is None:  # closed from the start: what is said beside the result would go to stdout
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        if sys.stdout is not None:  # closed from the start where the caller wants no result
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # the reader has seen enough
        _write_no_more()
        return EXIT_OK
    except OSError as error:
        if error.filename is not None:  # files are reported by who opens them
            raise
        _write_no_more()  # stdout: a full disk
        print(f"the result cannot be written: {error.strerror or error}", file=sys.stderr)
        return EXIT_USAGE


def _interrupted() -> int:
    print("interrupted", file=sys.stderr)
    return EXIT_INTERRUPT


def _write_no_more() -> None:
    """Python writes what is left once more at exit: to nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    # start-up builds what lives to the end: the collector would walk it a hundred times and free nothing
    gc.set_threshold(100_000)
    import typer  # here, so that an interruption of its import is one too

    from mlaplan.cli.app import asked_for, command_line

    # pydantic would look through all installed packages for plugins, of which none concerns the specs
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # numpy would start threads for products of matrices, of which prices have none: a tenth of a `recommend`
    if asked_for(arguments) != "verify":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    try:
        result = command_line(arguments)(arguments, standalone_mode=False, prog_name="mlaplan")
    except typer.Exit as done:
        result = done.exit_code
    except MlaplanError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        result = EXIT_INTERRUPT
    except _usage_problems() as problem:
        print(_usage(problem), file=sys.stderr)
        return EXIT_USAGE
    except SystemExit as leaving:
        # typer turns a closed pipe into an exit of its own
        if isinstance(leaving.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        raise
    if result == EXIT_INTERRUPT:  # what typer makes of an interruption
        return _interrupted()
    return result if isinstance(result, int) else EXIT_OK


def _usage_problems() -> type[Exception]:
    """The base of typer's usage errors, which it keeps to itself; where from differs between versions."""
    import typer

    for base in typer.BadParameter.__mro__:
        if issubclass(base, Exception) and base.__name__ == "ClickException":
            return base
    return typer.BadParameter


def _usage(problem: Exception) -> str:
    """One line, except where no verb was given: then the help."""
    message = problem.format_message() if hasattr(problem, "format_message") else str(problem)
    if type(problem).__name__ == "NoArgsIsHelpError":
        return message
    context = getattr(problem, "ctx", None)
    command = context.command_path if context is not None else "mlaplan"
    message = " ".join(message.split()).rstrip(",")
    end = "" if message.endswith((".", "?", "!")) else "."
    return f"{command}: {message}{end} See '{command} --help'."


if __name__ == "__main__":
    sys.exit(main())
