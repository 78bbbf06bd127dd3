"""From a plan to the servers that the simulator runs: step grids, cache, habits of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from mlaplan.costs import kv_transfer, phases
from mlaplan.costs.table import Table
from mlaplan.errors import MlaplanError
from mlaplan.explain import explain
from mlaplan.pricing import acceptance
from mlaplan.serving.simulator.server import Fleet, Pool, Server
from mlaplan.serving.simulator.tables import priced
from mlaplan.serving.steady import acceptance_from
from mlaplan.strategy import to_table
from mlaplan.workload import Workload

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.requests import Requests
    from mlaplan.serving.simulator.server import Routing
    from mlaplan.serving.simulator.tables import StepGrid
    from mlaplan.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Longest:
    """How far step grids must reach. [tokens]"""

    prompt: int
    context: int

    @classmethod
    def of(cls, requests: Requests) -> Longest:
        """Of the requests themselves."""
        whole = requests.prompt + requests.output
        return cls(int(requests.prompt.max(initial=1)), int(whole.max(initial=2)))


def server_of(
    q: Question, st: Strategy, longest: Longest, *, tokens_given: float | None = None,
    role: Literal["all", "prefill", "decode"] = "all", slots: int | None = None,
) -> Server:  # fmt: skip
    """One replica of a strategy. Slots are the strategy's batch unless given.

    The memory that prefill workspace and activations take is the plan's, whatever lengths the requests have: an
    engine sizes them by its limits, which the plan states. role: a prefill server drafts nothing; the front end is
    that of the server which sees the request first.
    """
    chosen = replace(st, replicas=1, batch=slots or st.batch)
    grid, kv_tokens = priced(q.setting, chosen, q.budget, most_prompt=longest.prompt, most_context=longest.context)
    if kv_tokens < 1:
        raise MlaplanError(f"{st.label()}: the cache holds not one token; nothing can be served")
    e, sched = q.setting.engine, q.profile.scheduler
    drafts = 0 if role == "prefill" else st.mtp
    tokens = acceptance(q, drafts, tokens_given).value
    return Server(
        steps=grid,
        mixed=e.mixed_prefill,
        chunk=st.prefill_chunk,
        slots=chosen.batch,
        kv_tokens=kv_tokens,
        block_tokens=st.block_size * st.dcp,
        ranks=st.dp,
        set_aside=1.0 if sched.set_aside is None else float(sched.set_aside),
        drafts=drafts,
        acceptance=acceptance_from(tokens, drafts) if drafts else 0.0,
        lag_steps=round(float(sched.lag_steps)),
        front_end_s=0.0 if role == "decode" else float(e.front_end_s),
        front_end_per_token_s=0.0 if role == "decode" else float(e.front_end_per_token_s),
    )


def fleet_of(
    q: Question, st: Strategy, longest: Longest, *, tokens_given: float | None = None,
    routing: Routing = "least_loaded",
) -> Fleet:  # fmt: skip
    """All replicas of a plan as one pool."""
    return Fleet(Pool(server_of(q, st, longest, tokens_given=tokens_given), st.replicas, routing))


def uniform_requests(isl: int, osl: int, count: int, rate: float | None = None, seed: int = 0) -> Requests:
    """Equal requests, arriving as a Poisson process where a rate is given: what the steady state speaks of."""
    from mlaplan.serving.simulator.requests import Requests

    gaps = np.random.default_rng(seed).exponential(1.0, count)
    arrival = np.cumsum(gaps) / rate if rate else np.zeros(count)
    return Requests(arrival, np.full(count, isl, dtype=np.int64), np.full(count, osl, dtype=np.int64))


def split_fleet(
    q: Question, st: Strategy, prefill_q: Question, prefill_st: Strategy, longest: Longest, *,
    tokens_given: float | None = None, routing: Routing = "least_loaded", sent_s: Callable[[int], float] | None = None,
) -> Fleet:  # fmt: skip
    """Prompts on the replicas of one plan, outputs on those of another, the cache sent between them.

    sent_s: exposed seconds of the cache of so many tokens, `transfer` unless given.
    """
    serve = server_of(q, st, longest, tokens_given=tokens_given, role="decode")
    prefill = server_of(prefill_q, prefill_st, longest, role="prefill")
    return Fleet(
        Pool(serve, st.replicas, routing),
        Pool(prefill, prefill_st.replicas, routing),
        sent_s or transfer(q, st, prefill_q),
    )


def transfer(q: Question, st: Strategy, sender: Question) -> Callable[[int], float]:
    """Seconds to receive the cache of so many tokens: latency + tokens x bytes per token and chip / link.

    Every receiving chip gets its own part over its own link, the slower of both sides' scale-out, all of it after the
    prompt is done: nothing overlaps with the computation of layers.
    """
    links = []
    for one in (q, sender):
        if one.setting.chip.scale_out is None:
            raise MlaplanError(f"{one.setting.chip.name} has no network to hand a cache over")
        links.append(one.setting.chip.scale_out)
    rate = min(float(link.bandwidth) for link in links)
    latency = max(0.0 if link.latency is None else float(link.latency) for link in links)
    row = Table(to_table([replace(st, replicas=1)]))
    columns = phases.decode(q.setting, row, q.budget.max_context, q.budget, np.zeros(1), detail=True)
    per_token = float(np.ravel(columns["kv_bytes_per_token"])[0])
    return lambda tokens: latency + tokens * per_token / rate


@dataclass(frozen=True, slots=True)
class Sent:
    """The transfer that a split was planned with, for prompts of any length: bytes, parts and prefill go with tokens.

    time_s: of the whole cache of `tokens`, `latency_s` of it before the first byte; `parts` go while the prompt is
    computed in `prefill_s`, none where all is sent after it.
    """

    tokens: int
    time_s: float
    latency_s: float
    parts: int
    prefill_s: float

    def __call__(self, tokens: int) -> float:
        share = tokens / self.tokens
        time = self.latency_s + (self.time_s - self.latency_s) * share
        if not self.parts:
            return time
        return float(kv_transfer.exposed_s(time, self.prefill_s * share, max(round(self.parts * share), 1)))


def at_ends(q: Question, st: Strategy, server: Server, isl: int, osl: int, tokens_given: float | None) -> list[Server]:
    """The server with everything unknown at its fast end, and at its slow one.

    Decode and prefill steps at the ends of their 80 % bands, the front end and the tokens of a draft at those of their
    intervals, all at once: the two runs enclose what single doubts do.
    """
    mean = replace(q, workload=Workload(isl, osl))
    e = explain(mean, replace(st, replicas=1, batch=max(st.batch, 1)), tokens_given=tokens_given)
    assert e.decode is not None
    assert e.prefill is not None
    d, p, engine = e.decode.step_s, e.prefill.step_s, q.setting.engine
    accepted = acceptance(q, server.drafts, tokens_given)
    steps = cast("StepGrid", server.steps)
    out = []
    for end, drafts in (("low", accepted.high), ("high", accepted.low)):
        fronts = (engine.front_end_s, engine.front_end_per_token_s)
        front = [getattr(one, end) if server.front_end_s else 0.0 for one in fronts]
        out.append(replace(
            server, steps=steps.scaled(getattr(d, end) / d.value, getattr(p, end) / p.value), front_end_s=front[0],
            front_end_per_token_s=front[1],
            acceptance=acceptance_from(drafts, server.drafts) if server.drafts else 0.0,
        ))  # fmt: skip
    return out


def without_prefix_cache(fleet: Fleet) -> Fleet:
    """The same fleet, keeping no block of a finished prompt."""

    def pool(p: Pool) -> Pool:
        return replace(p, server=replace(p.server, prefix_cache=False))

    return replace(fleet, serve=pool(fleet.serve), prefill=pool(fleet.prefill) if fleet.prefill else None)
