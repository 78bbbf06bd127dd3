"""Which constants rows can tell apart."""

from __future__ import annotations

import numpy as np

from mlaplan.calibration.fitting import _free_to_move, _standard_errors


def test_two_constants_in_one_proportion_are_not_told_apart() -> None:
    """A floor and a time for each of as many experts in every row: one can be traded for the other."""
    rng = np.random.default_rng(1)
    rows, floor = rng.uniform(1, 2, 50), np.ones(50)
    noise = 1e-9 * rng.standard_normal(50)  # of numerical derivatives
    assert _free_to_move(np.stack([rows, floor, 384 * floor + noise], axis=1)).tolist() == [False, True, True]
    # a constant that no row has
    assert _free_to_move(np.stack([rows, 0 * floor], axis=1)).tolist() == [False, True]


def test_what_rows_do_tell_apart_is_kept() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.uniform(1, 2, 50), np.ones(50), rng.choice([32.0, 64.0], 50)]
    assert not _free_to_move(np.stack(columns, axis=1)).any()
    # nearly alike is told apart still: the error bar says how well
    assert not _free_to_move(np.stack([columns[1], columns[1] + 1e-3 * columns[0]], axis=1)).any()


def test_one_of_two_that_a_search_left_at_nothing_is_not_known() -> None:
    """Where the search stopped decides nothing: all of the time may lie in the one or in the other."""
    rng = np.random.default_rng(1)
    jacobian = np.stack([rng.uniform(1, 2, 50), np.ones(50), 384 * np.ones(50)], axis=1)
    low, high, residual = np.zeros(3), np.full(3, 10.0), 0.01 * rng.standard_normal(50)
    for x in (np.array([1.0, 0.0, 0.5]), np.array([1.0, 0.5, 0.0]), np.array([1.0, 0.5, 0.5])):
        errors = _standard_errors(jacobian, residual, low, high, x)
        assert np.isfinite(errors[0]) and np.isinf(errors[1:]).all()
    # at nothing without a partner it is known: the rows have put it there
    alone = _standard_errors(jacobian[:, :2], residual, low[:2], high[:2], np.array([1.0, 0.0]))
    assert np.isfinite(alone).all()
