"""The simulator on served rows: the same as the closed-loop client that `validate` scores them with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlaplan import simulation
from mlaplan.serving import client
from mlaplan.serving.simulator.requests import Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.serving.simulator.server import Fleet, Pool
from mlaplan.validation import served, silicon
from mlaplan.validation.points import Point
from mlaplan.validation.setting import asked

if silicon.path() is None:
    pytest.skip("needs the silicon extra", allow_module_level=True)

ROWS = [p for p in silicon.points() if p.metric == "tpot" and p.workload["concurrency"] in (4, 64)]


@pytest.mark.parametrize("point", ROWS, ids=lambda p: p.id)
def test_the_client_and_the_simulator_agree(point: Point) -> None:
    """Two implementations; they part by how prompts of unequal length are priced."""
    q, st, _ = asked(point)
    w = q.workload
    assert w.concurrency is not None
    lengths = np.array(client.Client(w.isl, w.osl, w.concurrency).lengths())
    r = Requests(np.zeros(len(lengths)), lengths[:, 0], lengths[:, 1])
    server = simulation.server_of(q, replace(st, batch=w.concurrency), simulation.Longest.of(r))
    o = simulate(r, Fleet(Pool(server)), concurrency=w.concurrency)
    expected = served.serve(q, st, lag=server.lag_steps).result
    assert o.tpot_s.mean() == pytest.approx(expected.tpot_s, rel=0.005)
    assert o.ttft_s.mean() == pytest.approx(expected.ttft_s, rel=0.005)


def test_there_are_rows() -> None:
    assert len(ROWS) == 12
