"""`mlaplan tiers`: what cache tiers behind the chips' memory are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlaplan.cli import options as o
from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.costs.stack_distance import Curve
    from mlaplan.costs.tiers import Link
    from mlaplan.fleet.tiers import Tier
    from mlaplan.specs.chip import Chip

ISL, OSL = 4096, 1024  # lengths taken where neither a trace nor an option says


def tiers(
    model: o.ModelName,
    chip: o.ChipName,
    devices: Annotated[int, typer.Option("--devices", min=1, max=o.MOST, metavar="N", help="Chips to plan for.")],
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE", help="Requests as JSON lines in Mooncake's format; chat: one of ours."),
    ] = None,
    host_memory: Annotated[
        str | None, typer.Option("--host-memory", metavar="SIZE", help="Host memory for the cache, per chip: 128GiB.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="SIZE", help="Pooled store over the network, in all: 4TB.")
    ] = None,
    host_link: Annotated[
        str | None,
        typer.Option("--host-link", metavar="RATE", help="Achieved rate of a chip's way to its host: 40GB/s."),
    ] = None,
    pool_link: Annotated[
        str | None, typer.Option("--pool-link", metavar="RATE", help="Achieved rate of a chip's way to the store.")
    ] = None,
    isl: o.Isl = None,
    osl: o.Osl = None,
    concurrency: o.Concurrency = None,
    ttft: o.Ttft = None,
    tpot: o.Tpot = None,
    engine: o.Engine = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    replicas: o.Replicas = None,
    kv_dtype: o.KvType = None,
    weight_dtype: o.WeightType = None,
    block_size: o.BlockSize = None,
    mtp: o.Mtp = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, max=o.MOST, metavar="N", help="Sequences in flight per attention-DP rank."),
    ] = None,
    memory_fraction: o.MemoryFraction = None,
    reserve: o.Reserve = None,
    imbalance: o.Imbalance = None,
    mtp_accept: o.MtpAccept = None,
    settings: o.Settings = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: o.Output = None,
) -> int:
    """Show what cache tiers in host memory or a pooled store are worth.

    Fetch or recompute by context and link; with a trace, hit rate against capacity, and throughput with each tier.
    Exit code: 0, 1 if no strategy fits.
    """
    from mlaplan.cli import questions, strategies
    from mlaplan.cli.output import check, write
    from mlaplan.fleet import tiers as run
    from mlaplan.plan import recommend
    from mlaplan.report import tiers_text
    from mlaplan.serving.simulator.requests import HASH_TOKENS

    check(file)
    sizes = {"--host-memory": host_memory, "--pool": pool}
    if trace is None and (lone := [flag for flag, value in sizes.items() if value is not None]):
        raise MlaplanError(f"{lone[0]} goes with --trace: what a tier finds depends on what requests share")
    curve, lengths = _curve(trace)
    work = questions.workload(
        questions.tokens("--isl", isl) if isl else lengths[0], questions.tokens("--osl", osl) if osl else lengths[1],
        concurrency=concurrency, ttft=ttft, tpot=tpot,
    )  # fmt: skip
    pins = strategies.given(
        tp=tp, pp=pp, dp=dp, ep=ep, replicas=replicas, kv_dtype=kv_dtype, weight_dtype=weight_dtype,
        block_size=block_size, mtp=mtp, batch=batch,
    )  # fmt: skip
    strategies.check_pins(pins, devices)
    own = questions.overrides(
        memory_fraction=memory_fraction, reserve=reserve, price=None, imbalance=imbalance, mtp_accept=mtp_accept,
        redundant_experts=0,
    )  # fmt: skip
    subject = questions.subject(model, chip, engine, settings)
    questions.check_drafts(subject.model, mtp, mtp_accept)
    strategies.check_precision(subject, pins)
    ways = {"host": _link("host", subject.chip, host_link), "pool": _link("pool", subject.chip, pool_link)}
    kept = _tiers(ways, subject.chip, questions.optional("--host-memory", host_memory, "bytes"),
                  questions.optional("--pool", pool, "bytes"), devices)  # fmt: skip
    q, _ = questions.asked(subject, work, own, pins)
    plans = recommend(q, devices, fixed=pins, top=1, given=own).plans
    if not plans:
        questions.tell([f"no strategy on {devices} chips serves this: mlaplan recommend says why"])
        return EXIT_FINDINGS
    s, tokens = plans[0].strategy, own.tokens_per_step
    links = [link for link in ways.values() if link is not None]
    once = run.stored_bytes(q, s)
    found = run.Found(
        s, run.fetched_bytes(q, s), once, links, run.contexts(q, s, links, tokens), curve,
        run.sizes(curve, HASH_TOKENS, once) if curve else [],
        run.worth(q, s, curve, HASH_TOKENS, kept, tokens) if curve else [],
    )  # fmt: skip
    write(tiers_text.rendered(q, found, trace, output.value), file)
    return EXIT_OK


def _curve(trace: str | None) -> tuple[Curve | None, tuple[int, int]]:
    """Hit rate against capacity of a trace, and its mean lengths."""
    if trace is None:
        return None, (ISL, OSL)
    from mlaplan.cli.simulating import Asked, requests_of
    from mlaplan.costs.stack_distance import curve
    from mlaplan.serving.simulator.requests import HASH_TOKENS

    requests = requests_of(Asked(trace, None, None, None, None, None, None, None, 0), None)[0]
    if requests.hash_ids is None:
        raise MlaplanError(f"--trace {trace}: has no hash_ids, so nothing says what its requests share")
    lengths = max(round(float(requests.prompt.mean())), 1), max(round(float(requests.output.mean())), 1)
    return curve(requests.hash_ids, requests.prompt, HASH_TOKENS), lengths


def _link(name: str, chip: Chip, text: str | None) -> Link | None:
    from mlaplan.cli import questions
    from mlaplan.costs import tiers as ways

    rate = questions.optional(f"--{name}-link", text, "bytes/s")
    if rate == 0:
        raise MlaplanError(f"--{name}-link: above 0 bytes per second")
    return (ways.host_link if name == "host" else ways.pool_link)(chip, rate)


def _tiers(
    links: dict[str, Link | None], chip: Chip, host: float | None, pool: float | None, devices: int
) -> list[Tier]:
    """The tiers that are given a size, nearest first."""
    from mlaplan.fleet.tiers import Tier

    out: list[Any] = []
    for name, flag, size in (("host", "--host-memory", host), ("pool", "--pool", pool)):
        if size is None:
            continue
        if links[name] is None:
            raise MlaplanError(f"{flag}: {chip.name} has no such link in its file; give --{name}-link")
        whole = size * devices if name == "host" else size
        out.append(Tier({"host": "+ host memory", "pool": "+ pooled store"}[name], whole, links[name]))
    return out
