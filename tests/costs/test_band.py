"""Error bands: residuals of one fit add up, different fits add in squares."""

import math

import pytest

from mlaplan.costs import band
from mlaplan.costs.engine import Interval, exactly
from mlaplan.costs.machine import Op


def test_errors_of_one_fit_add():
    ops = [Op("a", "gemm.bf16", 3.0, residual=0.1), Op("b", "gemm.bf16", 1.0, residual=0.1)]
    # 1.6 x 0.1 x 4 s
    assert band.of_operators(ops) == pytest.approx((0.64, 0.64))


def test_errors_of_different_fits_add_in_squares():
    ops = [Op("a", "gemm.bf16", 3.0, residual=0.1), Op("b", "link", 4.0, residual=0.1)]
    assert band.of_operators(ops) == pytest.approx((1.6 * 0.5, 1.6 * 0.5))


def test_a_release_moves_a_class_of_operators_alike():
    known = band.whole_step().releases
    ops = [
        Op("a", "gemm.bf16", 3.0), Op("b", "bmm.bf16", 1.0), Op("c", "grouped_gemm_ep.fp8_block", 2.0),
        Op("d", "elementwise", 9.0), Op("e", "host", 9.0),
    ]  # fmt: skip
    half = 1.6 * math.hypot(4.0 * known["gemm"], 2.0 * known["experts"])
    assert band.of_releases(ops) == pytest.approx((half, half))


def test_eighty_percent_of_a_normal_error():
    # mean absolute error sqrt(2/pi) sigma; 80 % lie within 1.2816 sigma
    assert pytest.approx(1.2816 / math.sqrt(2 / math.pi), abs=0.01) == band.EIGHTY_PERCENT


def test_intervals_keep_their_sides():
    assert band.of_interval(Interval(5.0, 4.0, 8.0), 2.0) == (2.0, 6.0)
    assert band.together(band.Spread(3.0, 6.0), band.Spread(4.0, 8.0)) == (5.0, 10.0)
    assert band.relative(Interval(4.0, 3.0, 8.0)) == (0.25, 1.0)
    assert band.relative(exactly(0.0)) == (0.0, 0.0)
    assert band.scaled(band.Spread(0.5, 1.0), 4.0) == (2.0, 4.0)


def test_a_time_is_never_negative():
    assert band.Spread(9.0, 9.0).around(5.0) == Interval(5.0, 0.5, 14.0)


def test_a_rate_falls_as_its_time_rises():
    assert band.inverse(100.0, Interval(2.0, 1.0, 4.0)) == Interval(100.0, 50.0, 200.0)
    assert band.inverse(100.0, exactly(0.0)) == exactly(100.0)
