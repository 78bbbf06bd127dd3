"""`mlaplan explain`: price one strategy, operator by operator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlaplan.cli import options as o
from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Overrides, Workload

NOTHING_ASKED = (
    "nothing is asked: give --batch and --context (one decode step), --prefill (one prefill step), "
    "or --isl, --osl and --concurrency (a served workload)"
)


def explain(
    model: o.ModelName,
    chip: o.ChipName,
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
    mtp_accept: o.MtpAccept = None,
    engine: o.Engine = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, max=o.MOST, metavar="N", help="Sequences in flight per attention-DP rank."),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="TOKENS", help="Cached tokens of each sequence at the decode step."),
    ] = None,
    prefill: Annotated[
        str | None,
        typer.Option("--prefill", metavar="TOKENS", help="Tokens of one rank in a prefill step, as prompts of --isl."),
    ] = None,
    isl: o.Isl = None,
    osl: o.Osl = None,
    concurrency: o.Concurrency = None,
    rate: o.Rate = None,
    prefix: o.Prefix = None,
    prefix_groups: o.PrefixGroups = None,
    prefix_routing: o.PrefixRouting = None,
    prefill_chunk: o.PrefillChunk = None,
    two_batch_overlap: o.TwoBatch = None,
    memory_fraction: o.MemoryFraction = None,
    reserve: o.Reserve = None,
    price: o.Price = None,
    imbalance: o.Imbalance = None,
    redundant_experts: o.RedundantExperts = 0,
    shared_ranks: o.SharedRanks = 0,
    gather_only: o.GatherOnly = False,
    settings: o.Settings = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: o.Output = None,
) -> int:
    """Price one strategy, operator by operator, and say whether it fits.

    One decode step (--batch, --context), one prefill step (--prefill), a served workload (--isl, --osl and
    --concurrency or --rate), or several of them. What does not fit is priced too. The chips are
    tp x dp x pp x replicas.
    """
    from mlaplan.cli import questions, strategies
    from mlaplan.cli.output import check, write
    from mlaplan.plan import price_per_hour, question
    from mlaplan.report.notes import too_long

    check(file)
    prefixes = {"prefix": prefix, "groups": prefix_groups, "routing": prefix_routing}
    asked = _asked(batch, context, prefill, isl, osl, concurrency, rate, prefixes)
    flags = strategies.given(
        tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp, cp=cp, replicas=replicas, kv_layout=kv_layout, kv_dtype=kv_dtype,
        weight_dtype=weight_dtype, block_size=block_size, mtp=mtp, prefill_chunk=prefill_chunk,
        two_batch_overlap=two_batch_overlap,
    )  # fmt: skip
    own = questions.overrides(
        memory_fraction=memory_fraction, reserve=reserve, price=price, imbalance=imbalance, mtp_accept=mtp_accept,
        redundant_experts=redundant_experts, dcp_merge=dcp_merge, dcp_interleave=dcp_interleave,
        shared_ranks=shared_ranks,
        gather_only=gather_only,
    )  # fmt: skip
    subject = questions.subject(model, chip, engine, settings)
    questions.check_drafts(subject.model, mtp or 0, mtp_accept)
    strategy, said = strategies.whole(subject, flags, batch, asked.prefill)
    strategies.check_merge(own, strategy.dcp)
    work, in_blocks = questions.in_blocks(asked.work, strategy.block_size * strategy.dcp)
    q = question(subject.chip, subject.model, subject.profile, work, own)
    strategy, more = _in_flight(q, strategy, batch, asked, own)
    found = _explained(q, strategy, asked, own, price_per_hour(q, own))
    change = _more_chips(q, found)
    more = [*in_blocks, *more, *too_long(q)]
    questions.tell([*said, *more, *(change if output is Format.csv else [])])
    write(_rendered(q, found, asked, own, [*said, *more], change, output), file)
    return EXIT_OK


@dataclass(frozen=True, slots=True)
class _Asked:
    """The steps that are asked for, and the workload that capacity and the served figures follow."""

    context: int | None
    prefill: int | None
    served: bool
    work: Workload

    def data(self) -> dict[str, Any]:
        return {"decode_context_tokens": self.context, "prefill_step_tokens": self.prefill, "served": self.served}


def _asked(
    batch: int | None,
    context: str | None,
    prefill: str | None,
    isl: str | None,
    osl: str | None,
    concurrency: int | None,
    rate: str | None,
    prefixes: dict[str, Any],
) -> _Asked:
    from mlaplan.cli import questions

    at = None if context is None else _positive("--context", context)
    step = None if prefill is None else _positive("--prefill", prefill)
    served = osl is not None
    if not served and at is None and step is None:
        alone = {"--batch": batch, "--isl": isl, "--concurrency": concurrency, "--rate": rate}
        lone = [flag for flag, value in alone.items() if value is not None]
        raise MlaplanError(f"{' and '.join(lone)} alone: {NOTHING_ASKED}" if lone else NOTHING_ASKED)
    if served and isl is None:
        raise MlaplanError("--osl needs --isl: a served request has a prompt and an output")
    if served and concurrency is None and rate is None and batch is None:
        raise MlaplanError("--isl and --osl need a load: --concurrency, --rate, or --batch sequences a rank")
    if not served and (concurrency is not None or rate is not None):
        raise MlaplanError("--concurrency and --rate go with --isl and --osl")
    if at is not None and batch is None and not served:
        raise MlaplanError("--context needs --batch: sequences in flight per attention-DP rank")
    if served:
        work = questions.workload(
            _positive("--isl", isl or ""), _positive("--osl", osl or ""),
            concurrency=concurrency, rate=rate, **prefixes,
        )  # fmt: skip
        return _Asked(at, step, True, work)
    prompt = _positive("--isl", isl) if isl is not None else step or max((at or 1) - 1, 1)
    # the longest sequence is the one of the decode step, or the prompt
    work = questions.workload(prompt, max((at or 0) - prompt, 1), **prefixes)
    return _Asked(at, step, False, work)


def _positive(flag: str, text: str) -> int:
    from mlaplan.cli import questions

    value = questions.tokens(flag, text)
    if value < 1:
        raise MlaplanError(f"{flag}: at least 1 token")
    return value


def _in_flight(
    q: Question, strategy: Strategy, batch: int | None, asked: _Asked, own: Overrides
) -> tuple[Strategy, list[str]]:
    """The strategy with the batch that the load and the cache give, where none was asked for."""
    from mlaplan.cli import loads

    if batch is not None:
        return strategy, []
    if not asked.served:
        # as many prompts as the step has tokens for
        return replace(strategy, batch=-(-(asked.prefill or 1) // q.workload.new_tokens)), []
    return loads.with_batch(q, strategy, own.tokens_per_step)


def _explained(q: Question, strategy: Strategy, asked: _Asked, own: Overrides, price: float | None) -> Explanation:
    from mlaplan.explain import explain as run

    tokens = own.tokens_per_step
    if not asked.served:
        return run(
            q, strategy, decode_context=asked.context, prefill_tokens=asked.prefill, served=False, tokens_given=tokens
        )
    found = run(q, strategy, tokens_given=tokens, price=price)
    if asked.context is not None:
        step = run(q, strategy, decode_context=asked.context, served=False, tokens_given=tokens)
        found = replace(found, decode=step.decode)
    if asked.prefill is not None:
        step = run(q, strategy, prefill_tokens=asked.prefill, served=False, tokens_given=tokens)
        found = replace(found, prefill=step.prefill)
    return found


def _more_chips(q: Question, e: Explanation) -> list[str]:
    """What would hold a strategy that does not fit."""
    from mlaplan.cli import loads

    return [] if e.fits else loads.chips_that_hold(q, e.strategy)


def _rendered(
    q: Question,
    e: Explanation,
    asked: _Asked,
    own: Overrides,
    notes: list[str],
    change: list[str],
    output: Format,
) -> str:
    from mlaplan.report import explain_rows, explain_text, plan_data, tables

    if output is Format.json:
        return tables.as_json(plan_data.explain_document(q, own, e, asked.data(), [*notes, *change]))
    if output is Format.csv:
        return tables.as_csv(explain_rows.rows(e))
    if output is Format.md:
        return explain_rows.markdown(q, e, change)
    return explain_text.report(q, e, change, context=asked.context, prefill_tokens=asked.prefill)
