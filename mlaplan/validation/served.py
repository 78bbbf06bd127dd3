"""Predictions of served points: the closed-loop client on the simulator, over the step times of the cost model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from mlaplan.costs import band
from mlaplan.costs.engine import Interval
from mlaplan.explain import explain
from mlaplan.pricing import acceptance
from mlaplan.serving import client as clients
from mlaplan.serving.steady import acceptance_from
from mlaplan.simulation import Longest, server_of
from mlaplan.validation.setting import asked
from mlaplan.validation.steps import decode_step_s, routing_ends
from mlaplan.validation.terms import by_time, doubts_of

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.serving.client import Client, Result
    from mlaplan.serving.simulator.requests import Requests
    from mlaplan.serving.simulator.server import Server
    from mlaplan.serving.simulator.tables import StepGrid
    from mlaplan.strategy import Strategy
    from mlaplan.validation.points import Point
    from mlaplan.workload import Workload


LEAST = 0.1  # of a time: it has no negative tail


class Served(NamedTuple):
    """A run at the middle of everything, and the relative spreads of what it is made of."""

    result: Result  # of one replica
    spreads: dict[str, band.Spread]  # of each metric, as fractions
    parts: Explanation
    strategy: Strategy
    kv_edge: bool  # requests wait for room in the cache


def served_value(point: Point) -> tuple[Interval, dict[str, float], tuple[str, ...], dict[str, float]]:
    """The predicted value of a served point in its metric, seconds of its parts, flags, doubts of its parts."""
    found = _run(point)
    value = metric_value(found, point.metric)
    flags = ("kv_edge",) if found.kv_edge else ()
    if found.parts.memory.kv_tokens <= 0:
        flags = ("does_not_fit",)
    phase = found.parts.prefill if point.metric == "ttft" else found.parts.decode
    assert phase is not None
    band_of_it = spread(value, found.spreads.get(kind_of(point.metric), band.Spread(0.0, 0.0)))
    return band_of_it, _terms(found, point.metric), flags, doubts_of(phase.ops)


_RUNS: dict[str, Served] = {}


def _run(point: Point) -> Served:
    """The client's run for a point; the metrics of one run share it."""
    banded = point.use != "ratio"  # of the others only the value counts
    about = (point.chip, point.model, point.engine, point.release, point.weights, point.figures)
    key = repr((about, point.strategy, point.workload, point.given, banded))
    if key not in _RUNS:
        q, st, _ = asked(point)
        w, given = point.workload, point.given
        _RUNS[key] = serve(
            q, st, tokens=given.get("tokens_per_step"), requests=w.get("requests"),
            shortest=w.get("shortest", clients.SHORTEST), whole_prompts=bool(given.get("whole_prompts")),
            hold_rounds=given.get("hold_rounds", 0), cold=given.get("warmed") is False, banded=banded,
        )  # fmt: skip
    return _RUNS[key]


def serve(
    q: Question, st: Strategy, *, tokens: float | None = None, requests: int | None = None,
    shortest: float = clients.SHORTEST, whole_prompts: bool = False, hold_rounds: int = 0, cold: bool = False,
    banded: bool = True,
) -> Served:  # fmt: skip
    """Runs the client for a strategy and, `banded`, again at both ends of everything that is an interval.

    cold: the client is known not to have warmed the server up.
    """
    work = q.workload
    assert work.concurrency is not None
    share = max(-(-work.concurrency // st.replicas), 1)  # requests in flight of one replica, and of one of its ranks
    per_rank = -(-share // st.dp)
    sent = requests and max(requests // st.replicas, 1)
    one = clients.Client(work.isl, work.osl, share, sent, shortest, work.prefix_tokens / work.isl)
    queue = one.sends()
    server = server_of(q, replace(st, batch=per_rank), Longest.of(queue), tokens_given=tokens)
    late_s = band.whole_step().cold_start_s.value if cold else 0.0
    server = replace(server, whole_prompts=whole_prompts, hold_rounds=hold_rounds, cold_s=late_s)
    middle = clients.run(one, server, queue)
    at_batch = replace(q, workload=replace(mean_workload(work, shortest), concurrency=None))
    parts = explain(at_batch, replace(st, batch=max(round(middle.mean_batch), 1)), tokens_given=tokens)
    accepted = acceptance(q, st.mtp, tokens)
    spreads = _spreads(q, one, queue, server, middle, parts, accepted) if banded else {}
    edge = per_rank * (work.isl + work.osl) > server.kv_tokens
    return Served(middle, spreads, parts, st, edge)


def mean_workload(work: Workload, shortest: float) -> Workload:
    """The workload with the mean of the lengths that the client draws."""
    share = (1.0 + shortest) / 2
    isl, osl = max(round(work.isl * share), 1), max(round(work.osl * share), 1)
    return replace(work, isl=isl, osl=osl, prefix_tokens=min(round(work.prefix_tokens * share), isl - 1))


def kind_of(metric: str) -> str:
    return metric if metric in ("ttft", "tpot") else "rate"


def metric_value(found: Served, metric: str) -> float:
    """A metric of the whole deployment from the run of one replica."""
    r, st = found.result, found.strategy
    return {
        "ttft": r.ttft_s,
        "tpot": r.tpot_s,
        "tok_s": r.output_tok_s * st.replicas,
        "tok_s_chip": r.output_tok_s / st.chips_per_replica,
        "tok_s_user": 1.0 / r.tpot_s if r.tpot_s else 0.0,
        "total_tok_s_chip": r.total_tok_s / st.chips_per_replica,
    }[metric]


def spread(value: float, of: band.Spread) -> Interval:
    """The band of a value from fractions down and up."""
    return Interval(value, value * max(1.0 - of.down, LEAST), value * (1.0 + of.up))


def _spreads(
    q: Question, one: Client, queue: Requests, server: Server, middle: Result, parts: Explanation, accepted: Interval
) -> dict[str, band.Spread]:
    """Relative change of each metric when one source of doubt goes to either end, added in squares."""
    assert parts.decode is not None and parts.prefill is not None
    e, context = q.setting.engine, q.workload.mean_context
    d, p = parts.decode.step_s, parts.prefill.step_s
    routed = decode_step_s(q, parts.strategy, context)
    steps = cast("StepGrid", server.steps)

    def scaled(decode: float = 1.0, prefill: float = 1.0) -> Server:
        return replace(server, steps=steps.scaled(decode, prefill))

    def front(name: str) -> Server:
        a, b = getattr(e.front_end_s, name), getattr(e.front_end_per_token_s, name)
        return replace(server, front_end_s=a, front_end_per_token_s=b)

    # what makes decode slower or faster as a whole is one doubt, put together before it runs
    routing = [band.Spread(max(1 - fast / routed, 0.0), max(slow / routed - 1, 0.0))
               for fast, slow in routing_ends(q, parts.strategy, context)]  # fmt: skip
    decode = band.together(band.relative(d), *routing)
    ends = [
        (scaled(decode=max(1 - decode.down, LEAST)), scaled(decode=1 + decode.up)),
        (scaled(prefill=p.low / p.value), scaled(prefill=p.high / p.value)),
        (front("low"), front("high")),
        (replace(server, cold_s=0.0), replace(server, cold_s=band.whole_step().cold_start_s.high)),
    ]
    if accepted.high > accepted.low:
        several = [acceptance_from(tokens, server.drafts) for tokens in (accepted.high, accepted.low)]
        ends.append((replace(server, acceptance=several[0]), replace(server, acceptance=several[1])))
    runs = [[middle if end == server else clients.run(one, end, queue) for end in pair] for pair in ends]
    out = {}
    for kind, field in (("ttft", "ttft_s"), ("tpot", "tpot_s"), ("rate", "output_tok_s")):
        value = getattr(middle, field)
        found = []
        for pair in runs:
            changes = [getattr(r, field) / value - 1 for r in pair]
            found.append(band.Spread(max(-min(changes), 0.0), max(max(changes), 0.0)))
        out[kind] = band.together(*found)
    return out


def _terms(found: Served, metric: str) -> dict[str, float]:
    """Seconds of the parts behind a metric: operators of a decode round, the prefills between rounds."""
    r, parts = found.result, found.parts
    assert parts.decode is not None and parts.prefill is not None
    if metric == "ttft":
        return {"prefill": float(parts.prefill.step_s.value), "wait": max(r.ttft_s - parts.prefill.step_s.value, 0.0)}
    terms = by_time(parts.decode.ops)
    rest = r.tpot_s * (parts.served.tokens_per_step.value if parts.served else 1.0) - parts.decode.step_s.value
    terms["prefill_between"] = max(rest, 0.0)
    return dict(sorted(terms.items(), key=lambda item: -item[1]))
