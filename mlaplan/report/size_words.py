"""What a size is said with: the load, limits, why nothing is enough, and how the numbers came about."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from mlaplan.fleet.checked import MOST_REQUESTS, MOST_TIMES
from mlaplan.report import words
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.fleet.offered import Offered
    from mlaplan.fleet.sizing import Answer
    from mlaplan.serving.simulator.outcome import Limit
    from mlaplan.strategy import Strategy


def limit(one: Limit) -> str:
    """p95 up to 2.00 s."""
    name = f"p{one.percentile:g}" if one.percentile else "mean"
    return f"{name} up to {format_seconds(one.seconds)}"


def arrivals(o: Offered, rate: float) -> str:
    """How requests come, and to whom."""
    if o.burstiness not in (None, 1.0):
        come = f"gamma gaps of shape {o.burstiness:g}"
    elif o.trace is not None and o.burstiness is None:
        own = o.trace.rate
        stretched = f", stretched from {own:.3g} to {rate:.3g} requests/s" if abs(own / rate - 1) > 1e-9 else ""
        come = f"at its own times{stretched}"
    else:
        come = "Poisson arrivals"
    sent = {"round_robin": "sent in turn", "cache_aware": "sent where a prefix is cached"}.get(o.routing)
    return f"{come}, {sent}" if sent else come


def nothing(a: Answer) -> str:
    """Why no number of chips is enough: which limit, by how much, and what can be had."""
    name, n = a.asked.q.setting.chip.name, a.nearest
    size = f"{words.times(a.asked.largest, 'chip')}"
    if not n.held:
        whole = a.asked.offered.longest(a.asked.seed)[1]
        return (
            f"{name}: no instance of up to {size} holds the model and one request of {whole:,} tokens; --largest sets "
            "the most chips of one."
        )
    if a.options:
        return f"{name}: {_missed(a)}"
    out = [f"{name}: no instance of up to {size} keeps the limits, however few requests it gets."]
    alone = (("TTFT", a.asked.ttft, n.ttft, n.with_tpot), ("TPOT", a.asked.tpot, n.tpot, n.with_ttft))
    missed = False
    for title, one, found, _ in alone:
        if one is not None and found is not None and found[0] > one.seconds:
            missed = True
            out.append(f"{title} {limit(one)}: the shortest is {_had(found, one)}.")
    for title, one, _, found in alone if not missed else ():
        other = "TPOT" if title == "TTFT" else "TTFT"
        if one is not None and found is not None:
            out.append(f"With {other} kept, the shortest {title} is {_had(found, one)}.")
    return " ".join([*out, "These are times of a request that meets no other, by the formula."])


def _had(found: tuple[float, Strategy], one: Limit) -> str:
    """A time, against its limit, and what reaches it."""
    seconds, strategy = found
    chips = words.times(strategy.devices, "chip")
    return f"{format_seconds(seconds)}, {seconds / one.seconds:.3g} times the limit, by {strategy.label()} on {chips}"


def _missed(a: Answer) -> str:
    """The formula's answer does not stand in the simulator."""
    assert a.missed is not None
    tried, point = a.missed
    said = []
    for title, one, value in (("TTFT", a.asked.ttft, point.ttft_s), ("TPOT", a.asked.tpot, point.tpot_s)):
        if one is None or value <= one.seconds:
            continue
        if not isfinite(value):
            return f"the cache of {tried.instance.strategy.label()} holds not the longest request."
        name = f"p{one.percentile:g}" if one.percentile else "mean"
        said.append(f"{title} {name} is {format_seconds(value)}, {value / one.seconds:.3g} times the limit")
    return (
        f"the formula asks for {a.options[0].chips:,} chips, but the simulator misses the limits with up to "
        f"{MOST_TIMES} times its replicas: on {words.times(tried.chips, 'chip')}, {tried.replicas:,} x "
        f"{tried.instance.strategy.label()}, {' and '.join(said)}."
    )


def method(answers: list[Answer]) -> str:
    """How the numbers came about."""
    a = answers[0]
    o = a.asked.offered
    search = (
        f"{sum(x.priced for x in answers):,} strategies were ranked by a queueing formula (Poisson arrivals, M/D/1 "
        "wait, Poisson batch, mean lengths; docs/cost-model.md)."
    )
    if not a.asked.simulate:
        spread = o.trace is not None or not o.even or any(one.kind != "value" for one in (o.isl, o.osl))
        left = " Spread of lengths, bursts and what a trace shares are not in them." if spread else ""
        return f"{search} All figures are the formula's; --simulate lets the simulator decide.{left}"
    said = [
        f"{x.formula.chips:,} of {x.asked.q.setting.chip.name}"
        for x in answers
        if x.formula is not None and (x.best is None or x.best.chips != x.formula.chips)
    ]
    change = f" The formula alone asks for {', '.join(said)}." if said else ""
    if not said and any(x.best for x in answers):
        change = " The formula alone asks for as many chips."
    runs = sum(x.runs for x in answers)
    return (
        f"{search}{_found(answers)} The simulator decided at every rate how many replicas keep the limits and gave all "
        f"other figures ({words.times(runs, 'run')} of a few replicas with their part of the load, seed "
        f"{a.asked.seed}).{change}{_means(a)}{_trace(o)}"
    )


def _means(a: Answer) -> str:
    """What times are where no limit names a percentile."""
    free = [name for name, one in (("TTFT", a.asked.ttft), ("TPOT", a.asked.tpot)) if one is None or not one.percentile]
    return f" {' and '.join(free)} {'are means' if len(free) > 1 else 'is the mean'}." if free else ""


def _found(answers: list[Answer]) -> str:
    """What the search took of prefixes."""
    shares = [x.hit_share for x in answers if x.asked.offered.shares]
    if not shares:
        return ""
    return f" {' and '.join(words.percent(x) for x in shares)} of prompt tokens were taken to be found, as simulated."


def _trace(o: Offered) -> str:
    """What was made of a trace, and of a shared prefix."""
    if o.prefix:
        from mlaplan.serving.simulator.requests import HASH_TOKENS

        whole = o.prefix // HASH_TOKENS * HASH_TOKENS
        return f" The simulator finds whole blocks of {HASH_TOKENS} tokens: {whole:,} of the prefix's {o.prefix:,}."
    if o.trace is None:
        return ""
    longer = f" Of the trace, runs of one replica take the first {MOST_REQUESTS:,} requests." * (
        len(o.trace) > MOST_REQUESTS
    )
    return f"{longer} A trace shorter than a run is repeated with other prompts."
