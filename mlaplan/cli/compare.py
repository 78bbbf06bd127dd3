"""`mlaplan compare`: saved plans side by side, or the best plan of each of several chips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlaplan.cli.answers import with_question
from mlaplan.cli.formats import Format
from mlaplan.cli.options import MOST, Output
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlaplan.report.comparison import Side

USAGE = "two or more files of `recommend --save-plan`, or a model with --chips A,B and --devices N"


@with_question("chip", "model", "top", "emit")
def compare(
    what: Annotated[
        list[str],
        typer.Argument(help="saved plans, two or more; or, with --chips, one model", metavar="PLAN.json... | MODEL"),
    ],
    chips: Annotated[
        str | None, typer.Option("--chips", metavar="A,B,...", help="Chips to plan for, the first to compare with.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="N[,N...]", help="Chips of each kind, or one number for each.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: Output = None,
    **question: Any,
) -> int:
    """Compare saved plans, or the best plan for one workload on several chips.

    Ratios, bands and what drives the difference. The question about chips takes the options of `recommend`. Exit
    code: 0, or 1 if on any side nothing is feasible.
    """
    from mlaplan.cli.output import check, write
    from mlaplan.report import compare_data, compare_text, tables

    check(file)
    sides = _of_files(what, devices, question) if chips is None else _of_chips(what, chips, devices, question)
    if output is Format.json:
        text = tables.as_json(compare_data.document(sides))
    elif output is Format.csv:
        text = tables.as_csv(compare_text.rows(sides))
    else:
        text = (compare_text.markdown if output is Format.md else compare_text.report)(sides)
    write(text, file)
    return EXIT_OK if all(side.e is not None and side.problem is None for side in sides) else EXIT_FINDINGS


def _of_files(files: list[str], devices: str | None, question: dict[str, Any]) -> list[Side]:
    """Saved plans, priced again by this version."""
    from pathlib import Path

    from mlaplan.explain import explain
    from mlaplan.plan import price_per_hour
    from mlaplan.report.comparison import Side
    from mlaplan.validation.saved import read_plan

    if given := [*(["--devices"] if devices is not None else []), *_given(compare, question)]:
        raise MlaplanError(f"{', '.join(given)} asks a question, and a saved plan holds its own; with --chips {USAGE}")
    if len(files) < 2:
        raise MlaplanError(f"{files[0]} alone has nothing to compare with; expected {USAGE}")
    out = []
    for name, one in zip(_names([Path(f).stem for f in files], files), files, strict=True):
        saved = read_plan(one)
        price = price_per_hour(saved.q, saved.given)
        e = explain(saved.q, saved.strategy, tokens_given=saved.given.tokens_per_step, price=price)
        problem = "; ".join(f"{code} {slug}: {why}" for code, slug, why in e.reasons) or None
        out.append(
            Side(
                name, saved.strategy.devices, saved.q, saved.given, e, price,
                f"cannot be used as it is: {problem}" if problem else None, saved.tok_s_chip,
            )
        )  # fmt: skip
    return out


def _of_chips(what: list[str], chips: str, devices: str | None, question: dict[str, Any]) -> list[Side]:
    """The best plan of each chip."""
    from mlaplan.cli import questions
    from mlaplan.cli.answers import answered
    from mlaplan.plan import price_per_hour
    from mlaplan.report.comparison import Side

    if len(what) != 1:
        raise MlaplanError(f"--chips goes with one model, not with {' and '.join(what)}; expected {USAGE}")
    names = [name.strip() for name in chips.split(",")]
    if len(names) < 2 or not all(names):
        raise MlaplanError(f"--chips {chips}: expected two or more chips, parted by commas")
    counts = _counts(devices, names)
    labels = _names(names, [f"{n} x {name}" for n, name in zip(counts, names, strict=True)])
    out, said = [], dict[str, None]()
    for label, name, count in zip(labels, names, counts, strict=True):
        found = answered({**question, "model": what[0], "chip": name, "devices": count, "emit": None, "top": 1})
        a = found.answer
        said |= dict.fromkeys(found.said)
        best, miss = a.found.plans[0] if a.found.plans else None, a.found.nearest_miss
        problem = None
        if best is None:
            near = f"; nearest {miss.strategy.label()}: {miss.code} {miss.slug}: {miss.detail}" if miss else ""
            problem = f"nothing feasible on {count:,} chips{near}"
        out.append(Side(label, count, a.q, found.given, best, price_per_hour(a.q, found.given), problem))
    questions.tell(said)
    return out


def _counts(devices: str | None, names: list[str]) -> list[int]:
    """One number of chips for each kind."""
    if devices is None:
        raise MlaplanError("--devices is missing: how many chips of each kind to plan for")
    parts = [part.strip() for part in devices.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= MOST for part in parts):
        raise MlaplanError(f"--devices {devices}: expected a number from 1 to {MOST:,}, or one for each of --chips")
    counts = [int(part) for part in parts]
    if len(counts) not in (1, len(names)):
        raise MlaplanError(f"--devices {devices}: {len(counts)} numbers for {len(names)} chips")
    return counts * len(names) if len(counts) == 1 else counts


def _names(short: list[str], long: list[str]) -> list[str]:
    """Short names where they tell the sides apart, else the long ones, numbered if even these do not."""
    if len(set(short)) == len(short):
        return short
    if len(set(long)) == len(long):
        return long
    return [f"{name} ({number})" for number, name in enumerate(long, 1)]


def _given(verb: Callable[..., int], question: dict[str, Any]) -> list[str]:
    """Flags of the question that are not at their defaults."""
    from mlaplan.cli.answers import command_line

    return [word for word in command_line("", verb, question).split()[2:] if word.startswith("--")]
