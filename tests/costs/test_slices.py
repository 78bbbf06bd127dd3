"""Slice pipelines: the closed form, the recurrence and the timeline of events agree; hand-computed small cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs import chain, slices
from mlaplan.costs.slices import Pipeline

TIME = st.floats(0, 10, allow_nan=False).map(lambda x: round(x, 3))


def test_two_stages_by_hand() -> None:
    assert chain.two_stage_s(2.0, 3.0, 4) == 2 + 3 + 3 * 3
    assert chain.two_stage_s(3.0, 2.0, 1) == 5


@given(TIME, TIME, st.integers(1, 60), st.integers(2, 16))
def test_two_slots_are_enough_without_latency(a: float, b: float, n: int, depth: int) -> None:
    assert float(chain.equal_items_s((a, b), 0.0, n, depth)) == pytest.approx(float(chain.two_stage_s(a, b, n)))


@given(TIME, TIME, st.integers(1, 60))
def test_one_slot_is_serial(a: float, b: float, n: int) -> None:
    assert float(chain.equal_items_s((a, b), 0.0, n, 1)) == pytest.approx(n * (a + b))


@given(TIME, TIME, TIME, TIME, st.integers(1, 50), st.integers(1, 9))
@settings(max_examples=200)
def test_closed_form_is_the_recurrence(d: float, a: float, w: float, b: float, n: int, depth: int) -> None:
    times = np.tile([d, a, b], (n, 1))
    found = chain.schedule(times, (0.0, w), [chain.Span(0, 2, depth)])
    assert found.total_s == pytest.approx(float(chain.equal_items_s((d, a, b), w, n, depth)), abs=1e-9)


@given(TIME, TIME, TIME, TIME, TIME, st.integers(1, 40), st.integers(1, 9), st.integers(1, 4))
@settings(max_examples=300)
def test_closed_form_is_the_timeline(
    d: float, a: float, w: float, b: float, switch: float, n: int, depth: int, tasks: int
) -> None:
    p = Pipeline(
        n, depth, a, b, latency_s=w, descriptor_s=d, switch_s=switch, rescale_s=0.5, tasks=tasks, finish_s=1.0,
    )  # fmt: skip
    assert slices.timeline(p).total_s == pytest.approx(slices.closed_form_s(p), abs=1e-9)


@given(st.lists(st.tuples(TIME, TIME, TIME), min_size=1, max_size=30), st.integers(1, 6), TIME, TIME)
@settings(max_examples=200)
def test_timeline_with_jitter_is_the_recurrence(
    rows: list[tuple[float, float, float]], depth: int, a: float, b: float
) -> None:
    """Only the link jitters, so slices stay in order."""
    extra = [r[0] for r in rows]
    p = Pipeline(len(rows), depth, a, b, latency_s=0.25, descriptor_s=0.1)
    times = np.array([[0.1, a + x, b] for x in extra])
    found = chain.schedule(times, (0.0, 0.25), [chain.Span(0, 2, depth)])
    assert slices.timeline(p, extra).total_s == pytest.approx(found.total_s, abs=1e-9)


def test_closed_form_over_arrays() -> None:
    depth = np.array([1, 2, 4])
    total = chain.equal_items_s((0.0, 2.0, 3.0), 4.0, 5, depth)
    # L = 9, m = 3. One slot: 5 x 9. Two: 9 + max(12, 2 x 9 + 0). Four: 9 + max(12, 9 + 0)
    assert total.tolist() == [45.0, 27.0, 21.0]


def by_hand(**changes: float) -> Pipeline:
    return Pipeline(**{"slices": 3, "depth": 2, "transfer_s": 2.0, "compute_s": 3.0, **changes})  # type: ignore[arg-type]


def test_a_timeline_by_hand() -> None:
    t = slices.timeline(by_hand())
    spans = {(b.resource, b.slice): (b.start_s, b.end_s) for b in t.bars if b.resource != "dma"}
    assert spans == {
        ("link", 0): (0, 2), ("link", 1): (2, 4), ("link", 2): (5, 7),  # a buffer is free at 5
        ("compute", 0): (2, 5), ("compute", 1): (5, 8), ("compute", 2): (8, 11),
    }  # fmt: skip
    assert t.total_s == 11
    assert t.utilisation == pytest.approx(9 / 11)
    assert t.exposed_s == pytest.approx(2)
    assert t.binding == "compute"
    assert t.bubbles == ((0.0, 2.0, "fill"),)


def test_bubbles_name_their_cause() -> None:
    assert {b.cause for b in slices.timeline(by_hand(compute_s=1.0)).bubbles} == {"fill", "link"}
    stalled = slices.timeline(by_hand(depth=1))
    assert [b.cause for b in stalled.bubbles] == ["fill", "staging", "staging"]


@pytest.mark.parametrize(
    ("changes", "binding"),
    [
        ({"transfer_s": 9.0}, "link"), ({"descriptor_s": 9.0}, "dma"), ({"compute_s": 9.0}, "compute"),
        ({"switch_s": 9.0}, "switch"), ({"latency_s": 90.0}, "staging"),
    ],
)  # fmt: skip
def test_the_binding_resource(changes: dict[str, float], binding: str) -> None:
    assert slices.timeline(by_hand(**changes)).binding == binding


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=100)
def test_no_buffer_is_overwritten_while_a_task_reads_it(
    n: int, depth: int, tasks: int, workers: int, seed: int
) -> None:
    """Slices held at any time, from the start of their transfer to the end of their last task, are at most depth."""
    rng = np.random.default_rng(seed)
    p = Pipeline(n, depth, 1.0, 0.7, latency_s=0.4, descriptor_s=0.1, tasks=tasks, workers=workers, merge_s=0.05)
    t = slices.timeline(p, rng.random(n).tolist(), (5 * rng.random(n)).tolist())
    begin = {b.slice: b.start_s for b in t.bars if b.resource == "dma"}
    end = {i: max(b.end_s for b in t.bars if b.resource == "compute" and b.slice == i) for i in range(n)}
    for i in range(n):
        held = sum(begin[j] <= begin[i] < end[j] - 1e-12 for j in range(n))
        assert held <= depth
    # every slice is computed once per task, after it has arrived
    for i in range(n):
        tasks_of = [b for b in t.bars if b.resource == "compute" and b.slice == i]
        arrived = next(b.end_s for b in t.bars if b.resource == "link" and b.slice == i)
        assert len(tasks_of) == tasks
        assert all(b.start_s >= arrived for b in tasks_of)
    merged = [b.slice for b in t.bars if b.resource == "merge"]
    assert merged == sorted(merged)


@given(st.integers(1, 30), TIME, TIME, TIME, st.integers(0, 99))
@settings(max_examples=100)
def test_more_buffers_never_hurt(n: int, a: float, b: float, w: float, seed: int) -> None:
    extra = np.random.default_rng(seed).random(n).tolist()
    totals = [slices.timeline(Pipeline(n, d, a, b, latency_s=w), extra).total_s for d in (1, 2, 4, 8)]
    assert all(x >= y - 1e-9 for x, y in itertools.pairwise(totals))
    assert totals[-1] >= max(n * a + sum(extra), n * b) - 1e-9


def test_jitter_is_seeded() -> None:
    p = by_hand(slices=1000)
    assert slices.jittered(p, 0.1, 0.3, 7) == slices.jittered(p, 0.1, 0.3, 7)
    slow = [x for x in slices.jittered(p, 0.1, 0.3, 7) if x]
    assert 60 < len(slow) < 140
    assert max(slow) == min(slow) == pytest.approx(0.6)
