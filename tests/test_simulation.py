"""Plans in the simulator: its grids are the cost model's prices, and without queues it is the steady state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlaplan import plan, simulation
from mlaplan.costs import phases
from mlaplan.costs.operators import Prefill
from mlaplan.costs.table import Table
from mlaplan.engines.load import load_profile
from mlaplan.errors import MlaplanError
from mlaplan.explain import explain
from mlaplan.rules.rule import Question
from mlaplan.serving.simulator.outcome import Outcome
from mlaplan.serving.simulator.requests import Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Overrides, Workload

FP8: dict[str, Any] = {"kv_dtype": "fp8", "weight_dtype": "fp8"}


def question(engine: str, work: Workload, model: str = "deepseek-v3", chip: str = "h200-sxm") -> Question:
    return plan.question(load_chip(chip), load_model(model), load_profile(engine), work, Overrides())


def closed(q: Question, st: Strategy, isl: int, osl: int, concurrency: int) -> tuple[Outcome, slice]:
    """A closed loop of equal prompts whose outputs vary, so that requests do not stay in step; its settled part."""
    n = 12 * concurrency if concurrency > 1 else 8
    outputs = np.random.default_rng(1).integers(osl // 2, osl + osl // 2, n, endpoint=True)
    r = Requests(np.zeros(n), np.full(n, isl), outputs if concurrency > 1 else np.full(n, osl))
    o = simulate(r, simulation.fleet_of(q, st, simulation.Longest.of(r)), concurrency=concurrency)
    assert not o.preempted.any()
    return o, slice(2 * concurrency, n - 2 * concurrency) if concurrency > 1 else slice(None)


def tpot(o: Outcome, part: slice) -> float:
    """Time per token over all tokens, as the steady state has it."""
    return float((o.tpot_s * (o.output - 1))[part].sum() / (o.output[part] - 1).sum())


SETTINGS = [
    ("deepseek-v3", "h200-sxm", {"tp": 8, **FP8}, 4096, 1024, 1),
    ("deepseek-v3", "h200-sxm", {"tp": 8, **FP8}, 1024, 1024, 4),
    ("deepseek-v3", "h200-sxm", {"tp": 8, **FP8}, 1000, 2000, 16),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "pp": 2, **FP8}, 1024, 1024, 8),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "mtp": 2, **FP8}, 1024, 1024, 4),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "replicas": 2, **FP8}, 2000, 600, 8),
    ("kimi-k2", "h200-sxm", {"tp": 16, **FP8}, 2048, 512, 8),
    ("deepseek-v2-lite", "h100-sxm", {"tp": 1}, 1024, 512, 16),
    ("llama-3.1-70b", "h100-sxm", {"tp": 8}, 1024, 512, 16),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "prefill_chunk": 2048, **FP8}, 2048, 1024, 8),
    ("llama-3.1-70b", "h100-sxm", {"tp": 8, "prefill_chunk": 2048}, 4096, 1024, 8),
]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s[0]} {Strategy(**s[2]).label()} {s[3]}/{s[4]} x{s[5]}")
def test_without_queues_it_is_the_steady_state(engine: str, setting: tuple[Any, ...]) -> None:
    """TPOT and TTFT within 5 %."""
    model, chip, degrees, isl, osl, concurrency = setting
    q = question(engine, Workload(isl, osl, concurrency=concurrency), model, chip)
    st = Strategy(batch=-(-concurrency // degrees.get("replicas", 1)), **degrees)
    served = explain(q, st).served
    assert served is not None
    assert served.tpot_s is not None
    o, part = closed(q, st, isl, osl, concurrency)
    assert tpot(o, part) == pytest.approx(served.tpot_s.value, rel=0.05)
    assert o.ttft_s[part].mean() == pytest.approx(served.ttft_s.value, rel=0.05)


# ranks in lockstep and pipelines; without a prefill chunk, prompts fit a step
TOGETHER = [
    ("deepseek-v3", "h200-sxm", {"tp": 8, "dp": 2, "ep": 16, **FP8}, 2000, 1000, 8),
    ("deepseek-v3", "h200-sxm", {"tp": 4, "dp": 4, "ep": 16, **FP8}, 2000, 1000, 64),
    ("deepseek-v3", "h200-sxm", {"dp": 8, "ep": 8, **FP8}, 1000, 1000, 64),
    ("deepseek-v3", "h200-sxm", {"dp": 8, "ep": 8, **FP8}, 256, 1000, 256),
    ("deepseek-v3", "h200-sxm", {"dp": 8, "ep": 8, "mtp": 1, **FP8}, 1000, 1000, 64),
    ("deepseek-v3", "h200-sxm", {"dp": 16, "ep": 16, **FP8}, 3500, 1500, 256),
    ("deepseek-v3", "h200-sxm", {"dp": 16, "ep": 16, **FP8}, 2048, 1000, 4),
    ("deepseek-v3", "h200-sxm", {"tp": 2, "dp": 4, "ep": 8, "pp": 2, **FP8}, 2000, 1000, 64),
    ("deepseek-v2-lite", "h100-sxm", {"dp": 4, "ep": 4}, 2000, 1000, 64),
]
STAGES = [
    ("deepseek-v3", "h200-sxm", {"tp": 4, "pp": 2, **FP8}, 8192, 512, 1),
    ("deepseek-v3", "h200-sxm", {"tp": 2, "pp": 4, "prefill_chunk": 2048, **FP8}, 8192, 512, 1),
    ("deepseek-v3", "h200-sxm", {"tp": 1, "pp": 8, "prefill_chunk": 2048, **FP8}, 16_384, 512, 1),
    ("deepseek-v3", "h200-sxm", {"tp": 4, "pp": 4, **FP8}, 4096, 1024, 16),
    ("deepseek-v3", "h200-sxm", {"tp": 1, "pp": 8, **FP8}, 1024, 1024, 16),
]
ENGINES = ["vllm", "sglang", "trtllm", "generic"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("setting", TOGETHER + STAGES, ids=lambda s: f"{s[0]} {Strategy(**s[2]).label()} x{s[5]}")
def test_ranks_in_lockstep_and_pipelines_are_the_steady_state(engine: str, setting: tuple[Any, ...]) -> None:
    """TPOT, TTFT and requests per second within 5 %."""
    model, chip, degrees, isl, osl, concurrency = setting
    q = question(engine, Workload(isl, osl, concurrency=concurrency), model, chip)
    st = Strategy(batch=-(-concurrency // degrees.get("dp", 1)), **degrees)
    served = explain(q, st).served
    assert served is not None
    assert served.tpot_s is not None
    o, part = closed(q, st, isl, osl, concurrency)
    assert tpot(o, part) == pytest.approx(served.tpot_s.value, rel=0.05)
    assert o.ttft_s[part].mean() == pytest.approx(served.ttft_s.value, rel=0.05)
    # as many are in flight at any time: each of those sent is there for its first token and the rounds after it
    stay = o.ttft_s[part].mean() + (osl - 1) * tpot(o, part)
    assert concurrency / stay == pytest.approx(served.requests_per_s.value, rel=0.05)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("degrees", [{"tp": 8}, {"dp": 8, "ep": 8}, {"tp": 8, "pp": 2}], ids=str)
def test_few_requests_at_a_rate_meet_nobody(engine: str, degrees: dict[str, int]) -> None:
    """An open loop of one request at a time, most of the time: the steady state."""
    q = question(engine, Workload(2048, 128, rate=0.02))
    st = Strategy(**degrees, batch=8, **FP8)
    served = explain(q, st).served
    assert served is not None
    assert served.tpot_s is not None
    r = simulation.uniform_requests(2048, 128, 300, rate=0.02, seed=1)
    o = simulate(r, simulation.fleet_of(q, st, simulation.Longest.of(r)))
    assert o.tpot_s.mean() == pytest.approx(served.tpot_s.value, rel=0.05)
    assert o.ttft_s.mean() == pytest.approx(served.ttft_s.value, rel=0.05)


# (model, chip, degrees, prompt, output, requests per second): slots for many more than come
AT_RATES = [
    ("deepseek-v3", "h200-sxm", {"tp": 8, **FP8}, 2000, 500, 0.2),
    ("deepseek-v3", "h200-sxm", {"tp": 8, **FP8}, 2000, 500, 3.0),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "mtp": 2, **FP8}, 2000, 500, 2.0),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "pp": 2, **FP8}, 2000, 500, 2.0),
    ("deepseek-v3", "h200-sxm", {"tp": 4, "dp": 4, "ep": 16, **FP8}, 2000, 1000, 2.0),
    ("deepseek-v3", "h200-sxm", {"dp": 8, "ep": 8, **FP8}, 1000, 500, 0.5),
    ("deepseek-v3", "h200-sxm", {"dp": 8, "ep": 8, **FP8}, 1000, 500, 4.0),
    ("deepseek-v3", "h200-sxm", {"dp": 8, "ep": 8, "mtp": 1, **FP8}, 1000, 500, 2.0),
    ("deepseek-v3", "h200-sxm", {"dp": 16, "ep": 16, **FP8}, 3500, 1500, 0.5),
    ("llama-3.1-70b", "h100-sxm", {"tp": 8}, 1024, 512, 4.0),
    ("deepseek-v2-lite", "h100-sxm", {"tp": 1}, 1024, 512, 8.0),
    # prompts as long as chunks, from which mixed engines take decoding tokens
    ("deepseek-v3", "h200-sxm", {"tp": 8, "prefill_chunk": 2048, **FP8}, 2048, 500, 2.0),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "mtp": 3, "prefill_chunk": 2048, **FP8}, 2048, 500, 2.0),
    ("deepseek-v3", "h200-sxm", {"tp": 8, "prefill_chunk": 2048, **FP8}, 4096, 500, 1.0),
    ("deepseek-v3", "h200-sxm", {"tp": 4, "pp": 2, "prefill_chunk": 2048, **FP8}, 2048, 500, 1.0),
    ("deepseek-v3", "h200-sxm", {"dp": 8, "ep": 8, "mtp": 3, "prefill_chunk": 2048, **FP8}, 2048, 500, 2.0),
    ("deepseek-v3", "h200-sxm", {"tp": 2, "dp": 4, "ep": 8, "prefill_chunk": 8192, **FP8}, 8192, 1000, 0.2),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("setting", AT_RATES, ids=lambda s: f"{s[0]} {Strategy(**s[2]).label()} {s[3]}/{s[4]} {s[5]}/s")
def test_at_a_rate_below_what_the_slots_hold_it_is_the_steady_state(engine: str, setting: tuple[Any, ...]) -> None:
    """An open loop whose requests fill a part of the slots: TPOT and TTFT within 5 %."""
    model, chip, degrees, isl, osl, rate = setting
    q, st = question(engine, Workload(isl, osl, rate=rate), model, chip), Strategy(**degrees, batch=256)
    served = explain(q, st).served
    assert served is not None
    assert served.tpot_s is not None
    n = max(2000, int(12 * served.concurrency))  # of a quarter of them the mean wait is some percent off
    r = simulation.uniform_requests(isl, osl, n, rate=rate, seed=1)
    o = simulate(r, simulation.fleet_of(q, st, simulation.Longest.of(r)))
    assert o.tpot_s[n // 4 :].mean() == pytest.approx(served.tpot_s.value, rel=0.05)
    assert o.ttft_s[n // 4 :].mean() == pytest.approx(served.ttft_s.value, rel=0.05)


def test_at_a_rate_free_slots_change_nothing() -> None:
    """Slots that no request fills cost nothing: the same times for any number that is enough."""
    q = question("vllm", Workload(2000, 500, rate=2.0))
    few, many = (explain(q, Strategy(tp=8, batch=batch, **FP8)).served for batch in (192, 512))
    assert few is not None
    assert many is not None
    assert (few.tpot_s, few.concurrency) == (many.tpot_s, many.concurrency)
    assert few.ttft_s.value == pytest.approx(many.ttft_s.value, rel=1e-9)
    assert many.requests_per_s.value == 2.0


def test_grids_are_the_prices_of_the_cost_model() -> None:
    q = question("vllm", Workload(4096, 1024))
    st = Strategy(tp=8, batch=64, prefill_chunk=8192, **FP8)
    server = simulation.server_of(q, st, simulation.Longest(16_384, 20_000))
    grid = server.steps
    table = Table(to_table([replace(st, batch=64)]))
    for context in (grid.contexts[3], grid.contexts[-1]):  # type: ignore[attr-defined]
        expected = phases.decode(q.setting, table, int(context), q.budget, np.zeros(1))["decode_s"]
        assert grid.decode(64, context)[0] == pytest.approx(float(expected[0]))
    prompts = Prefill(4096)  # two whole prompts of nothing cached
    expected = phases.prefill(q.setting, table, np.array([8192]), prompts, np.zeros(1, dtype=np.int64))["prefill_s"]
    assert grid.prefill(8192, 8192 * 2048.0, 8192)[0] == pytest.approx(float(expected[0]), rel=0.01)
    cached = Prefill(1024, 3072)  # four prompts, three quarters of each cached
    expected = phases.prefill(q.setting, table, np.array([4096]), cached, np.zeros(1, dtype=np.int64))["prefill_s"]
    assert grid.prefill(4096, 4096 * 3584.0, 16_384)[0] == pytest.approx(float(expected[0]), rel=0.03)


def test_what_the_host_launches_is_apart_from_the_grid_of_one_stage() -> None:
    q = question("vllm", Workload(4096, 1024))
    longest = simulation.Longest(4096, 5120)
    one, two = (simulation.server_of(q, Strategy(tp=8, pp=pp, batch=16, **FP8), longest).steps for pp in (1, 2))
    e = q.setting.engine
    assert e.launches_ahead
    assert one.host_s == pytest.approx(61 * float(e.prefill_layer_host_s) + float(e.step_overhead_s))
    assert one.prefill(64, 64 * 32.0, 64)[0] < one.host_s / 2
    assert two.host_s == 0.0
    assert two.prefill(64, 64 * 32.0, 64)[0] > one.host_s / 2


def test_habits_are_those_of_the_engine() -> None:
    st = Strategy(tp=8, batch=16, mtp=1, dcp=8, kv_layout="sequence_sharded", block_size=64, **FP8)
    longest = simulation.Longest(4096, 5120)
    servers = {
        name: simulation.server_of(question(name, Workload(4096, 1024)), st, longest)
        for name in ("vllm", "sglang", "trtllm")
    }
    assert {n: s.mixed for n, s in servers.items()} == {"vllm": True, "sglang": False, "trtllm": True}
    assert servers["vllm"].set_aside == 0.0
    assert 0.0 < servers["sglang"].set_aside < 0.2
    assert servers["trtllm"].set_aside == 1.0
    for server in servers.values():
        assert (server.drafts, server.block_tokens, server.slots) == (1, 512, 16)
        assert 0.5 < server.acceptance < 1.0


def test_a_plan_that_holds_no_token_is_refused() -> None:
    q = question("vllm", Workload(4096, 1024), chip="h100-sxm")
    with pytest.raises(MlaplanError, match="holds not one token"):
        simulation.server_of(q, Strategy(tp=4, **FP8), simulation.Longest(4096, 5120))


def test_a_split_fleet_sends_the_cache_over_the_network() -> None:
    q = question("vllm", Workload(4096, 256))
    st = Strategy(tp=8, batch=16, **FP8)
    r = simulation.uniform_requests(4096, 256, 40, rate=0.5)
    fleet = simulation.split_fleet(q, st, q, replace(st, replicas=2), simulation.Longest.of(r))
    assert fleet.transfer_s is not None
    per_token = (fleet.transfer_s(2_000_000) - fleet.transfer_s(1_000_000)) / 1e6
    link = q.setting.chip.scale_out
    assert link is not None
    assert per_token == pytest.approx(61 * 576 / float(link.bandwidth), rel=0.01)
    o = simulate(r, fleet)
    assert not o.refused.any()
    assert o.serve.computed_tokens == 0
