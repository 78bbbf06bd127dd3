"""Bars and summaries on errors made up for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlaplan.costs.engine import Interval
from mlaplan.validation import bars
from mlaplan.validation.compare import ScoredDecision, ScoredRatio, decisions
from mlaplan.validation.points import published
from mlaplan.validation.predict import Prediction
from mlaplan.validation.schema import Decision, Ratio
from mlaplan.validation.score import Scored, cause, ratable, summary

POINT = next(p for p in published() if p.id == "sgl-h100-decode-2k")


def scored(error: float, *, half: float = 0.1, flags: tuple[str, ...] = (), **changed: object) -> Scored:
    value = (1 + error) * 100.0
    point = replace(POINT, value=100.0, **changed)  # type: ignore[arg-type]
    band = Interval(value, value * (1 - half), value * (1 + half))
    return Scored(point, Prediction(band, {"core": 1.0}, flags, {"core": 0.2, "link": 0.3}))


def test_a_summary_counts() -> None:
    found = summary([scored(0.1, half=0.2), scored(-0.3, id="far"), scored(0.0)])
    assert found is not None
    assert found.mape == pytest.approx(0.4 / 3)
    assert found.bias == pytest.approx(-0.2 / 3)
    assert found.median == pytest.approx(0.1)
    assert (found.worst, found.worst_id) == (pytest.approx(-0.3), "far")
    assert found.coverage == pytest.approx(2 / 3)
    assert summary([]) is None


def test_what_does_not_fit_has_no_error_but_misses() -> None:
    found = summary([scored(0.1), scored(9.0, flags=("does_not_fit",))])
    assert found is not None and found.count == 1
    bar = bars._end_to_end([scored(0.05)] * 8 + [scored(9.0, flags=("does_not_fit",))])
    assert bar.met is False
    assert "finds no room for the weights" in bar.why[0]


def test_a_bar_is_met_or_missed() -> None:
    met = bars.on_mape("x", "steps", "title", [scored(0.05), scored(-0.05)], 0.06)
    assert met.met is True and not met.why and met.ids
    missed = bars.on_mape("x", "steps", "title", [scored(0.05), scored(-0.25)], 0.06)
    assert missed.met is False and "-25%" in missed.why[0]
    assert bars.on_mape("x", "steps", "title", [], 0.06, note="nothing there").met is None


def test_a_cause_names_the_direction_and_the_doubt() -> None:
    assert "too fast" in cause(scored(0.3)) and "link, core" in cause(scored(0.3))
    assert "too slow" in cause(scored(-0.3))
    assert "too slow" in cause(scored(0.3, metric="tpot"))


def test_end_to_end_needs_nine_in_ten_within_thirty_percent() -> None:
    good = [scored(0.05)] * 9
    assert bars._end_to_end([*good, scored(0.5)]).met is True
    assert bars._end_to_end([*good[:8], scored(0.4), scored(0.5)]).met is False


def test_only_recent_held_out_points_count() -> None:
    assert bars.end_to_end(POINT)
    for changed in (
        {"use": "context"}, {"grade": "C"}, {"era": "2025-03"}, {"era": None}, {"chip": "ascend-910c-die"},
        {"set": "kernels"}, {"group": "silicon"},
    ):  # fmt: skip
        assert not bars.end_to_end(replace(POINT, **changed)), changed  # type: ignore[arg-type]


@pytest.mark.parametrize(("inside", "met"), [(7, False), (8, True), (10, False)])
def test_a_band_may_be_too_wide(inside: int, met: bool) -> None:
    points = [scored(0.05)] * inside + [scored(0.5)] * (10 - inside)
    assert bars._coverage(points).met is met


def ratio(measured: float, low: float, high: float, **changed: object) -> ScoredRatio:
    made = Ratio.model_validate(
        {"id": "r", "of": "a", "to": "b", "topic": "dcp", "grade": "A", "use": "holdout", **changed}
    )
    return ScoredRatio(made, measured, Interval((low * high) ** 0.5, low, high))


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (ratio(2.0, 1.9, 1.9), True),
        (ratio(2.0, 1.3, 1.3), False),  # more than 30 % off
        (ratio(1.1, 0.95, 0.95), False),  # wrong direction
        (ratio(1.01, 0.95, 0.95), True),  # no direction to get wrong
        (ratio(2.0, 1.0, 3.0, interval_only=True), True),
        (ratio(2.0, 2.1, 3.0, interval_only=True), False),
    ],
)
def test_ratios(found: ScoredRatio, met: bool) -> None:
    assert bars.on_ratios([found]).met is met


def test_context_ratios_are_not_rated() -> None:
    assert bars.on_ratios([ratio(2.0, 0.1, 0.1, use="context")]).met is None


def test_decisions_take_the_least() -> None:
    made = Decision.model_validate({"id": "d", "question": "q", "alternatives": ["a", "b"]})
    good, bad = ScoredDecision(made, "a", "a", 1.0), ScoredDecision(made, "a", "b", 0.9)
    assert bars.on_decisions([good]).met is True
    assert bars.on_decisions([good, bad]).met is False


def test_points_of_ratios_have_no_error_of_their_own() -> None:
    assert ratable([scored(0.1, use="ratio"), scored(0.2)]) == [scored(0.2)]


def test_two_batches_are_chosen_where_they_were_faster() -> None:
    found = {d.decision.id: d for d in decisions()}
    assert found["v3-h100-two-batch"].share == 1.0
