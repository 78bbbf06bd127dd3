"""Order of plans: objectives, the Pareto front, one plan per shape, the simpler of two alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan import ranking


def columns(**values):
    return {name: np.array(value, dtype=float) for name, value in values.items()}


def test_scores():
    given_columns = columns(tok_s_chip=[100, 200], ttft_s=[1.0, 2.0], tpot_s=[0.05, 0.02])
    assert ranking.score(given_columns, "throughput", 101).tolist() == [100, 200]
    # first token and 100 more: 6 s and 4 s
    assert ranking.score(given_columns, "latency", 101) == pytest.approx([-6.0, -4.0])
    # one output token: no time per token, only the first
    single = columns(tok_s_chip=[1, 1], ttft_s=[1.0, 2.0], tpot_s=[np.nan, np.nan])
    assert ranking.score(single, "latency", 1).tolist() == [-1.0, -2.0]


def test_the_best_of_each_group_and_the_tie():
    group, value = np.array([0, 1, 0, 1, 0]), np.array([1.0, 5.0, 3.0, 5.0, 3.0])
    tie = np.array([0.0, 9.0, 2.0, 8.0, 1.0])
    assert ranking.best_of_each(group, value, tie).tolist() == [4, 3]


few = st.integers(0, 3)


@given(st.lists(st.tuples(few, few, few), min_size=1, max_size=40))
def test_the_best_of_each_group_is_the_first_when_all_are_sorted(rows):
    group, value, tie = (np.array(column) for column in zip(*rows, strict=True))
    order = sorted(range(len(rows)), key=lambda i: (group[i], -value[i], tie[i], i))
    first = {int(group[i]): i for i in reversed(order)}
    assert ranking.best_of_each(group, value.astype(float), tie.astype(float)).tolist() == list(first.values())[::-1]


points = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)


@given(points)
def test_the_front_is_what_nothing_beats(rows):
    x, y = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    found = ranking.pareto(x, y)
    front = {rows[i] for i in found}
    beaten = {a for a in rows if any(b[0] >= a[0] and b[1] >= a[1] and b != a for b in rows)}
    assert front == set(rows) - beaten
    assert len(front) == len(found)
    assert np.all(np.diff(x[found]) < 0)
    assert np.all(np.diff(y[found]) > 0)


def row(**degrees):
    return {"tp": 8, "dp": 1, "pp": 1, "ep": 1, "dcp": 1, "cp": 1, "kv_layout": 0, "two_batch_overlap": 0} | degrees


def test_complexity_counts_what_is_turned():
    assert ranking.complexity(row()) == 0
    assert ranking.complexity(row(pp=2)) == 1
    assert ranking.complexity(row(ep=8)) == 1
    # some of the ranks is one choice more than all of them
    assert ranking.complexity(row(ep=4)) == 2
    assert ranking.complexity(row(dp=2, ep=16, dcp=8, two_batch_overlap=1)) == 4


def test_of_two_alike_the_simpler_goes_first():
    values, knobs = np.array([100.0, 99.5, 98.0, 50.0]), np.array([3, 0, 0, 0])
    # 99.5 is within 1 % of 100, 98 is not
    assert ranking.in_order(values, knobs).tolist() == [1, 0, 2, 3]
    # with negative scores (latency) as well
    assert ranking.in_order(-values[::-1], knobs[::-1]).tolist() == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 5)), min_size=1, max_size=20))
def test_an_order_holds_every_plan_once_and_never_passes_over_a_better_one_by_much(plans):
    values, knobs = np.array([v for v, _ in plans]), np.array([k for _, k in plans])
    order = ranking.in_order(values, knobs)
    assert sorted(order.tolist()) == list(range(len(plans)))
    for place, i in enumerate(order):
        best = values[order[place:]].max()
        assert values[i] >= best - ranking.LIKENESS * abs(best)
