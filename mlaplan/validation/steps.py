"""Predictions of lone decode and prefill steps, through `explain`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlaplan.costs.band import Spread, of_interval, together
from mlaplan.costs.engine import Interval
from mlaplan.explain import explain
from mlaplan.pricing import acceptance
from mlaplan.validation.setting import asked
from mlaplan.validation.terms import by_time, doubts_of

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy
    from mlaplan.validation.points import Point


def step_value(point: Point) -> tuple[Interval, dict[str, float], tuple[str, ...], dict[str, float]]:
    """The predicted value of a step point in its metric, seconds of its operators, flags, doubts of its operators."""
    value, phase, fits = _value(point)
    return value, by_time(phase.ops), () if fits else ("does_not_fit",), doubts_of(phase.ops)


def _value(point: Point) -> tuple[Interval, Phase, bool]:

    q, st, _ = asked(point)
    w, tokens = point.workload, point.given.get("tokens_per_step")
    if point.measure == "prefill":
        found = explain(q, st, prefill_tokens=w["tokens"], served=False, tokens_given=tokens)
        assert found.prefill is not None
        step = found.prefill.step_s
        per_chip = w["tokens"] * st.dp / st.chips_per_replica
        value = _rate(per_chip, step) if point.metric == "tok_s_chip" else step
        return value, found.prefill, found.memory.kv_tokens > 0
    found = explain(q, st, decode_context=w["context"], served=False, tokens_given=tokens)
    assert found.decode is not None
    step = with_routing(point, found.decode)
    accepted = acceptance(q, st.mtp, tokens)
    room = found.memory.kv_tokens > 0
    if point.metric == "step":
        return step, found.decode, room
    if point.metric == "tpot":
        per_token = Interval(step.value / accepted.value, step.low / accepted.high, step.high / accepted.low)
        return per_token, found.decode, room
    sequences = {"tok_s_chip": st.batch * st.dp / st.chips_per_replica, "tok_s": st.batch * st.dp, "tok_s_user": 1}
    of = sequences[point.metric]
    low, high = _rate(of * accepted.low, step), _rate(of * accepted.high, step)
    return Interval(of * accepted.value / step.value, low.low, high.high), found.decode, room


def with_routing(point: Point, phase: Phase) -> Interval:
    """The step's band, widened by what is unknown about how experts are chosen."""
    q, st, _ = asked(point)
    value = phase.step_s.value
    ends = routing_ends(q, st, point.workload["context"])
    spreads = [Spread(max(value - fast, 0.0), max(slow - value, 0.0)) for fast, slow in ends]
    return together(of_interval(phase.step_s), *spreads).around(value)


def routing_ends(q: Question, st: Strategy, context: int) -> list[tuple[float, float]]:
    """Decode steps at both ends of each thing unknown about routing, the faster first. [s]"""

    def step_s(engine: EngineCosts) -> float:
        return decode_step_s(replace(q, setting=replace(q.setting, engine=engine)), st, context)

    return [(step_s(fast), step_s(slow)) for fast, slow in q.setting.engine.routing_ends()]


def decode_step_s(q: Question, st: Strategy, context: int) -> float:
    found = explain(q, st, decode_context=context, served=False).decode
    assert found is not None
    return found.step_s.value


def _rate(amount: float, of: Interval) -> Interval:
    return Interval(amount / of.value, amount / of.high, amount / of.low)
