"""Predictions of lone decode and prefill steps, through `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs.band import Spread, of_interval, together
from mlaplan.costs.engine import Interval
from mlaplan.explain import acceptance, explain
from mlaplan.validation.setting import asked

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
    from mlaplan.validation.points import Point


def step_value(point: Point) -> tuple[Interval, dict[str, float]]:
    """The predicted value of a step point in its metric, and the seconds of its operators."""
    from mlaplan.validation.predict import by_time

    q, st, _ = asked(point)
    w, tokens = point.workload, point.given.get("tokens_per_step")
    if point.measure == "prefill":
        found = explain(q, st, prefill_tokens=w["tokens"], served=False, tokens_given=tokens)
        assert found.prefill is not None
        step = found.prefill.step_s
        per_chip = w["tokens"] * st.dp / st.chips_per_replica
        return _rate(per_chip, step) if point.metric == "tok_s_chip" else step, by_time(found.prefill.ops)
    found = explain(q, st, decode_context=w["context"], served=False, tokens_given=tokens)
    assert found.decode is not None
    step = with_imbalance(point, found.decode)
    accepted = acceptance(q, st.mtp, tokens)
    terms = by_time(found.decode.ops)
    if point.metric == "step":
        return step, terms
    if point.metric == "tpot":
        return Interval(step.value / accepted.value, step.low / accepted.high, step.high / accepted.low), terms
    sequences = {"tok_s_chip": st.batch * st.dp / st.chips_per_replica, "tok_s": st.batch * st.dp, "tok_s_user": 1}
    of = sequences[point.metric]
    low, high = _rate(of * accepted.low, step), _rate(of * accepted.high, step)
    return Interval(of * accepted.value / step.value, low.low, high.high), terms


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
