"""Pools of prefill and decode: matched rates by hand, then against a search in plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs.kv_transfer import Route
from mlaplan.costs.table import Table
from mlaplan.engines.load import load_profile
from mlaplan.fleet import instances, split
from mlaplan.fleet.crossover import Point, crossings
from mlaplan.fleet.split import Ask, Fronts
from mlaplan.plan import question
from mlaplan.rules.rule import Question
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Overrides, Workload

LINK = Route("a link", 1e12, 0.0)  # fast enough to hide
LLAMA, ASCEND = load_model("llama-3-70b"), load_chip("ascend-910b3")


def asked(**over: object) -> Question:
    work = Workload(**{"isl": 4096, "osl": 513, **over})  # type: ignore[arg-type]
    q = question(ASCEND, LLAMA, load_profile("generic"), work, Overrides())
    engine = q.setting.engine
    quick = engine._replace(
        front_end_s=replace_zero(engine.front_end_s), front_end_per_token_s=replace_zero(engine.front_end_per_token_s)
    )
    return replace(q, setting=replace(q.setting, engine=quick))


def replace_zero(interval: object) -> object:
    return type(interval)(0.0, 0.0, 0.0)  # type: ignore[call-arg]


def prefill(chips: int, prompt_s: float, first_s: float | None = None) -> Fronts:
    s = Strategy(tp=chips)
    table = Table(to_table([s])).having(
        prompt_s=np.array([prompt_s]), first_s=np.array([first_s or prompt_s]), rate=np.array([1 / prompt_s])
    )
    return Fronts(chips, "bf16", table, [s])


def decode(chips: int, decode_s: float, batch: int, rounds: int = 512) -> Fronts:
    s = Strategy(tp=chips, batch=batch)
    table = Table(to_table([s])).having(
        decode_s=np.array([decode_s]), per_round=np.array([1.0]), rounds=np.array([float(rounds)]),
        rate=np.array([batch / (rounds * decode_s)]),
    )  # fmt: skip
    return Fronts(chips, "bf16", table, [s])


def test_rates_are_matched_in_whole_instances_by_hand() -> None:
    """A prompt takes 0.5 s of 2 chips: 2/s. 64 sequences of 512 rounds of 31.25 ms on 4 chips: 4/s.

    On 12 chips two prefill instances feed one decode instance with 4/s; the third pair of chips adds nothing that
    the other decode instance of 4 could not take: 4 x 2 + 4 = 12 gives 4/s, 2 x 2 + 2 x 4 = 12 gives 4/s too.
    """
    q = asked()
    found = split._paired(q, q, prefill(2, 0.5), decode(4, 0.03125, 64), Ask(12), LINK)
    assert found is not None
    assert found.requests_per_s == pytest.approx(4.0)
    assert found.tok_s_chip == pytest.approx(4.0 * 513 / 12)
    assert found.tpot_s == pytest.approx(0.03125)


def test_the_wait_at_a_request_rate_is_that_of_a_queue() -> None:
    """One instance, 0.5 s a prompt, 1 request/s: rho = 1/2, W = rho / (2 (1 - rho)) t_p = 0.25 s."""
    q = asked(rate=1.0)
    found = split._paired(q, q, prefill(2, 0.5), decode(2, 0.01, 64), Ask(4), LINK)
    assert found is not None and found.wait_s == pytest.approx(0.25)
    assert found.ttft_s == pytest.approx(0.25 + 0.5 + found.exposed_s)
    assert found.requests_per_s == 1.0 and found.prefill.utilisation == pytest.approx(0.5)


def test_a_closed_loop_has_no_more_requests_than_are_offered() -> None:
    q = asked(concurrency=8)
    found = split._paired(q, q, prefill(2, 0.5), decode(2, 0.01, 64), Ask(4), LINK)
    assert found is not None and found.in_flight <= 8 * (1 + 1e-6)


def test_a_slow_card_caps_an_instance() -> None:
    """4096 tokens x 327,680 / 2 B a chip are 671 MB: at 100 MB/s no more than 0.149 requests/s pass."""
    slow = Route("slow", 100e6, 0.0)
    q = asked()
    found = split._paired(q, q, prefill(2, 0.5), decode(2, 0.01, 64), Ask(4), slow)
    assert found is not None
    assert found.requests_per_s == pytest.approx(100e6 / (4096 * 327_680 / 2))


@settings(deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 6), st.floats(0.05, 3), st.floats(0.005, 0.1), st.integers(1, 256),
    st.integers(2, 24), st.floats(0.01, 5) | st.none(),
)  # fmt: skip
def test_the_best_of_all_numbers_of_instances(
    n_p: int, n_d: int, prompt_s: float, decode_s: float, batch: int, devices: int, rate: float | None
) -> None:
    q = asked(rate=rate)
    found = None
    if n_p + n_d <= devices:
        found = split._paired(q, q, prefill(n_p, prompt_s), decode(n_d, decode_s, batch), Ask(devices), LINK)
    best = 0.0
    for x in range(1, devices // n_p + 1):
        y = (devices - x * n_p) // n_d
        capacity = min(x / prompt_s, y * batch / (512 * decode_s)) if y > 0 else 0.0
        best = max(best, capacity if rate is None else rate * (capacity >= rate))
    assert (found.requests_per_s if found else 0.0) >= best * (1 - split.LIKENESS) - 1e-12
    assert found is None or found.requests_per_s <= best * (1 + 1e-9)
    assert found is None or found.chips <= devices


# ---- instances ----


def test_instances_are_parts_of_a_node_or_whole_nodes() -> None:
    assert instances.sizes(ASCEND, 31) == [1, 2, 4, 8, 16, 24]
    assert instances.sizes(load_chip("ascend-910c-die"), 9) == [1, 2, 3, 4, 6, 8]


def test_both_pools_of_a_real_question_agree_with_explain() -> None:
    """The chosen strategies, priced again one by one, take the times that the split was made of."""
    from mlaplan.explain import explain

    q = question(ASCEND, LLAMA, load_profile("generic"), Workload(4096, 512, ttft_s=3.0, tpot_s=0.06), Overrides())
    found = split.split(q, q, Ask(8), {}, None)
    assert found is not None
    assert found.ttft_s <= 3.0 and found.tpot_s is not None and found.tpot_s <= 0.06
    assert found.prefill.chips + found.decode.chips <= 8
    assert found.prefill.strategy.kv_dtype == found.decode.strategy.kv_dtype
    d = explain(q, replace(found.decode.strategy, replicas=1), decode_context=q.workload.mean_context, served=False)
    assert d.decode is not None and found.tpot_s <= d.decode.step_s.value
    filled = replace(found.decode.strategy, replicas=1, batch=round(found.filled))
    d = explain(q, filled, decode_context=q.workload.mean_context, served=False)
    assert d.decode is not None and d.decode.step_s.value == pytest.approx(found.tpot_s, rel=0.02)
    rounds_s = (q.workload.osl - 1) * found.tpot_s
    busy = found.requests_per_s * rounds_s / (found.decode.instances * found.decode.strategy.dp)
    assert busy == pytest.approx(found.filled, rel=0.02)  # Little's law
    p = explain(instances.alone(q, osl=1), replace(found.prefill.strategy, replicas=1))
    assert p.fits and p.prefill is not None
    assert d.fits


# ---- crossover ----


def test_a_crossover_between_two_ratios_by_hand() -> None:
    """2 % behind at 1:1, 2 % ahead at 4:1 on logarithms: half way, 2:1."""
    found = [Point(100, 100, 1.02, 1.0, 1, 1), Point(400, 100, 1.0, 1.02, 1, 1)]
    assert crossings(found) == pytest.approx([2.0])


def test_a_way_that_misses_the_limits_loses_from_there_on() -> None:
    assert crossings([Point(1, 1, 5.0, 3.0, 1, 1), Point(4, 1, None, 2.0, 1, 1)]) == [4.0]
    assert crossings([Point(1, 1, None, None, 0, 0), Point(4, 1, None, None, 0, 0)]) == []
