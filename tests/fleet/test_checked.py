"""The formula beside the simulator for one instance, where both speak of the same: no attention DP, no pipeline."""

from __future__ import annotations

import pytest

from mlaplan.engines.load import load_profile
from mlaplan.fleet.checked import Judge, fewest
from mlaplan.fleet.operating import Curve
from mlaplan.fleet.size import Instance, Sized
from mlaplan.plan import question
from mlaplan.serving.simulator.outcome import Limit
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload

TTFT, TPOT = Limit(95, 2.0), Limit(95, 0.05)


@pytest.mark.parametrize("rate", [0.3, 0.8])
def test_one_instance_by_both(rate: float) -> None:
    q = question(
        load_chip("ascend-910b3"), load_model("llama-3-70b"), load_profile("generic"), Workload(3500, 500), Overrides()
    )
    s = Strategy(tp=8, kv_dtype="int8", block_size=16, prefill_chunk=2048, batch=32)
    formula = Curve(q, s, None).at(rate, TTFT, TPOT)
    simulated = Judge(TTFT, TPOT, None).point(Sized(Instance(q, s, rate), rate, 1))
    assert formula.tpot_s == pytest.approx(simulated.tpot_s, rel=0.12)
    assert formula.in_flight == pytest.approx(simulated.in_flight, rel=0.25)
    # the formula queues whole prompts, the engine mixes a next one into the steps of another
    assert simulated.ttft_s * 0.9 <= formula.ttft_s <= simulated.ttft_s * 1.8


@pytest.mark.parametrize("passing", [1, 2, 3, 40, 1000, 15_753_157])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999, 1.0])
def test_the_fewest_of_many_are_found_without_asking_all(passing: int, share: float) -> None:
    least, asked = max(round(share * passing), 1), []

    def meets(n: int) -> bool:
        asked.append(n)
        return n >= least

    assert fewest(passing, meets) == least
    assert all(0 < n < passing for n in asked)
    assert len(asked) == len(set(asked)) <= 60
