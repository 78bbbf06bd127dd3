"""Predictions of served points: the closed-loop client over the step times of the cost model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.costs import band
from mlaplan.costs.engine import Interval
from mlaplan.explain import acceptance, explain
from mlaplan.serving import client as clients
from mlaplan.serving.step_tables import StepTables, tables
from mlaplan.validation.setting import asked
from mlaplan.validation.steps import decode_step_s, routing_ends
from mlaplan.validation.terms import by_time, doubts_of

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.serving.client import Client, Habits, Result
    from mlaplan.strategy import Strategy
    from mlaplan.validation.points import Point
    from mlaplan.workload import Workload


class Served(NamedTuple):
    """A run at the middle of everything, and the relative spreads of what it is made of."""

    result: Result
    spreads: dict[str, band.Spread]  # of each metric, as fractions
    parts: Explanation
    ranks: int
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
    band_of_it = spread(value, found.spreads[kind_of(point.metric)])
    return band_of_it, _terms(found, point.metric), flags, doubts_of(phase.ops)


_RUNS: dict[str, Served] = {}


def _run(point: Point) -> Served:
    """The client's run for a point; the metrics of one run share it."""
    key = repr((point.chip, point.model, point.engine, point.weights, point.strategy, point.workload, point.given))
    if key not in _RUNS:
        q, st, s = asked(point)
        w = point.workload
        _RUNS[key] = serve(
            q, st, lag=float(s.profile.scheduler.lag_steps), tokens=point.given.get("tokens_per_step"),
            requests=w.get("requests"), shortest=w.get("shortest", clients.SHORTEST),
            whole_prompts=bool(point.given.get("whole_prompts")),
        )  # fmt: skip
    return _RUNS[key]


def serve(
    q: Question, st: Strategy, *, lag: float = 1.0, tokens: float | None = None, requests: int | None = None,
    shortest: float = clients.SHORTEST, whole_prompts: bool = False,
) -> Served:  # fmt: skip
    """Runs the client for a strategy, and again at both ends of everything that is an interval."""
    work = q.workload
    assert work.concurrency is not None
    ranks = st.dp * st.replicas
    per_rank = max(-(-work.concurrency // ranks), 1)
    mean = mean_workload(work, shortest)
    at, kv_tokens = tables(q.setting, replace(st, batch=per_rank), mean, q.budget, per_rank)
    one = clients.Client(
        work.isl,
        work.osl,
        per_rank,
        requests and max(requests // ranks, 1),
        shortest,
        work.prefix_tokens / work.isl,
    )
    accepted = acceptance(q, st.mtp, tokens)
    habits = replace(habits_of(q, st, kv_tokens, lag, accepted.value), whole_prompts=whole_prompts)
    middle = clients.run(one, at, habits)
    batch = max(round(middle.mean_batch), 1)
    at_batch = replace(q, workload=replace(mean, concurrency=None))
    parts = explain(at_batch, replace(st, batch=batch), tokens_given=tokens)
    spreads = _spreads(q, st, one, at, habits, middle, parts, accepted)
    edge = per_rank * (work.isl + work.osl) > kv_tokens
    return Served(middle, spreads, parts, ranks, st, edge)


def mean_workload(work: Workload, shortest: float) -> Workload:
    """The workload with the mean of the lengths that the client draws."""
    share = (1.0 + shortest) / 2
    isl, osl = max(round(work.isl * share), 1), max(round(work.osl * share), 1)
    return replace(work, isl=isl, osl=osl, prefix_tokens=min(round(work.prefix_tokens * share), isl - 1))


def habits_of(q: Question, st: Strategy, kv_tokens: int, lag: float, tokens_per_round: float) -> Habits:
    """How the engine schedules one attention-DP rank."""
    e = q.setting.engine
    return clients.Habits(
        mixed=e.mixed_prefill,
        chunk=st.prefill_chunk,
        slots=4096,
        kv_tokens=kv_tokens,
        lag_steps=round(lag),
        front_end_s=float(e.front_end_s),
        front_end_per_token_s=float(e.front_end_per_token_s),
        tokens_per_round=tokens_per_round,
        queries=1 + st.mtp,
        balance=float(e.prefill_balance) if st.dp > 1 else 1.0,
    )


def kind_of(metric: str) -> str:
    return metric if metric in ("ttft", "tpot") else "rate"


def metric_value(found: Served, metric: str) -> float:
    """A metric of the whole deployment from the run of one rank."""
    r, chips = found.result, found.strategy.devices
    return {
        "ttft": r.ttft_s,
        "tpot": r.tpot_s,
        "tok_s": r.output_tok_s * found.ranks,
        "tok_s_chip": r.output_tok_s * found.ranks / chips,
        "tok_s_user": 1.0 / r.tpot_s if r.tpot_s else 0.0,
        "total_tok_s_chip": r.total_tok_s * found.ranks / chips,
    }[metric]


def spread(value: float, of: band.Spread) -> Interval:
    """The band of a value from fractions down and up."""
    return Interval(value, value * max(1.0 - of.down, 0.1), value * (1.0 + of.up))


def _spreads(
    q: Question, st: Strategy, one: Client, at: StepTables, habits: Habits, middle: Result, parts: Explanation,
    accepted: Interval,
) -> dict[str, band.Spread]:  # fmt: skip
    """Relative change of each metric when one source of doubt goes to either end, added in squares."""
    assert parts.decode is not None and parts.prefill is not None
    e = q.setting.engine
    d, p = parts.decode.step_s, parts.prefill.step_s
    routed = decode_step_s(q, parts.strategy, q.workload.mean_context)
    runs: list[tuple[Result, Result]] = []

    def both(low: tuple[StepTables, Habits], high: tuple[StepTables, Habits]) -> None:
        runs.append((clients.run(one, *low), clients.run(one, *high)))

    def decode(f: float) -> tuple[StepTables, Habits]:
        return at.scaled(decode=f), habits

    def front(name: str) -> tuple[StepTables, Habits]:
        a, b = getattr(e.front_end_s, name), getattr(e.front_end_per_token_s, name)
        return at, replace(habits, front_end_s=a, front_end_per_token_s=b)

    both(decode(d.low / d.value), decode(d.high / d.value))
    both((at.scaled(prefill=p.low / p.value), habits), (at.scaled(prefill=p.high / p.value), habits))
    both(front("low"), front("high"))
    both((at, habits), (at, replace(habits, cold_s=band.whole_step().cold_start_s)))
    for fast, slow in routing_ends(q, parts.strategy, q.workload.mean_context):
        both(decode(min(fast / routed, 1.0)), decode(max(slow / routed, 1.0)))
    if accepted.high > accepted.low:
        ends = [replace(habits, tokens_per_round=a) for a in (accepted.high, accepted.low)]
        both((at, ends[0]), (at, ends[1]))
    if st.dp > 1 and e.prefill_balance.high > e.prefill_balance.low:
        both(
            (at, replace(habits, balance=e.prefill_balance.high)), (at, replace(habits, balance=e.prefill_balance.low))
        )
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
