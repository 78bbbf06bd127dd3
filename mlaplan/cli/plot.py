"""`mlaplan plot`: a picture of the rows of a sweep, or of the answer to one question."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli import options as o
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS = (".svg", ".png", ".pdf")


class Width(StrEnum):
    """How wide the picture is on paper."""

    column = "column"
    full = "full"


class Objective(StrEnum):
    """What makes a plan the best."""

    throughput = "throughput"
    latency = "latency"
    cost = "cost"


def plot(
    subjects: Annotated[
        list[str] | None, typer.Argument(metavar="FILE | MODEL CHIP", help="rows of a sweep, or one question")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="pareto, heatmap, roofline, breakdown, scaling, memory, timeline or sensitivity; all if none.",
        ),
    ] = None,
    x: Annotated[str | None, typer.Option("--x", metavar="COLUMN", help="Rows: what goes to the right.")] = None,
    y: Annotated[
        str | None, typer.Option("--y", metavar="COLUMN", help="Rows: what goes up, or what a heat map shades.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMNS", help="Rows: what tells lines or panels apart: chip,isl.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Rows: only those with this value.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="N", help="Question: chips; several for scaling: 8,16,32.")
    ] = None,
    isl: o.Isl = None,
    osl: o.Osl = None,
    concurrency: o.Concurrency = None,
    rate: o.Rate = None,
    prefix: o.Prefix = None,
    ttft: o.Ttft = None,
    tpot: o.Tpot = None,
    objective: Annotated[
        Objective | None, typer.Option("--objective", help="What makes a plan the best; throughput if none.")
    ] = None,
    factor: Annotated[
        float | None,
        typer.Option("--factor", metavar="X", help="Sensitivity: figures of the chip x X and / X; 1.25 if none."),
    ] = None,
    engine: o.Engine = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    dcp: o.Dcp = None,
    dcp_merge: o.DcpMerge = None,
    dcp_interleave: o.DcpInterleave = None,
    cp: o.Cp = None,
    replicas: o.Replicas = None,
    kv_layout: o.KvLayout = None,
    kv_dtype: o.KvType = None,
    weight_dtype: o.WeightType = None,
    block_size: o.BlockSize = None,
    mtp: o.Mtp = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, max=o.MOST, metavar="N", help="Sequences in flight per attention-DP rank."),
    ] = None,
    prefill_chunk: o.PrefillChunk = None,
    two_batch_overlap: o.TwoBatch = None,
    memory_fraction: o.MemoryFraction = None,
    reserve: o.Reserve = None,
    price: o.Price = None,
    imbalance: o.Imbalance = None,
    mtp_accept: o.MtpAccept = None,
    redundant_experts: o.RedundantExperts = 0,
    shared_ranks: o.SharedRanks = 0,
    gather_only: o.GatherOnly = False,
    settings: o.Settings = None,
    width: Annotated[
        Width, typer.Option("--width", help="One column of a page (3.3 in), or both (7 in).")
    ] = Width.full,
    file: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="A .svg, .png or .pdf; without --kind a folder."),
    ] = None,
) -> int:
    """Draw the rows of a sweep, or the plan of one question.

    Rows: every kind but roofline and timeline, which need operators. A question: every kind but heatmap; its options
    are those of `recommend`, and the best plan is drawn. Exit code: 1 if nothing is feasible.
    """
    given = dict(locals())
    from mlaplan.cli import plotting

    names = list(subjects or ())
    of_rows = plotting.is_rows(names)
    plotting.check_options(given, of_rows)
    wanted = plotting.known_kind(kind)
    target = _target(file, wanted, names, of_rows)
    inches = plotting.WIDTHS[width.value]
    if of_rows:
        if wanted is None:
            return plotting.all_of_rows(names[0], where or (), target, inches)
        columns = [part.strip() for part in by.split(",")] if by else None
        return _write(plotting.of_rows(names[0], wanted, where or (), (x, y, columns), inches), target)
    if wanted is None:
        raise MlaplanError("give a --kind; all kinds at once are drawn of the rows of a sweep")
    made = plotting.of_question(names, wanted, given, inches)
    return EXIT_FINDINGS if made is None else _write(made, target)


def _target(file: str | None, kind: str | None, names: list[str], of_rows: bool) -> str:
    """Where to write: what is asked for, else a file named by subject and kind, or a folder."""
    from mlaplan.cli.output import check

    if kind is None:
        return file or (f"{Path(names[0]).stem}-plots" if of_rows else "")
    stem = Path(names[0]).stem if of_rows else "-".join(Path(name).stem for name in names)
    target = file or f"{stem}-{kind}.svg"
    if Path(target).suffix.lower() not in FORMS:
        raise MlaplanError(f"-o {target}: expected a name that ends in {', '.join(FORMS)}")
    check(target)
    return target


def _write(figure: Figure, target: str) -> int:
    from mlaplan.cli.questions import tell
    from mlaplan.report.picture import save

    save(figure, target)
    tell([f"written to {target}"])
    return EXIT_OK
