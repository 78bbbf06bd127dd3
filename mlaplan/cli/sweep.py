"""`mlaplan sweep`: the best plan, the front or all plans at every point of a grid of questions."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlaplan.sweep.run import Outcome, Tell
    from mlaplan.sweep.study import Study


class Objective(StrEnum):
    """What makes a plan the best of its point."""

    throughput = "throughput"
    latency = "latency"
    cost = "cost"


class RowsFormat(StrEnum):
    """How rows are written."""

    csv = "csv"
    jsonl = "jsonl"
    parquet = "parquet"


def _axis(flag: str, text: str, metavar: str = "VALUES") -> Any:
    return typer.Option(flag, metavar=metavar, help=text)


Values = str | None


def sweep(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="models by name or file, with commas between them")
    ] = None,
    chips: Annotated[list[str] | None, typer.Argument(metavar="[CHIP...]", help="chips by name or file")] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="A study: the same keys in YAML; options come first.")
    ] = None,
    devices: Annotated[Values, _axis("--devices", "Chips to plan for: 8,16,32 or 8:64:x2.")] = None,
    isl: Annotated[Values, _axis("--isl", "Prompt tokens: 1k:128k:log8.")] = None,
    osl: Annotated[Values, _axis("--osl", "Output tokens: 256,1024.")] = None,
    concurrency: Annotated[Values, _axis("--concurrency", "Requests in flight: 1:4096:x2.")] = None,
    rate: Annotated[Values, _axis("--rate", "Requests that arrive per second.")] = None,
    prefix: Annotated[Values, _axis("--prefix", "Prompt tokens found in the cache, or their share: 0,0.5.")] = None,
    ttft: Annotated[Values, _axis("--ttft", "Longest time to the first token: 5s.")] = None,
    tpot: Annotated[Values, _axis("--tpot", "Longest time per output token: 20ms:100ms:20ms.")] = None,
    engine: Annotated[Values, _axis("--engine", "Engines: vllm,sglang@0.5.23.", "ENGINES")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUES",
            help="A figure of the chip or the model: scale_out.bandwidth=x0.5,x1,x2, model.kv_lora_rank=256,512.",
        ),
    ] = None,
    tp: Annotated[Values, _axis("--tp", "Ranks that share the attention heads.")] = None,
    pp: Annotated[Values, _axis("--pp", "Pipeline stages.")] = None,
    dp: Annotated[Values, _axis("--dp", "Attention data-parallel ranks of a stage.")] = None,
    ep: Annotated[Values, _axis("--ep", "Ranks that share the experts.")] = None,
    dcp: Annotated[Values, _axis("--dcp", "Decode context parallelism.")] = None,
    cp: Annotated[Values, _axis("--cp", "Prefill context parallelism.")] = None,
    replicas: Annotated[Values, _axis("--replicas", "Copies of the whole model.")] = None,
    kv_layout: Annotated[Values, _axis("--kv-layout", "How a TP group holds the cache.")] = None,
    kv_dtype: Annotated[Values, _axis("--kv-dtype", "Dtypes of the KV cache: bf16,fp8.")] = None,
    weight_dtype: Annotated[Values, _axis("--weight-dtype", "Dtypes of the quantised weights.")] = None,
    block_size: Annotated[Values, _axis("--block-size", "Tokens in a block of the KV cache.")] = None,
    mtp: Annotated[Values, _axis("--mtp", "Tokens drafted a step: 0,1,2,3.")] = None,
    batch: Annotated[Values, _axis("--batch", "Sequences in flight per attention-DP rank.")] = None,
    prefill_chunk: Annotated[Values, _axis("--prefill-chunk", "Most prompt tokens in one step of a rank.")] = None,
    two_batch_overlap: Annotated[Values, _axis("--two-batch-overlap", "Half a batch at a time: on,off.")] = None,
    memory_fraction: Annotated[Values, _axis("--memory-fraction", "Share of the memory in use.", "SHARE")] = None,
    reserve: Annotated[Values, _axis("--reserve", "Graphs, context and buffers of a chip.", "SIZE")] = None,
    price: Annotated[Values, _axis("--price", "Price of a chip per hour.", "USD/H")] = None,
    imbalance: Annotated[Values, _axis("--imbalance", "Tokens of the busiest expert rank over the mean.", "X")] = None,
    mtp_accept: Annotated[Values, _axis("--mtp-accept", "Tokens a step yields with MTP.", "TOKENS")] = None,
    redundant_experts: Annotated[Values, _axis("--redundant-experts", "Copies of hot experts, in all.", "N")] = None,
    objective: Annotated[
        Objective | None, typer.Option("--objective", help="What makes a plan the best; throughput if none.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every feasible plan of each point.")] = False,
    pareto: Annotated[bool, typer.Option("--pareto", help="The Pareto front of each point.")] = False,
    output: Annotated[
        RowsFormat | None, typer.Option("--format", help="How to write rows; else by the suffix of -o, or csv.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the rows there, a summary to stdout.")
    ] = None,
    plot: Annotated[str | None, typer.Option("--plot", metavar="DIR", help="Draw what the rows show there.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the parts of a run that was stopped.")] = False,
    workers: Annotated[int, typer.Option("--workers", min=1, max=1024, metavar="N", help="Processes.")] = 1,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="A Dask scheduler whose workers compute the parts.")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option("--chunk", min=1, max=1_000_000, metavar="N", help="Points of a part.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
) -> int:
    """Price a whole grid of questions: the best plan of each point, its Pareto front or every plan.

    Options with VALUES take several: lists 8,16, steps 0:512:128, factors 1:4096:x2, logarithms
    1k:128k:log8. Exit code: 0 with a plan at any point, 1 if nothing is feasible.
    """
    given = {name: value for name, value in locals().items() if name in ASKED}
    from mlaplan.sweep import run

    form = run.form_of(file, None if output is None else output.value)
    _check(file, plot, resume, every and pareto)
    study = _study(config, given, settings, "all" if every else "pareto" if pareto else None)
    with _progress(study.size, quiet) as tell:
        means = run.Means(workers, dask, chunk, resume, tell)
        if file is None:
            outcome = run.to_stream(study, sys.stdout.buffer, form, means)
        else:
            from pathlib import Path

            outcome = run.to_file(study, Path(file), form, means)
    return _told(study, outcome, file, plot)


ASKED = (
    "model", "chips", "devices", "isl", "osl", "concurrency", "rate", "prefix", "ttft", "tpot", "engine", "tp", "pp",
    "dp", "ep", "dcp", "cp", "replicas", "kv_layout", "kv_dtype", "weight_dtype", "block_size", "mtp", "batch",
    "prefill_chunk", "two_batch_overlap", "memory_fraction", "reserve", "price", "imbalance", "mtp_accept",
    "redundant_experts", "objective",
)  # fmt: skip


def _check(file: str | None, plot: str | None, resume: bool, both: bool) -> None:
    """Refuses what cannot be done, before the work for it is done."""
    from mlaplan.cli.output import check

    check(file)
    if both:
        raise MlaplanError("--all and --pareto: every plan holds the front, which the column 'front' marks; give one")
    if file is None and resume:
        raise MlaplanError("--resume goes on with the parts beside a result: name it by -o")
    if file is None and plot is not None:
        raise MlaplanError("--plot draws the rows of a result: name it by -o")
    if plot is not None:
        from pathlib import Path

        if not plot or (Path(plot).exists() and not Path(plot).is_dir()):
            raise MlaplanError(f"--plot {plot}: expected a folder, there or to be made")


def _study(config: str | None, given: dict[str, Any], settings: list[str] | None, plans: str | None) -> Study:
    from mlaplan.sweep import study

    asked = study.of_file(config) if config is not None else {}
    objective = given["objective"]
    given |= {
        "objective": None if objective is None else objective.value,
        "plans": plans,
        "chips": given["chips"] or None,
    }
    asked |= study.of_options(given, settings or ())
    taken = [f"--{name} {study.DEFAULTS[name]}" for name in ("isl", "osl") if name not in asked]
    found = study.build(asked)
    if taken:
        print(f"not given and taken: {' '.join(taken)}", file=sys.stderr)
    return found


def _told(study: Study, outcome: Outcome, file: str | None, plot: str | None) -> int:
    """The summary to stdout where the rows went to a file; whether anything is feasible."""
    from mlaplan.report import sweep_text

    if file is None:
        return EXIT_OK if outcome.feasible else EXIT_FINDINGS
    print(sweep_text.summary(study, outcome, file))
    print(f"written to {file}", file=sys.stderr)
    if plot is not None:
        from mlaplan.report.plots import draw_sweep
        from mlaplan.sweep.rows import read

        for drawn in draw_sweep(read(file), plot):
            print(drawn, file=sys.stderr)
    return EXIT_OK if outcome.feasible else EXIT_FINDINGS


@contextmanager
def _progress(points: int, quiet: bool) -> Iterator[Tell]:
    """A bar with rate and time left on stderr, where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        from mlaplan.sweep.run import silent

        yield silent
        return
    from mlaplan.report.progress import bar

    with bar(points) as tell:
        yield tell
