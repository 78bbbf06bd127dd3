"""The closed-loop benchmark client: what it sends, and what its means are of the run that the simulator makes of it.

Published serving figures come from a client that starts `concurrency` requests at once, replaces each finished
one until `requests` are sent, and averages over all of them. So the burst at the start counts in TTFT, prefills
that stall or stretch decode count in TPOT, and the requests that drain at the end run in smaller batches.

Assumptions, where a source does not say otherwise:
  - ten requests for each one in flight; lengths uniform from 80 to 100 % of the nominal ones, drawn here from a
    low-discrepancy sequence, so that a run has no luck in it; means over requests, not medians
  - a cached prefix is the same share of every prompt, and each request brings its own
  - the front end delays each request by a constant and a time per prompt token, requests beside each other
  - kernels are warm; `Server.cold_s` holds the first step up where they may not be
What the engine does with the requests is the simulator's: see `simulator`.

Source: the clients of vLLM (`vllm bench serve`) and SGLang (`sglang.bench_serving`) with a concurrency limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.serving.simulator.requests import Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.serving.simulator.server import Fleet, Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mlaplan.serving.simulator.outcome import Outcome
    from mlaplan.serving.simulator.server import Server

WAVES = 10  # requests sent for each one in flight
SHORTEST = 0.8  # of the nominal length; uniform from there to all of it
GOLDEN, PLASTIC = 0.6180339887498949, 0.7548776662466927  # steps of the low-discrepancy sequences


@dataclass(frozen=True, slots=True)
class Client:
    """What the client sends to one replica."""

    isl: int
    osl: int
    concurrency: int
    requests: int | None = None
    shortest: float = SHORTEST
    prefix_share: float = 0.0  # of each prompt, found in the cache

    def sends(self) -> Requests:
        """Its requests in the order they are sent."""
        count = self.requests or WAVES * self.concurrency

        def drawn(nominal: int, step: float) -> NDArray[np.int64]:
            at = np.fmod(0.5 + np.arange(count) * step, 1.0)
            tokens = np.rint(nominal * (self.shortest + (1.0 - self.shortest) * at))
            return np.maximum(tokens, 1).astype(np.int64)

        prompt = drawn(self.isl, GOLDEN)
        cached = np.rint(prompt * self.prefix_share).astype(np.int64) if self.prefix_share else None
        return Requests(np.zeros(count), prompt, drawn(self.osl, PLASTIC), cached=cached)


@dataclass(frozen=True, slots=True)
class Result:
    """Means over the requests of one replica; rates over the whole run."""

    ttft_s: float
    tpot_s: float
    output_tok_s: float
    total_tok_s: float
    mean_batch: float  # sequences of a rank in a decode round, weighted by time


def run(client: Client, server: Server, requests: Requests | None = None) -> Result:
    """What the client would report of one replica; requests: `client.sends()` where they are known already."""
    sent = client.sends() if requests is None else requests
    return _result(simulate(sent, Fleet(Pool(server)), concurrency=client.concurrency))


def _result(o: Outcome) -> Result:
    several = o.output > 1
    return Result(
        ttft_s=float(np.mean(o.ttft_s)),
        tpot_s=float(np.mean(o.tpot_s[several])) if several.any() else float("nan"),
        output_tok_s=o.output_tok_s,
        total_tok_s=o.total_tok_s,
        mean_batch=o.serve.mean_batch,
    )


__all__ = ["Client", "Result", "run"]
