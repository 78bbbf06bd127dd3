"""`mlaplan calibrate`: constants of a chip's kernels from measured times."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mlaplan.calibration.run import Calibrated
    from mlaplan.calibration.tables import Source
    from mlaplan.specs.chip import Chip

TABLES = "aiconfigurator"
MEASURED = "NVIDIA "  # how names of a chip start that the driver gives it, with which rows are stamped


def calibrate(
    chip: Annotated[str | None, typer.Argument(help="chip: a name or a YAML file", metavar="CHIP")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help=f"'{TABLES}' for its measured tables, or a CSV file of your timings")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="whose kernels: sglang, trtllm or vllm; of your own: any name")
    ] = None,
    release: Annotated[
        str | None,
        typer.Option("--release", help="an older release of the engine, such as 1.0.0rc3", metavar="VERSION"),
    ] = None,
    older: Annotated[
        str | None,
        typer.Option(
            "--tables", help="its tables: an older wheel of aiconfigurator, or a folder of one", metavar="PATH"
        ),
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="write the overlay to this file")] = None,
    template: Annotated[bool, typer.Option("--template", help="print a CSV file to fill in")] = False,
) -> None:
    """Fit kernel and collective constants to measured times.

    The result lies beside the chip's file as CHIP.ENGINE.cal.yaml, where plans for that engine find it, or, of an
    older release, as CHIP.ENGINE@1.0.cal.yaml under its minor line. The datasheet figures stay as they are.
    """
    from mlaplan.calibration import timings
    from mlaplan.cli import output as out
    from mlaplan.errors import MlaplanError

    if template:
        out.write(timings.template(), output)
        return
    if chip is None or source is None:
        raise MlaplanError("calibrate: nothing to fit; expected CHIP and --from aiconfigurator or --from kernels.csv")
    _refuse_half_a_release(source, release, older)
    out.check(output)
    _needs_scipy()
    from mlaplan.calibration import overlay, run, tables
    from mlaplan.engines.load import load_profile
    from mlaplan.specs.lookup import ANY_ENGINE, load_chip

    spec = load_chip(chip)
    if source == TABLES:
        if engine is None:
            raise MlaplanError(f"--from {TABLES} needs --engine; expected one of {', '.join(tables.VERSIONS)}")
        if engine not in tables.VERSIONS:
            raise MlaplanError(f"no measured tables of engine '{engine}'; expected one of {', '.join(tables.VERSIONS)}")
        by = _source(spec, engine, release, older)
        found = run.from_tables(spec, engine, load_profile(engine).cache_modes(spec.efficiency_class, "mla"), by)
        found.skipped.extend(by.told.values())
        versions = {engine: by.version(spec.name, engine), "nccl": tables.version(spec.name, "nccl")}
    else:
        found = timings.calibrate(spec, timings.read(source), engine or ANY_ENGINE)
        versions = {}
    if not (found.kernels or found.scale_up or found.scale_out):
        raise MlaplanError("; ".join(["nothing to write", *found.skipped]))
    result = overlay.text(found, versions).rstrip("\n")
    told = _table(found)
    if output is None or output == "-":
        print(told, file=sys.stderr)
        out.write(result, None)
    else:
        out.write(result, output)
        print(told)


def _refuse_half_a_release(source: str, release: str | None, older: str | None) -> None:
    from mlaplan.errors import MlaplanError

    if release is None and older is None:
        return
    if source != TABLES:
        flag = "--tables" if older is not None else "--release"
        raise MlaplanError(f"{flag} goes with --from {TABLES}: a CSV file of timings is of the release that you timed")
    if older is None:
        raise MlaplanError(f"--release {release} needs --tables; expected an older wheel of {TABLES} that holds it")
    if release is None:
        raise MlaplanError(f"--tables {older} needs --release; expected one of those in it, such as 1.0.0rc3")


def _source(spec: Chip, engine: str, release: str | None, path: str | None) -> Source:
    """The installed tables, or those of an older release, of which only rows that were taken on this chip count."""
    from mlaplan.calibration import older, tables

    if release is None or path is None:
        return tables.INSTALLED
    return older.opened(path, spec.name, engine, release, tuple(n for n in spec.names if n.startswith(MEASURED)))


def _needs_scipy() -> None:
    from importlib.util import find_spec

    from mlaplan.errors import MlaplanError

    if find_spec("scipy") is None:
        raise MlaplanError("calibrate needs scipy; expected: pip install 'mlaplan[silicon]'")


def _table(found: Calibrated) -> str:
    """Operator, dtype, rows used and dropped, held-out error, constants held, worst regime."""
    lines = [("op", "dtype", "rows", "dropped", "held-out MAPE", "worst regime", "held")]
    for k in found.kernels:
        lines.append(
            (k.op, k.dtype, str(k.rows), str(k.dropped), f"{100 * k.errors.mape:.1f} %", k.worst_where or "-",
             ", ".join(k.held) or "-")
        )  # fmt: skip
    for where, side in (("", found.scale_up), (" between nodes", found.scale_out)):
        for c in side:
            ranks = "ranks " + ", ".join(map(str, c.ranks))
            lines.append((c.op + where, "-", str(c.rows), str(c.dropped), f"{100 * c.errors.mape:.1f} %", ranks, "-"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    text = ["  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1]]).rstrip() for line in lines]
    return "\n".join([*text, *(f"not used: {why}" for why in found.skipped)])
