"""Options of a load of requests that `size` and `simulate` share: lengths, a trace, arrivals, limits, routing."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mlaplan.cli.options import MOST


class Routing(StrEnum):
    """Which rank gets a request."""

    round_robin = "round-robin"
    least_loaded = "least-loaded"
    cache_aware = "cache-aware"


Trace = Annotated[
    str | None,
    typer.Option("--trace", metavar="FILE", help="Requests as JSON lines in Mooncake's format; chat: one of ours."),
]
Synthetic = Annotated[
    int | None,
    typer.Option("--synthetic", min=1, max=MOST, metavar="N", help="Draw N requests of conversations."),
]
Isl = Annotated[
    str | None,
    typer.Option("--isl", metavar="DIST", help="Prompt tokens: 4k, uniform:SHORTEST:LONGEST, lognormal:MEAN:CV."),
]
Osl = Annotated[str | None, typer.Option("--osl", metavar="DIST", help="Output tokens, likewise.")]
Burstiness = Annotated[
    float | None,
    typer.Option("--burstiness", metavar="X", help="Shape of gamma gaps: 1 is Poisson, less is burstier."),
]
TtftLimit = Annotated[
    str | None, typer.Option("--ttft", metavar="LIMIT", help="Time to the first token: p95:2s, or 2s for the mean.")
]
TpotLimit = Annotated[
    str | None, typer.Option("--tpot", metavar="LIMIT", help="Time per output token: p95:50ms, or 50ms.")
]
Route = Annotated[Routing, typer.Option("--routing", help="Which attention-DP rank or replica gets a request.")]
PrefixCache = Annotated[
    bool, typer.Option("--prefix-cache/--no-prefix-cache", help="Keep the blocks of prompts for reuse.")
]
