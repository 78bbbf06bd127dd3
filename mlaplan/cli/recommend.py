"""`mlaplan recommend`: the best strategies for a model, a chip and a workload, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli import options as o
from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides


class Objective(StrEnum):
    """What makes a plan good."""

    throughput = "throughput"
    latency = "latency"
    cost = "cost"
    pareto = "pareto"


def recommend(
    model: o.ModelName,
    chip: o.ChipName,
    devices: Annotated[int, typer.Option("--devices", min=1, max=o.MOST, metavar="N", help="Chips to plan for.")],
    isl: o.Isl = None,
    osl: o.Osl = None,
    concurrency: o.Concurrency = None,
    rate: o.Rate = None,
    prefix: o.Prefix = None,
    ttft: o.Ttft = None,
    tpot: o.Tpot = None,
    objective: Annotated[Objective, typer.Option("--objective", help="What makes a plan good.")] = Objective.throughput,
    engine: o.Engine = None,
    top: Annotated[int, typer.Option("--top", min=1, max=1000, metavar="N", help="How many plans to show.")] = 5,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="ENGINE[@VERSION]",
            help="Print the launch command of the best plan: vllm, sglang, trtllm.",
        ),
    ] = None,
    save_plan: Annotated[
        str | None, typer.Option("--save-plan", metavar="FILE", help="Write the best plan with all it depends on.")
    ] = None,
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
    settings: o.Settings = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: o.Output = None,
) -> int:
    """Find the best strategies for a workload, and say why.

    Degrees, dtypes, layout, block, MTP depth and batch are searched; each can be pinned by its flag. Exit code:
    0 with a plan, 1 if nothing is feasible.
    """
    asked = dict(locals())  # every option by its name
    from mlaplan.cli import launching, questions
    from mlaplan.cli.answers import answered
    from mlaplan.cli.output import check, write

    if emit is not None and output is Format.csv:
        raise MlaplanError("--emit writes commands, which csv has no place for: use --format table, md or json")
    for path in (file, save_plan):
        check(path)
    found = answered(asked)
    answer, given = found.answer, found.given
    questions.tell(found.said)
    if save_plan is not None and answer.found.plans:
        _save(answer, given, save_plan)
    elif save_plan is not None:
        questions.tell([f"{save_plan} is not written: there is no plan"])
    if not answer.found.plans and output is Format.csv:  # rows of plans have no place for the reason
        from mlaplan.report.plan_text import nothing

        questions.tell([nothing(answer)])
    write(_rendered(answer, given, output), file)
    questions.tell(launching.next_steps(found.subject, answer, given, emit))
    return EXIT_OK if answer.found.plans else EXIT_FINDINGS


def _save(a: Answer, given: Overrides, path: str) -> None:
    from mlaplan.cli import questions
    from mlaplan.cli.output import write_file
    from mlaplan.report import plan_file, tables

    write_file(path, tables.as_json(plan_file.document(a.q, a.found.plans[0], given, a.objective)) + "\n")
    questions.tell([f"plan written to {path}"])


def _rendered(a: Answer, given: Overrides, output: Format) -> str:
    from mlaplan.report import plan_text, tables

    if output is Format.json:
        from mlaplan.report import recommend_data

        return tables.as_json(recommend_data.document(a, given))
    if output is Format.csv:
        return tables.as_csv(plan_text.plan_rows(a.found.plans))
    if output is Format.md:
        from mlaplan.report import plan_markdown

        return plan_markdown.markdown(a)
    return plan_text.report(a)
