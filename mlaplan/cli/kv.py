"""`mlaplan kv`: the KV cache of a deployment as a pool of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli import options as o
from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.costs.paging import Lengths
    from mlaplan.workload import Workload

ISL, OSL = 4096, 1024  # lengths taken where none are given
LENGTHS = "expected a number of tokens, LOW-HIGH or uniform:LOW:HIGH, lognormal:MEAN:CV, or geometric:MEAN"
DRAWN = 200_000  # lengths of a lognormal distribution that are counted
MOST_BUCKETS = 12
WIDEST = 10_000_000  # lengths of a uniform distribution that are counted one by one


def kv(
    model: o.ModelName,
    chip: o.ChipName,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    dcp: o.Dcp = None,
    cp: o.Cp = None,
    replicas: o.Replicas = None,
    kv_layout: o.KvLayout = None,
    kv_dtype: o.KvType = None,
    weight_dtype: o.WeightType = None,
    block_size: o.BlockSize = None,
    mtp: o.Mtp = None,
    prefill_chunk: o.PrefillChunk = None,
    engine: o.Engine = None,
    pool: Annotated[
        str | None,
        typer.Option("--pool", metavar="SIZE", help="Cache of a chip, in place of what memory leaves: 20GB."),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="N|LOW-HIGH|DIST",
            help="Cached tokens of a sequence: 2000, 1k-8k, uniform:1k:8k, lognormal:3500:0.8, geometric:900; "
            "from ISL to ISL + OSL if none, as sequences in flight have.",
        ),
    ] = None,
    watermark: Annotated[
        str | None, typer.Option("--watermark", metavar="SHARE", help="Blocks kept free: 0.01; none if not given.")
    ] = None,
    buckets: Annotated[
        str | None,
        typer.Option("--buckets", metavar="N,N", help="Bucket sizes of a pool of prefixes; 64,256,1k,4k if none."),
    ] = None,
    isl: o.Isl = None,
    osl: o.Osl = None,
    prefix: o.Prefix = None,
    prefix_groups: o.PrefixGroups = None,
    prefix_routing: o.PrefixRouting = None,
    memory_fraction: o.MemoryFraction = None,
    reserve: o.Reserve = None,
    settings: o.Settings = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: o.Output = None,
) -> int:
    """Show what a KV cache holds: formats, blocks, shared prefixes, buckets.

    Tokens and sequences per chip and per replica in every cache format, with scales, the error of attention and the
    time to widen it; what whole blocks and buckets waste. A pool that does not fit is shown too.
    """
    from mlaplan.cli import questions, strategies
    from mlaplan.cli.output import check, write
    from mlaplan.costs.paging import fixed, uniform
    from mlaplan.fleet.pool import BUCKETS
    from mlaplan.fleet.pool import pool as run
    from mlaplan.plan import question
    from mlaplan.report import kv_text

    check(file)
    flags = strategies.given(
        tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp, cp=cp, replicas=replicas, kv_layout=kv_layout, kv_dtype=kv_dtype,
        weight_dtype=weight_dtype, block_size=block_size, mtp=mtp, prefill_chunk=prefill_chunk,
    )  # fmt: skip
    own = questions.overrides(
        memory_fraction=memory_fraction, reserve=reserve, price=None, imbalance=None, mtp_accept=None,
        redundant_experts=0,
    )  # fmt: skip
    size = questions.optional("--pool", pool, "bytes")
    if size == 0:
        raise MlaplanError("--pool: above 0 bytes")
    kept = questions.optional("--watermark", watermark, "fraction") or 0.0
    if kept >= 1:
        raise MlaplanError(f"--watermark {watermark}: expected a share below 1, such as 0.01")
    subject = questions.subject(model, chip, engine, settings)
    questions.check_drafts(subject.model, mtp or 0, None)
    strategy, said = strategies.whole(subject, flags, 1, None)
    work = questions.workload(
        questions.tokens("--isl", isl) if isl is not None else ISL,
        questions.tokens("--osl", osl) if osl is not None else OSL,
        prefix=prefix, groups=prefix_groups, routing=prefix_routing,
    )  # fmt: skip
    work, in_blocks = questions.in_blocks(work, strategy.block_size * strategy.dcp)
    q = question(subject.chip, subject.model, subject.profile, work, own)
    prefixes = fixed(work.prefix_tokens) if work.prefix_tokens else uniform(1, work.isl)
    found = run(
        q, strategy, _lengths(lengths, work), prefixes, pool_bytes=size, watermark=kept,
        bucket_sizes=BUCKETS if buckets is None else _buckets(buckets),
    )  # fmt: skip
    questions.tell([*said, *in_blocks])
    write(kv_text.rendered(q, found, output.value), file)
    return EXIT_OK


def _lengths(text: str | None, work: Workload) -> Lengths:
    """Cached tokens of a sequence: as given, else those of sequences in flight, anywhere in their output."""
    from mlaplan.cli import questions
    from mlaplan.costs import paging

    if text is None:
        return paging.uniform(work.isl + 1, work.max_context)
    name, colon, rest = text.partition(":")
    if colon and name in ("uniform", "lognormal"):
        from mlaplan.serving.simulator.load import lengths

        one = lengths("--lengths", text)
        if one.kind == "uniform":
            return _range(text, int(one.a), int(one.b))
        import numpy as np

        words = f"lognormal, {one.a:,.0f} tokens on average, deviation {one.b:g} of it"
        return paging.observed(one.draw(DRAWN, np.random.default_rng(0)), words)
    if colon:
        if name != "geometric":
            raise MlaplanError(f"--lengths: '{text}' is no distribution; {LENGTHS}")
        mean = questions.tokens("--lengths", rest)
        if mean < 1:
            raise MlaplanError("--lengths: a sequence has at least 1 token")
        return paging.geometric(mean)
    low, dash, high = text.partition("-")
    if not dash or not low.strip() or not high.strip():
        if dash:
            raise MlaplanError(f"--lengths: '{text}' is no range; {LENGTHS}")
        return paging.fixed(_at_least_one(low))
    return _range(text, _at_least_one(low), _at_least_one(high))


def _range(text: str, first: int, last: int) -> Lengths:
    from mlaplan.costs import paging

    if last < first or last - first > WIDEST:
        raise MlaplanError(f"--lengths: '{text}' is no range; expected LOW-HIGH with at most {WIDEST:,} between them")
    return paging.uniform(first, last)


def _buckets(text: str) -> tuple[int, ...]:
    from mlaplan.cli import questions

    found = sorted({questions.tokens("--buckets", one.strip()) for one in text.split(",")})
    if found[0] < 1 or len(found) > MOST_BUCKETS:
        raise MlaplanError(f"--buckets {text}: expected at most {MOST_BUCKETS} sizes of at least 1 token")
    return tuple(found)


def _at_least_one(text: str) -> int:
    from mlaplan.cli import questions

    found = questions.tokens("--lengths", text.strip())
    if found < 1:
        raise MlaplanError("--lengths: a sequence has at least 1 token")
    return found
