"""A split by its formula beside the simulator: waits of random arrivals in front of both pools, and no wait at all."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mlaplan.engines.load import load_profile
from mlaplan.fleet.arrivals import Poisson, poisson
from mlaplan.fleet.split import Ask, Split, split
from mlaplan.plan import question
from mlaplan.serving.simulator.run import simulate
from mlaplan.simulation import Longest, split_fleet, uniform_requests
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.workload import Overrides, Workload

ASCEND = ("ascend-910b3", 16, {"tp": 8, "kv_dtype": "int8", "prefill_chunk": 2048, "batch": 48}, {"tp": 8})
HOPPER = ("h100-sxm", 32, {"tp": 4, "pp": 1, "prefill_chunk": 2048, "batch": 64}, {"tp": 4, "pp": 1})
ENGAGED = [(*ASCEND, 0.25), (*ASCEND, 0.9), (*ASCEND, 1.2), (*HOPPER, 8.0), (*HOPPER, 14.0)]


@cache
def _both(chip: str, devices: int, rate: float, pins: tuple[Any, ...], own: tuple[Any, ...]) -> tuple[Split, Any]:
    q = question(load_chip(chip), load_model("llama-3-70b"), load_profile("generic"), Workload(4096, 512, rate=rate),
                 Overrides())  # fmt: skip
    fixed = dict(pins)
    # sent after the prefill, as the simulator does
    found = split(q, q, Ask(devices, sends="after"), fixed, None, {**fixed, **dict(own), "batch": 4})
    assert found is not None
    requests = uniform_requests(4096, 512, 1500, rate)
    fleet = split_fleet(q, found.decode.strategy, q, found.prefill.strategy, Longest.of(requests))
    return found, simulate(requests, fleet)


@pytest.mark.parametrize(("chip", "devices", "pins", "own", "rate"), ENGAGED)
def test_two_pools_of_llama(chip: str, devices: int, pins: dict[str, Any], own: dict[str, Any], rate: float) -> None:
    found, out = _both(chip, devices, rate, tuple(pins.items()), tuple(own.items()))
    full = slice(300, None)  # the first find an empty fleet
    assert found.ttft_s == pytest.approx(float(np.nanmean(out.ttft_s[full])), rel=0.10)
    assert found.tpot_s == pytest.approx(float(np.nanmean(out.tpot_s[full])), rel=0.05)
    p = poisson(found)
    assert p.share == 1.0 and p.ttft_s == pytest.approx(found.ttft_s)
    assert p.ttft_p95_s == pytest.approx(float(np.nanpercentile(out.ttft_s[full], 95)), rel=0.15)


def test_even_arrivals_are_told_from_random_ones() -> None:
    """With the load left open the pools are planned full: TTFT of random arrivals is for 80 % of the rate."""
    chip, devices, pins, own = ASCEND
    q = question(load_chip(chip), load_model("llama-3-70b"), load_profile("generic"), Workload(4096, 512), Overrides())
    found = split(q, q, Ask(devices, sends="after"), pins, None, {**pins, **own, "batch": 4})
    assert found is not None and max(found.prefill.utilisation, found.decode.utilisation) == pytest.approx(1.0)
    p: Poisson = poisson(found)
    assert p.share == 0.8 and p.requests_per_s == pytest.approx(0.8 * found.requests_per_s)
    assert p.ttft_s > found.ttft_s  # half a prompt is all that even arrivals wait
    requests = uniform_requests(4096, 512, 1500, p.requests_per_s)
    fleet = split_fleet(q, found.decode.strategy, q, found.prefill.strategy, Longest.of(requests))
    out = simulate(requests, fleet)
    assert p.ttft_s == pytest.approx(float(np.nanmean(out.ttft_s[300:])), rel=0.20)
    assert not np.isfinite(poisson(found, share=1.0).ttft_s)
