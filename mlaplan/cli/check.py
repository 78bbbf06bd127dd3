"""`mlaplan check`: mistakes in deployments (launch scripts, manifests, configs), chips, models and plans.

Annotations are not deferred here: typer would compile each of them from its text, and twice.
"""

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

AFTER = "mlaplan.after_dashes"  # where the words after -- are kept


class FindingFormat(StrEnum):
    """How findings are written."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"


class DashedCommand(TyperCommand):
    """A command that keeps the words after `--` apart: they are a launch command, not files."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[AFTER] = args[at + 1 :]
            args = args[:at]
        found: list[str] = super().parse_args(ctx, args)
        return found


COMMAND = DashedCommand


def check(
    ctx: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="scripts, manifests, configs, chips, models, plans, folders of them, or - for stdin"),
    ] = None,
    chip: Annotated[str | None, typer.Option("--chip", help="Chip where a file does not say it.")] = None,
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, max=1_000_000, help="Devices where a file does not say it.")
    ] = None,
    node: Annotated[
        int | None, typer.Option("--node", min=1, max=1_000_000, help="Devices of a node where a file does not say it.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Model where its name says nothing.")] = None,
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", metavar="[ENGINE@]VERSION", help="Version where no image or comment says it."),
    ] = None,
    output: Annotated[FindingFormat, typer.Option("--format", help="How to write the findings.")] = FindingFormat.text,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="CODES", help="Only these rules: MLA503, slugs, MLA4.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="CODES", help="All but these rules.")] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Pass over files with nothing to check, as a commit hook needs it.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 whatever is found.")] = False,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="FILE", help="Leave out the findings that this file holds.")
    ] = None,
    write_baseline: Annotated[
        str | None, typer.Option("--write-baseline", metavar="FILE", help="Write all findings there, as accepted.")
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Show the safe edits as a diff.")] = False,
    write: Annotated[bool, typer.Option("--write", help="With --fix: make them.")] = False,
    file: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the findings there.")
    ] = None,
) -> int:
    """Find mistakes in deployments, chips, models and plans; `-- COMMAND` checks a launch command.

    Exit code: 0 if there is none, 1 with findings, 2 if a file cannot be read.
    """
    from mlaplan.cli import output as writing
    from mlaplan.errors import EXIT_OK, EXIT_USAGE, MlaplanError
    from mlaplan.lint.run import Checker, first_ones

    writing.check(file)
    writing.check(write_baseline)
    if write and not fix:
        raise MlaplanError("--write goes with --fix")
    after: list[str] | None = ctx.meta.get(AFTER)
    if not files and after is None:
        raise MlaplanError("nothing to check: expected files, folders, - for stdin, or -- and a launch command")
    checker = Checker(_asked(chip, devices, node, model, engine_version), lenient=changed)
    checker.paths(files or [])
    if after is not None:
        checker.command(after)
    report = checker.finish(_codes(select), _codes(ignore))
    report.strict = strict
    if write_baseline is not None:
        _accept(report, write_baseline)
    elif baseline is not None:
        from mlaplan.lint.baseline import without

        before = len(report.findings)
        report.findings = without(report.findings, report.sources, baseline)
        report.baselined = before - len(report.findings)
    if not fix:
        report.findings = first_ones(report.findings)
    written = _fixed(report, write=write) if fix else _written(report, output)
    if written or file is not None:
        writing.write(written, file)
    for problem in report.unreadable:
        print(problem.text(), file=sys.stderr)
    print(report.summary(), file=sys.stderr)
    return EXIT_OK if exit_zero and report.exit_code != EXIT_USAGE else report.exit_code


def _asked(
    chip: str | None, devices: int | None, node: int | None, model: str | None, engine_version: str | None
) -> Any:
    """What the options say, refused here if no chip, model or version is meant by it."""
    from mlaplan.engines import MODULES, spelled
    from mlaplan.errors import MlaplanError, UnknownName
    from mlaplan.lint import names
    from mlaplan.lint.deployment import Asked, known_version

    if chip is not None:
        names.chip(chip, "vllm")
    if model is not None:
        names.model(model)
    engine, _, version = (engine_version or "").rpartition("@")
    if engine_version is not None and not known_version(version):
        raise MlaplanError(f"--engine-version {engine_version}: no version; expected 0.33.0 or vllm@0.33.0")
    engine = engine.replace("-", "_")
    if engine and engine not in MODULES:
        raise UnknownName("engine of --engine-version", spelled(engine), map(spelled, MODULES))
    return Asked(chip, devices, model, engine or None, version or None, node)


def _accept(report: Any, file: str) -> None:
    """All findings into a baseline file."""
    from mlaplan.cli.output import write
    from mlaplan.lint.baseline import document
    from mlaplan.report.tables import as_json

    write(as_json(document(report.findings, report.sources)), file)
    report.baselined, report.findings = len(report.findings), []


def _fixed(report: Any, *, write: bool) -> str:
    """The safe edits as a diff; or made in the files, which takes their findings out of the report."""
    from mlaplan.cli.output import write_file
    from mlaplan.lint.fix import as_it_was_written, fixes

    shown = []
    for fixed in fixes(report.findings, report.sources):
        text = as_it_was_written(fixed) if write and not fixed.file.startswith("<") else None
        if text is None:
            shown.append(fixed.diff().rstrip("\n"))
            continue
        write_file(fixed.file, text)
        report.findings = [one for one in report.findings if one.file != fixed.file or one.edit is None]
        print(f"{fixed.file}: {fixed.edits} edited", file=sys.stderr)
    return "\n".join(shown)


def _codes(given: list[str] | None) -> list[str]:
    return [part for text in given or [] for part in text.split(",") if part.strip()]


def _written(report: Any, output: FindingFormat) -> str:
    if output is FindingFormat.text:
        from mlaplan.report.check_text import text

        return text(report)
    if output is FindingFormat.github:
        from mlaplan.report.annotations import github

        return github(report)
    from mlaplan.report.tables import as_json

    if output is FindingFormat.json:
        from mlaplan.report.check_data import data

        return as_json(data(report))
    from mlaplan.report.annotations import sarif

    return as_json(sarif(report))
