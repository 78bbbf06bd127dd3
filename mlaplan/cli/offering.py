"""From the load options of `size`, spelled as those of `simulate`, to what is offered to a fleet."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.cli.simulating import Asked
    from mlaplan.fleet.offered import Offered
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.load import Lengths
    from mlaplan.serving.simulator.server import Routing


def offered(asked: Asked, routing: str, prefix_cache: bool) -> tuple[Offered, float]:
    """(what is offered, requests per second: as asked, else the trace's own)."""
    from mlaplan.cli.questions import quantity
    from mlaplan.fleet.offered import Offered, plain
    from mlaplan.serving.simulator import load

    asked.check()
    rate = None if asked.rate is None else quantity("--rate", asked.rate, "rate")
    if rate is not None and not rate > 0:
        raise MlaplanError("--rate: above 0 requests per second")
    spread = cast("Routing", routing.replace("-", "_"))
    if asked.trace is not None or asked.synthetic is not None:
        return _of_requests(asked, rate, spread, prefix_cache)
    lengths = []
    for flag, text in (("--isl", asked.isl), ("--osl", asked.osl)):
        if text is None:
            raise MlaplanError(f"{flag} is missing; expected --isl and --osl, or --trace or --synthetic")
        lengths.append(plain(load.lengths(flag, text)))
    if rate is None:
        raise MlaplanError("--rate is missing; expected requests per second, such as --rate 40")
    if asked.count is not None:
        raise MlaplanError("--requests goes with --trace: as many are drawn as a fleet has to be watched for")
    isl, osl = lengths
    words = f"{_words(isl)} tokens in, {_words(osl)} out"
    return Offered(isl, osl, words, None, asked.burstiness, spread, prefix_cache), rate


def rates(text: str | None) -> tuple[float, ...] | None:
    """The rates of --rates; None where it is not given."""
    from mlaplan.cli.questions import quantity

    if text is None:
        return None
    found = tuple(quantity("--rates", one, "rate") for one in text.split(","))
    if not all(one > 0 for one in found):
        raise MlaplanError(f"--rates {text}: above 0 requests per second each")
    return found


def _of_requests(asked: Asked, rate: float | None, spread: Routing, prefix_cache: bool) -> tuple[Offered, float]:
    from mlaplan.cli.simulating import requests_of
    from mlaplan.fleet.offered import Offered
    from mlaplan.serving.simulator.load import Lengths

    # a trace keeps its own times here: a fleet gets it at several rates
    own = replace(asked, rate=None, burstiness=None) if asked.trace is not None else asked
    found, source, _ = requests_of(own, None)
    if rate is None:
        rate = found.rate
        if not math.isfinite(rate):
            raise MlaplanError(
                f"--rate is missing: the requests of {asked.trace} come all at once, so that no rate follows from them"
            )
    if not math.isfinite(found.rate) and asked.burstiness is None:
        raise MlaplanError(
            f"--rate: the requests of {asked.trace} come all at once; add --burstiness 1 to draw their arrivals"
        )
    isl, osl = (Lengths("value", float(column.mean())) for column in (found.prompt, found.output))
    words = f"{len(found):,} requests {source}, {isl.a:,.0f} tokens in and {osl.a:,.0f} out on average"
    return Offered(isl, osl, words, found, asked.burstiness, spread, prefix_cache), rate


def with_prefix(o: Offered, q: Question) -> Offered:
    """The same with the shared prefix of the question, in whole blocks of the cache."""
    from mlaplan.serving.simulator.requests import HASH_TOKENS

    work = q.workload
    if not work.prefix_tokens:
        return o
    if work.prefix_tokens < HASH_TOKENS:
        raise MlaplanError(
            f"--prefix {work.prefix_tokens}: the simulator finds whole blocks of {HASH_TOKENS} tokens; "
            "expected at least one, or --no-simulate"
        )
    routing: Routing = "cache_aware" if work.prefix_groups is not None and work.prefix_routed else o.routing
    return replace(o, prefix=work.prefix_tokens, groups=work.prefix_groups or 1, routing=routing)


def too_long(o: Offered, q: Question, seed: int) -> list[str]:
    """What is to be said where the longest request has more tokens than the model has positions."""
    whole, most = o.longest(seed)[1], q.setting.model.max_position
    if whole <= most:
        return []
    return [f"the longest request has {whole:,} tokens, beyond the {most:,} positions of {q.setting.model.title}"]


def _words(one: Lengths) -> str:
    if one.kind == "uniform":
        return f"{one.a:,.0f} to {one.b:,.0f}"
    return f"{one.a:,.0f} (lognormal, deviation {one.b:g} of it)" if one.kind == "lognormal" else f"{one.a:,.0f}"
