"""A split by its formula beside the simulator, where neither pool is near its limit."""

from __future__ import annotations

import numpy as np
import pytest

from mlaplan.engines.load import load_profile
from mlaplan.fleet.split import Ask, split
from mlaplan.plan import question
from mlaplan.serving.simulator.run import simulate
from mlaplan.simulation import Longest, split_fleet, uniform_requests
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.workload import Overrides, Workload


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_two_pools_of_llama_on_sixteen_ascend(rate: float) -> None:
    q = question(
        load_chip("ascend-910b3"), load_model("llama-3-70b"), load_profile("generic"), Workload(4096, 512, rate=rate),
        Overrides(),
    )  # fmt: skip
    pins = {"tp": 8, "kv_dtype": "int8", "prefill_chunk": 2048, "batch": 48}
    # sent after the prefill, as the simulator does
    found = split(q, q, Ask(16, by_layer=False), pins, None, {**pins, "batch": 4})
    assert found is not None
    requests = uniform_requests(4096, 512, 800, rate)
    fleet = split_fleet(q, found.decode.strategy, q, found.prefill.strategy, Longest.of(requests))
    out = simulate(requests, fleet)
    assert found.ttft_s == pytest.approx(float(np.nanmean(out.ttft_s)), rel=0.10)
    assert found.tpot_s == pytest.approx(float(np.nanmean(out.tpot_s)), rel=0.05)
