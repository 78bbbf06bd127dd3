"""Pipeline stages: cuts cover every layer once, and what a round of micro-batches takes."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar.cases import model as shipped

from mlaplan.costs import pipeline, step

from . import round as r

MODELS = ["deepseek-v3", "glm-5.2", "longcat-flash", "llama-3-70b", "deepseek-v2-lite"]


def test_kinds_and_their_order():
    v3 = shipped("deepseek-v3")
    assert pipeline.layer_kinds(v3) == [
        pipeline.LayerKind(("mla",), ("dense",)),
        pipeline.LayerKind(("mla",), ("moe",)),
    ]
    assert pipeline.layer_counts(v3) == (3, 58)
    assert pipeline.sequence(v3)[:5] == [0, 0, 0, 1, 1]
    # GLM-5.2: dense, with a shared selection, with its own
    assert pipeline.layer_counts(shipped("glm-5.2")) == (3, 57, 18)


@pytest.mark.parametrize("name", MODELS)
def test_a_cut_holds_every_layer_exactly_once(name):
    model = shipped(name)
    order = pipeline.sequence(model)
    for pp in range(1, min(len(order), 24) + 1):
        found = pipeline.cuts(model, pp)
        assert found
        assert len({cut.layers for cut in found}) == len(found)
        for cut in found:
            assert len(cut.layers) == pp
            assert min(cut.layers) >= 1
            assert sum(cut.layers) == model.layer_count
            edges = np.cumsum((0, *cut.layers))
            parts = [order[a:b] for a, b in pairwise(edges)]
            expected = {
                pipeline.Stage(tuple(part.count(k) for k in range(len(set(order)))), i == 0, i == pp - 1)
                for i, part in enumerate(parts)
            }
            assert set(cut.stages) == expected


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_slowest_stage_is_one_of_the_heaviest(name, data):
    model = shipped(name)
    times = st.floats(0.0, 1.0)
    layers = [data.draw(times) for _ in pipeline.layer_kinds(model)]
    embedding, tail = data.draw(times), data.draw(times)
    for cut in pipeline.cuts(model, data.draw(st.integers(1, min(model.layer_count, 24)))):
        of_all, of_heaviest = (
            max(step.stage_times(stage, layers, embedding, tail) for stage in stages)
            for stages in (cut.stages, cut.heaviest)
        )
        assert of_heaviest == of_all


def test_there_is_no_cut_into_more_stages_than_layers():
    assert pipeline.cuts(r.model(layers=4), 5) == []
    assert [cut.layers for cut in pipeline.cuts(r.model(layers=4), 4)] == [(1, 1, 1, 1)]


def test_equal_layers_are_cut_evenly_or_leave_room_for_the_head():
    found = [cut.layers for cut in pipeline.cuts(r.model(layers=8), 2)]
    # the head counted as none, one or two layers
    assert found == [(4, 4), (5, 3)]


@given(st.lists(st.floats(0.1, 5.0), min_size=2, max_size=14), st.integers(1, 6), st.sampled_from([0.0, 1.0, 2.0]))
@settings(max_examples=60, deadline=None)
def test_a_balanced_cut_is_as_good_as_any(costs, pp, tail):
    """Against every contiguous cut, to the tolerance of the bisection."""
    pp = min(pp, len(costs))

    def dearest(layers):
        edges = np.cumsum((0, *layers))
        loads = [sum(costs[a:b]) for a, b in pairwise(edges)]
        return max((*loads[:-1], loads[-1] + tail))

    found = pipeline._balanced(tuple(costs), pp, tail)
    assert sum(found) == len(costs)
    assert min(found) >= 1
    best = min(dearest(np.diff((0, *edges, len(costs)))) for edges in combinations(range(1, len(costs)), pp - 1))
    assert dearest(found) <= best + 0.01 * max(costs) + 1e-9


def test_a_round_by_hand():
    # 2 stages of 3 and 2 s, sends of 0.5: 4 micro-batches are bound by the slower stage, 1 by the way through
    assert pipeline.round_s(3.0, 5.0, 0.5, 2, 4) == 4 * 3.5
    assert pipeline.round_s(3.0, 5.0, 0.5, 2, 1) == 5.0 + 2 * 0.5
    # as many as stages: 2 x 3.5 against 6
    assert pipeline.round_s(3.0, 5.0, 0.5, 2, 2) == 7.0
    # one stage sends nothing
    assert pipeline.round_s(3.0, 3.0, 0.5, 1, 1) == 3.0
    assert pipeline.round_s(3.0, 5.0, 0.5, np.array([1, 2]), np.array([1, 4])).tolist() == [5.0, 14.0]


def test_bubble_of_a_pipeline_that_fills_and_drains():
    assert pipeline.fill_bubble(1, 1) == 0
    assert pipeline.fill_bubble(4, 1) == 0.75
    # over 92 % efficient from 12 micro-batches on with 2 stages, from 35 with 4
    for stages, enough in ((2, 12), (4, 35)):
        assert 1 - pipeline.fill_bubble(stages, enough) > 0.92
        assert 1 - pipeline.fill_bubble(stages, enough - 1) <= 0.92


def test_micro_batches_are_one_per_stage_while_there_are_sequences():
    assert step.micro_batches(4, np.array([1, 3, 4, 64])).tolist() == [1, 3, 4, 4]


def test_a_stage_by_hand():
    stage = pipeline.Stage((2, 3), True, False)
    assert step.stage_times(stage, [10.0, 100.0], 1.0, 1000.0) == 321.0
    assert step.stage_times(stage._replace(first=False, last=True), [10.0, 100.0], 1.0, 1000.0) == 1320.0
