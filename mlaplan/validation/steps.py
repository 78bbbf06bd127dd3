"""Predictions of lone decode and prefill steps, through `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs.band import Spread, of_interval, together
from mlaplan.costs.engine import Interval
from mlaplan.explain import acceptance, explain
from mlaplan.validation.setting import asked
from mlaplan.validation.terms import by_time, doubts_of

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
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
    step = with_imbalance(point, found.decode)
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


def with_imbalance(point: Point, phase: Phase) -> Interval:
    """The step's band, widened by the engine's interval of how unevenly experts are chosen."""
    from dataclasses import replace

    if "imbalance" in point.given:
        return phase.step_s
    q, st, _ = asked(point)
    known = q.setting.engine.imbalance
    ends = [
        explain(
            replace(q, setting=replace(q.setting, engine=q.setting.engine.with_imbalance(f))), st,
            decode_context=point.workload["context"], served=False,
        ).decode
        for f in (known.low, known.high)
    ]  # fmt: skip
    value = phase.step_s.value
    assert ends[0] is not None and ends[1] is not None
    uneven = Spread(max(value - ends[0].step_s.value, 0.0), max(ends[1].step_s.value - value, 0.0))
    return together(of_interval(phase.step_s), uneven).around(value)


def _rate(amount: float, of: Interval) -> Interval:
    return Interval(amount / of.value, amount / of.high, amount / of.low)
