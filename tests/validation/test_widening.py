"""The widening of step bands comes from points that gate nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlaplan.costs import band
from mlaplan.costs.engine import Interval
from mlaplan.validation import widening
from mlaplan.validation.predict import Prediction
from mlaplan.validation.score import Scored


def scored(measured: float) -> Scored:
    point = replace(widening.points()[0], value=measured)
    return Scored(point, Prediction(Interval(100.0, 90.0, 120.0)))


def test_only_context_points_set_it() -> None:
    points = widening.points()
    assert len(points) > 20
    assert {p.use for p in points} == {"context"}
    assert not [p.id for p in points if p.fitted]


def test_the_factor_just_holds_eighty_percent() -> None:
    assert widening.needed(scored(110.0)) == pytest.approx(0.5)
    assert widening.needed(scored(80.0)) == pytest.approx(2.0)
    inside = [scored(100.0)] * 7
    assert widening.factor([*inside, scored(100.0), scored(200.0), scored(200.0)]) == 1.0
    assert widening.factor([*inside, scored(124.0), scored(200.0), scored(200.0)]) == pytest.approx(1.2)
    assert widening.factor([]) == 1.0


def test_the_file_says_where_its_numbers_are_from() -> None:
    from mlaplan.specs.source import read

    data = read(band.FILE).data
    known = band.whole_step()
    assert known.widening >= 1.0 and 0.0 < known.sum_of_parts < 0.1
    assert all(data[name]["source"] for name in ("sum_of_parts", "widening"))


def test_a_step_doubts_more_than_its_parts() -> None:
    part = band.Spread(0.1, 0.2)
    whole = band.of_step(1.0, part)
    known = band.whole_step()
    extra = band.EIGHTY_PERCENT * known.sum_of_parts
    assert whole.up == pytest.approx(known.widening * (0.2**2 + extra**2) ** 0.5)
    assert whole.down > part.down
