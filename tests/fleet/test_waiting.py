"""Waits of fixed services: exact for one server, for several near queues in plain Python."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.fleet import queueing
from mlaplan.serving import waiting


@given(st.floats(0.01, 0.99))
def test_one_server_is_exact(load: float) -> None:
    """Pollaczek-Khinchine: rho T / (2 (1 - rho))."""
    assert float(waiting.mean_s(load, 1, 2.0)) == pytest.approx(load * 2.0 / (2 * (1 - load)))
    assert float(waiting.mean_s(load, 1, 1.0)) == pytest.approx(float(queueing.wait_share(load, 0)))


def drawn(load: float, servers: int, count: int = 60_000, seed: int = 0) -> np.ndarray:
    """Waits of `count` requests with a service of 1 s, by who is free first."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0 / (load * servers), count))
    free, out = [0.0] * servers, []
    for at in arrivals.tolist():
        start = max(at, heapq.heappop(free))
        out.append(start - at)
        heapq.heappush(free, start + 1.0)
    return np.array(out[count // 10 :])


@pytest.mark.parametrize(("load", "servers"), [(0.5, 2), (0.8, 2), (0.9, 4), (0.8, 16), (0.95, 32)])
def test_several_servers(load: float, servers: int) -> None:
    waits = drawn(load, servers)
    assert float(waiting.mean_s(load, servers, 1.0)) == pytest.approx(float(waits.mean()), rel=0.2, abs=0.01)
    tail = waiting.percentile_s(load, servers, 1.0, 95)
    assert tail == pytest.approx(float(np.percentile(waits, 95)), rel=0.25, abs=0.1)


def test_a_full_server_never_catches_up() -> None:
    assert float(waiting.mean_s(1.0, 4, 1.0)) == float("inf") == waiting.percentile_s(1.2, 4, 1.0, 95)
    assert waiting.percentile_s(0.01, 8, 1.0, 95) == 0.0
