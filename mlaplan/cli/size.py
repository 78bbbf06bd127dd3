"""`mlaplan size`: the fewest chips for a request rate and limits on percentiles."""

from __future__ import annotations

from typing import Annotated

import typer

from mlaplan.cli import load_options as loads
from mlaplan.cli import options as o
from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError


def size(
    model: o.ModelName,
    chip: Annotated[
        str, typer.Argument(help="chips by name or YAML file, with commas between", metavar="CHIP[,CHIP..]")
    ],
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="PER_SECOND", help="Requests that arrive per second; a trace's own if none."),
    ] = None,
    isl: loads.Isl = None,
    osl: loads.Osl = None,
    trace: loads.Trace = None,
    synthetic: loads.Synthetic = None,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, max=o.MOST, metavar="N", help="How many to take of a trace.")
    ] = None,
    burstiness: loads.Burstiness = None,
    ttft: loads.TtftLimit = None,
    tpot: loads.TpotLimit = None,
    chips: Annotated[
        str | None, typer.Option("--chips", metavar="CHIP,CHIP", help="More chips to compare, with commas between.")
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option("--rates", metavar="R,R", help="Rates of the table; from a quarter to four times --rate if none."),
    ] = None,
    largest: Annotated[
        int, typer.Option("--largest", min=1, max=1024, metavar="N", help="Most chips of one instance.")
    ] = 64,
    simulate: Annotated[
        bool, typer.Option("--simulate/--no-simulate", help="Let the simulator decide how many replicas are enough.")
    ] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the simulated arrivals.")] = 0,
    routing: loads.Route = loads.Routing.least_loaded,
    prefix_cache: loads.PrefixCache = True,
    prefix: o.Prefix = None,
    prefix_groups: o.PrefixGroups = None,
    prefix_routing: o.PrefixRouting = None,
    engine: o.Engine = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    kv_dtype: o.KvType = None,
    weight_dtype: o.WeightType = None,
    block_size: o.BlockSize = None,
    mtp: o.Mtp = None,
    memory_fraction: o.MemoryFraction = None,
    reserve: o.Reserve = None,
    price: o.Price = None,
    imbalance: o.Imbalance = None,
    mtp_accept: o.MtpAccept = None,
    settings: o.Settings = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: o.Output = None,
) -> int:
    """Find the fewest chips for a request rate and limits on percentiles.

    Searches the best instance of every size by a queueing formula, then simulates how many of them are enough, at the
    rate, 20 % below and above it, with a server failed, and at other rates. Exit code: 0, 1 if nothing keeps them.
    """
    from mlaplan.cli import offering, questions, simulating, strategies
    from mlaplan.cli.limits import limit
    from mlaplan.cli.output import check, write
    from mlaplan.fleet.sizing import Asked, sized
    from mlaplan.report import size_text

    check(file)
    limits = limit("--ttft", ttft), limit("--tpot", tpot)
    for flag, one in (("--ttft", limits[0]), ("--tpot", limits[1])):
        if one is not None and one.percentile >= 100:
            raise MlaplanError(
                f"{flag}: p100 is the slowest of all requests, which grows with their number; at most p99.9"
            )
    given = questions.overrides(
        memory_fraction=memory_fraction, reserve=reserve, price=price, imbalance=imbalance, mtp_accept=mtp_accept,
        redundant_experts=0,
    )  # fmt: skip
    load = simulating.Asked(trace, synthetic, isl, osl, requests, rate, burstiness, None, seed)
    offered, per_s = offering.offered(load, routing.value, prefix_cache)
    if prefix is not None and offered.trace is not None:
        raise MlaplanError("--prefix: requests of a trace say themselves what their prompts share")
    others = offering.rates(rates)
    work = questions.workload(
        *offered.means, rate=f"{per_s!r}/s", prefix=prefix, groups=prefix_groups, routing=prefix_routing
    )
    pins = strategies.given(
        tp=tp, pp=pp, dp=dp, ep=ep, kv_dtype=kv_dtype, weight_dtype=weight_dtype, block_size=block_size, mtp=mtp
    )
    names = _names(chip, chips)
    subjects = [questions.subject(model, name, engine, settings) for name in names]
    questions.check_drafts(subjects[0].model, mtp, mtp_accept)
    answers = []
    for subject in subjects:
        strategies.check_precision(subject, pins)
        q, said = questions.asked(subject, work, given, pins)
        questions.tell([*said, *offering.too_long(offered, q, seed)])
        sent = offering.with_prefix(offered, q) if simulate else offered
        asked = Asked(
            q, sent, per_s, *limits, largest, pins, given, simulate, seed, lambda x: questions.tell([x]), others
        )
        answers.append(sized(asked))
    write(size_text.rendered(answers, output.value), file)
    return EXIT_OK if any(a.best is not None for a in answers) else EXIT_FINDINGS


def _names(chip: str, more: str | None) -> list[str]:
    """Chips of the argument and of --chips, each once, in order."""
    found = [name.strip() for text in (chip, more or "") for name in text.split(",")]
    names = list(dict.fromkeys(name for name in found if name))
    if not names:
        raise MlaplanError("no chip is named; expected one or more, such as h100-sxm,h200-sxm")
    return names
