"""Cleaning of measured rows."""

import numpy as np
import pandas as pd
import pytest

from mlaplan.calibration.experts import active_experts
from mlaplan.calibration.rows import Rows, gathered, host_bound, without_impossible, without_spikes


def rows(seconds, **columns):
    return Rows("x", "bf16", {n: np.array(c, float) for n, c in columns.items()}, np.array(seconds, float), "made up")


def test_repeated_shapes_become_their_median_in_order():
    frame = pd.DataFrame({"m": [2, 1, 2, 2], "n": [1, 1, 1, 1]})
    found = gathered("x", "bf16", frame, pd.Series([3.0, 9.0, 1.0, 2.0]), "s")
    assert found.columns["m"].tolist() == [1, 2]
    assert found.seconds.tolist() == [9.0, 2.0]
    assert found.dropped == {"repeated shapes": 2}


def test_a_stall_is_dropped_also_where_two_stand_side_by_side():
    found = without_spikes(rows([1, 1.1, 225, 170, 1.4, 2], context=[1, 2, 3, 4, 5, 6]), ("context",))
    assert found.seconds.tolist() == [1, 1.1, 1.4, 2]
    assert found.dropped == {"spikes": 2}


def test_a_slow_call_of_another_shape_is_no_stall():
    measured = rows([1, 2, 100, 200], context=[1, 2, 1, 2], heads=[1, 1, 128, 128])
    assert len(without_spikes(measured, ("context",))) == 4


def test_calls_faster_than_memory_were_served_from_the_cache():
    found = without_impossible(rows([1.0, 1.0], m=[1, 2]), np.array([0.9, 1.1]), 1.0)
    assert found.columns["m"].tolist() == [1]
    assert found.dropped_count == 1


def test_a_table_bound_by_the_host_shows_in_its_fastest_call():
    assert host_bound(rows(np.full(200, 55e-6), m=range(200)))
    assert not host_bound(rows([*np.full(200, 55e-6), 3e-6], m=range(201)))
    assert not host_bound(rows([55e-6], m=[1])), "one slow call says nothing of the host"


def test_the_halves_are_the_same_every_time():
    measured = rows(np.ones(1000), m=range(1000))
    half = measured.for_fit
    assert (half == rows(np.ones(1000), m=range(1000)).for_fit).all()
    assert 400 < half.sum() < 600


@pytest.mark.parametrize(("tokens", "low", "high"), [(1, 8, 8), (4, 28, 32), (64, 165, 195), (4096, 230, 256)])
def test_a_skewed_draw_touches_fewer_experts_than_an_even_one(tokens, low, high):
    one = [np.array([float(x)]) for x in (tokens, 8, 256)]
    skewed, even = (active_experts(*one, np.array([a]))[0] for a in (1.01, 0.0))
    assert low <= skewed <= high
    assert even == min(8 * tokens, 256)
