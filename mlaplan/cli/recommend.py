"""`mlaplan recommend`: the best strategies for a model, a chip and a workload, and why."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli import options as o
from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.fleet.decision import Decision
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides

ISL, OSL = 4096, 1024  # lengths taken where none are given


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
    prefix_groups: o.PrefixGroups = None,
    prefix_routing: o.PrefixRouting = None,
    ttft: o.Ttft = None,
    tpot: o.Tpot = None,
    objective: Annotated[Objective, typer.Option("--objective", help="What makes a plan good.")] = Objective.throughput,
    engine: o.Engine = None,
    top: Annotated[int, typer.Option("--top", min=1, max=1000, metavar="N", help="How many plans to show.")] = 5,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="WHAT",
            help="Launch commands of an engine, vllm[@VERSION], or manifests: lws, kthena.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace manifests that are there.")] = False,
    pd: Annotated[
        str | None, typer.Option("--pd", metavar="P:D", help="Copies that prefill and that decode (kthena).")
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
    shared_ranks: o.SharedRanks = 0,
    gather_only: o.GatherOnly = False,
    disagg: o.Disaggregate = o.Disagg.off,
    prefill_chip: o.PrefillChip = None,
    decode_chip: o.DecodeChip = None,
    kv_link: o.KvLink = None,
    kv_overlap: o.KvSending = None,
    kv_connector: o.KvConnector = None,
    settings: o.Settings = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: o.Output = None,
) -> int:
    """Find the best strategies for a workload, and say why.

    Degrees, dtypes, layout, block, MTP depth and batch are searched; each can be pinned by its flag. Exit code:
    0 with a plan, 1 if nothing is feasible.
    """
    from dataclasses import replace

    from mlaplan.cli import emitting_apart, launching, manifesting, questions, strategies
    from mlaplan.cli.disagg import Apart, decide, exit_code, rendered
    from mlaplan.cli.output import check, write
    from mlaplan.engines.connectors import UNDIVIDED
    from mlaplan.engines.load import spelled
    from mlaplan.plan import recommend as run
    from mlaplan.report.plan_text import Answer

    if emit is not None and output is Format.csv:
        raise MlaplanError("--emit writes commands, which csv has no place for: use --format table, md or json")
    if emit is not None:
        launching.check(emit)
    kind = manifesting.kind_of(emit)
    manifesting.check(kind, file, force, pd)
    folder, file = (file, None) if kind is not None else (None, file)
    for path in (file, save_plan):
        check(path)
    apart = Apart(disagg, prefill_chip, decode_chip, kv_link, kv_overlap, kv_connector)
    apart.check(devices, objective.value)
    apart.link_rate()
    named = True
    if kind is not None:
        engine, named = manifesting.engine(kind, engine, chip)
        emit = engine
    if pd is not None and apart.wanted:
        raise MlaplanError(f"--pd gives both roles one plan; --disagg {disagg.value} finds a plan and copies for each")
    split = manifesting.pools(pd, replicas)
    replicas = sum(split) if split is not None else replicas
    work = questions.workload(
        _tokens("--isl", isl, ISL), _tokens("--osl", osl, OSL),
        concurrency=concurrency, rate=rate, prefix=prefix, ttft=ttft, tpot=tpot,
        groups=prefix_groups, routing=prefix_routing,
    )  # fmt: skip
    pins = strategies.given(
        tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp, cp=cp, replicas=replicas, kv_layout=kv_layout, kv_dtype=kv_dtype,
        weight_dtype=weight_dtype, block_size=block_size, mtp=mtp, batch=batch, prefill_chunk=prefill_chunk,
        two_batch_overlap=two_batch_overlap,
    )  # fmt: skip
    strategies.check_pins(pins, devices)
    whole = {n: 1 for n in UNDIVIDED if split is not None and n not in pins}  # one plan that a connector can join
    pins |= whole
    given = questions.overrides(
        memory_fraction=memory_fraction, reserve=reserve, price=price, imbalance=imbalance, mtp_accept=mtp_accept,
        redundant_experts=redundant_experts, dcp_merge=dcp_merge, dcp_interleave=dcp_interleave,
        shared_ranks=shared_ranks,
        gather_only=gather_only,
    )  # fmt: skip
    subject = questions.subject(model, chip, engine or emit, settings)
    if kind is not None and folder is not None and not force:
        manifesting.refuse_taken(kind, folder, subject.model.name)
    questions.check_drafts(subject.model, mtp, mtp_accept)
    strategies.check_precision(subject, pins)
    strategies.check_merge(given, pins.get("dcp"))
    q, said = questions.asked(subject, work, given, pins)
    questions.tell(said)
    found = run(q, devices, objective=objective.value, fixed=pins, top=top, given=given)
    if found.considered == 0:
        pinned = ", ".join(f"{name} {value}" for name, value in pins.items())
        raise MlaplanError(f"no structure on {devices} chips has all that is pinned: {pinned}")
    taken = [f"--{n} {v}" for n, t, v in (("isl", isl, work.isl), ("osl", osl, work.osl)) if t is None]
    taken += [f"--{n} {v}" for n, v in whole.items()] + ([] if named else [f"--engine {spelled(str(engine))}"])
    if taken:
        questions.tell([f"not given and taken: {' '.join(taken)}"])
    answer = _completed(
        Answer(q, devices, objective.value, pins, found, None, []), given, emit if kind is None else None
    )
    decided = decide(answer, subject, apart, given, pins) if apart.wanted else None
    two = decided if decided is not None and decided.wins == "apart" else None
    written = True
    if kind is not None and (two is not None or found.plans):
        answer, written = _with_manifests(answer, two, emit or "", kind, split, folder, force)
    elif two is not None and emit is not None:
        answer = replace(answer, launch=emitting_apart.commands(two, emit))
        written = answer.launch is None or answer.launch.problem is None
    if decided is not None:
        if save_plan is not None:
            _save_either(answer, decided, given, save_plan)
        write(rendered(answer, decided, given, output.value), file)
        return exit_code(answer, decided) if written else EXIT_FINDINGS
    if save_plan is not None and found.plans:
        _save(answer, given, save_plan)
    elif save_plan is not None:
        questions.tell([f"{save_plan} is not written: there is no plan"])
    if not found.plans and output is Format.csv:  # rows of plans have no place for the reason
        from mlaplan.report.plan_text import nothing

        questions.tell([nothing(answer)])
    write(_rendered(answer, given, output), file)
    questions.tell(launching.next_steps(subject, answer, given, emit))
    return EXIT_OK if found.plans and written else EXIT_FINDINGS


def _with_manifests(
    a: Answer, two: Decision | None, engine: str, kind: str, split: tuple[int, int] | None, folder: str | None,
    force: bool,
) -> tuple[Answer, bool]:  # fmt: skip
    """The answer with the manifests, or with the command that applies those that were written. two: of two pools."""
    from dataclasses import replace

    from mlaplan.cli import emitting_apart, manifesting, questions

    launch, found = manifesting.launch(
        engine, kind,
        lambda: manifesting.deployment(a, engine, split) if two is None else emitting_apart.deployment(two, engine),
    )  # fmt: skip
    if folder is not None and found:
        paths = manifesting.write(found, folder, force)
        questions.tell([f"written to {path}" for path in paths])
        launch = replace(launch, commands=["kubectl apply " + " ".join(f"-f {shlex.quote(p)}" for p in paths)])
    return replace(a, launch=launch), launch.problem is None


def _tokens(flag: str, text: str | None, default: int) -> int:
    from mlaplan.cli import questions

    return default if text is None else questions.tokens(flag, text)


def _completed(a: Answer, given: Overrides, emit: str | None) -> Answer:
    """The answer with reasons, notes and commands; without a plan, with what would give one."""
    from dataclasses import replace

    from mlaplan.cli import launching
    from mlaplan.report.nearest import nearest_illegal, smallest_change
    from mlaplan.report.notes import notes
    from mlaplan.report.why import why

    if not a.found.plans:
        miss = a.found.nearest_miss or nearest_illegal(a.q, a.devices, a.pins)
        change = smallest_change(a.q, miss, given.tokens_per_step) if miss is not None else None
        found = replace(a.found, nearest_miss=miss)
        return replace(a, found=found, notes=notes(a, given), change=change)
    reasons = why(a.q, a.found.plans, given.tokens_per_step)
    launch = launching.commands(a, emit) if emit is not None else None
    return replace(a, why=reasons, notes=notes(a, given), launch=launch)


def _save(a: Answer, given: Overrides, path: str) -> None:
    from mlaplan.cli import questions
    from mlaplan.cli.output import write_file
    from mlaplan.report import plan_file, tables

    write_file(path, tables.as_json(plan_file.document(a.q, a.found.plans[0], given, a.objective)) + "\n")
    questions.tell([f"plan written to {path}"])


def _save_either(a: Answer, d: Decision, given: Overrides, path: str) -> None:
    """The plan of the way that won."""
    from mlaplan.cli import questions
    from mlaplan.cli.output import write_file
    from mlaplan.report import split_plan, tables

    if d.wins == "apart":
        write_file(path, tables.as_json(split_plan.document(d, given, a.objective)) + "\n")
        questions.tell([f"plan written to {path}: two pools"])
    elif d.wins == "together":
        _save(a, given, path)
    else:
        questions.tell([f"{path} is not written: there is no plan"])


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
