"""Long steps: what is worked out from their first items is what running every item gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs import chain, slices

US = st.floats(min_value=0.0, max_value=20.0, allow_nan=False).map(lambda x: x * 1e-6)
BUSY = st.floats(min_value=0.05, max_value=20.0, allow_nan=False).map(lambda x: x * 1e-6)


@settings(deadline=None, max_examples=60)
@given(
    times=st.lists(BUSY, min_size=3, max_size=3), late=US, buffers=st.integers(1, 5), n=st.integers(1025, 3000),
    first=st.sampled_from((0.0, 1e-6, 1e-4, 1e-1)),
)  # fmt: skip
def test_long_schedule_is_the_schedule(times: list[float], late: float, buffers: int, n: int, first: float) -> None:
    grid = np.tile(times, (n, 1))
    grid[0, 0] += first
    spans = [chain.Span(0, 1, buffers), chain.Span(1, 2, 2)]
    run = chain.schedule(grid, (late, 0.0), spans).total_s
    assert chain.long_schedule_s(grid, (late, 0.0), spans) == pytest.approx(run, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 2000), depth=st.integers(1, 16), transfer=BUSY, compute=BUSY, latency=US, descriptor=US,
    switch=US, rescale=US, finish=US, tasks=st.integers(1, 4),
)  # fmt: skip
def test_account_is_the_timeline(
    n: int, depth: int, transfer: float, compute: float, latency: float, descriptor: float, switch: float,
    rescale: float, finish: float, tasks: int,
) -> None:  # fmt: skip
    p = slices.Pipeline(n, depth, transfer, compute, latency, descriptor, switch, rescale, finish_s=finish, tasks=tasks)
    t, found = slices.timeline(p), slices.account(p)
    assert found.total_s == pytest.approx(t.total_s, rel=1e-9)
    assert found.utilisation == pytest.approx(t.utilisation, rel=1e-9)
    assert found.binding == t.binding
    for name in ("dma", "link", "compute"):
        assert found.busy_s[name] == pytest.approx(t.busy_s(name), rel=1e-9, abs=1e-15)
    for cause in ("fill", "link", "staging", "merge"):
        assert found.idle_s.get(cause, 0.0) == pytest.approx(t.idle_s(cause), rel=1e-6, abs=1e-9 * t.total_s)


@pytest.mark.parametrize(
    "p",
    [
        slices.Pipeline(60_000, 6, 4.6e-7, 1e-7, 1e-6, 3e-7, 1.5e-7, 1e-8, finish_s=3e-6),  # the link
        slices.Pipeline(60_000, 2, 4.6e-7, 1e-7, 3e-6, 3e-7, 1.5e-7, 1e-8, finish_s=3e-6),  # the buffers
        slices.Pipeline(60_000, 4, 4.6e-7, 9e-7, 1e-6, 3e-7, 1.5e-7, 1e-8, finish_s=3e-6),  # compute
    ],
)
def test_a_long_step_is_accounted_for_from_its_first_slices(p: slices.Pipeline) -> None:
    t, found = slices.timeline(p), slices.account(p)
    assert found.total_s == pytest.approx(t.total_s, rel=1e-9)
    for cause in ("fill", "link", "staging", "merge"):
        assert found.idle_s.get(cause, 0.0) == pytest.approx(t.idle_s(cause), rel=1e-3, abs=1e-6 * t.total_s)
    assert sum(found.idle_s.values()) + found.busy_s["compute"] == pytest.approx(found.total_s, rel=1e-9)


def test_steps_of_any_size_take_no_longer_to_account_for() -> None:
    p = slices.Pipeline(10**9, 6, 4.6e-7, 1e-7, 1e-6, 3e-7, 1.5e-7, 1e-8, finish_s=3e-6, tasks=2048)
    assert slices.account(p).total_s == pytest.approx(slices.closed_form_s(p))
