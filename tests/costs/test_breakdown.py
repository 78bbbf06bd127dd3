"""One strategy operator by operator: the same step as in the table, and nothing missing between its parts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar.cases import WORKLOADS, examples, question, strategies

from mlaplan import plan
from mlaplan.costs import params, phases
from mlaplan.costs.engine import exactly
from mlaplan.costs.machine import bound_of
from mlaplan.costs.roofline import BOUNDS
from mlaplan.costs.table import Table
from mlaplan.explain import explain
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Workload

PAIRS = [
    ("deepseek-v3", "h200-sxm", "generic"),
    ("deepseek-v3", "h100-sxm", "vllm"),
    ("glm-5.2", "b200-sxm", "generic"),
    ("longcat-flash", "h800-sxm", "sglang"),
    ("llama-3-70b", "ascend-910b3", "generic"),
]
WORK = Workload(4096, 1024, concurrency=64)


def times(phase):
    return {op.name: op.time_s for op in phase.ops}


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_operators_sum_to_the_step_of_the_table(names, data):
    q = question(*names, data.draw(WORKLOADS))
    strategy = data.draw(strategies(q.setting.model, q.setting.chip))
    found = explain(q, strategy)
    columns = {name: float(column[0]) for name, column in plan.price(q, to_table([strategy]), detail=True).items()}
    if found.decoding != strategy.batch:  # the round of the sequences that a request rate keeps there
        fewer, cut = Table(to_table([replace(strategy, batch=found.decoding)])), np.array([int(columns["cut"])])
        context, none = q.workload.mean_context, np.zeros(1)
        shown = phases.decode(q.setting, fewer, context, q.budget, none, detail=True, cut=cut)
        columns |= {name: float(shown[name][0]) for name in ("decode_s", "decode_comm_s")}
    for phase, step_s, comm_s in (
        (found.decode, columns["decode_s"], columns["decode_comm_s"]),
        (found.prefill, columns["prefill_pass_s"], None),
    ):
        assert phase.step_s.value == step_s
        assert math.fsum(op.time_s for op in phase.ops) == pytest.approx(step_s, rel=1e-9)
        assert 0 <= phase.comm_share <= 1
        if comm_s is not None:
            assert phase.comm_share * step_s == pytest.approx(comm_s, rel=1e-9, abs=1e-12)
        assert phase.step_s.low <= step_s <= phase.step_s.high
        assert all(bound_of(op) in BOUNDS for op in phase.ops)
        assert all(op.time_s > 0 or op.group in ("overlap", "bubble") for op in phase.ops)
        assert len({op.name for op in phase.ops}) == len(phase.ops)
        assert times(phase).get("pipeline_bubble", 0.0) >= -1e-12 * step_s
    assert found.memory.items["weight_bytes"] == columns["weight_bytes"]
    assert sum(found.pp_layers) == q.setting.model.layer_count


def test_a_decode_step_multiplies_the_active_parameters():
    """2 FLOP per active parameter and token, on one chip, beside the attention cores."""
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    found = explain(q, Strategy(weight_dtype="fp8", batch=1)).decode
    cores = [op.flops for op in found.ops if op.name == "attention_core"]
    products = sum(op.flops for op in found.ops) - sum(cores)
    # absorbed decode multiplies W_UK and W_UV once each, as the parameters count kv_b
    assert products == pytest.approx(2 * params.params_active(q.setting.model), rel=0.01)


def test_the_slowest_stage_is_shown_and_the_rest_of_the_round_is_bubble():
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    found = explain(q, Strategy(tp=8, pp=2, weight_dtype="fp8", batch=1)).decode
    # one sequence, two stages: while it is in one, the other waits
    assert found.micro_batches == 1
    assert found.bubble_fraction == pytest.approx(times(found)["pipeline_bubble"] / found.step_s.value)
    assert 0.3 < found.bubble_fraction < 0.6
    full = explain(q, Strategy(tp=8, pp=2, weight_dtype="fp8", batch=64)).decode
    assert full.micro_batches == 2
    assert full.bubble_fraction < 0.1


def test_two_batch_overlap_hides_what_it_says():
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    found = explain(q, Strategy(dp=16, ep=16, weight_dtype="fp8", batch=64, two_batch_overlap=1)).decode
    ops = times(found)
    assert ops["two_batch_overlap"] < 0
    link = sum(t for name, t in ops.items() if name.startswith("moe_"))
    assert -ops["two_batch_overlap"] <= float(q.setting.engine.overlap_fraction) * link * (1 + 1e-9)
    # what is hidden is not exposed
    assert found.comm_share < link / found.step_s.value


def test_what_a_prefill_dispatch_hides_is_paid_in_cores():
    """20 of 132 cores are held while it runs: of one batch's communication at most 112 / 132 are won."""
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    row = Strategy(dp=16, ep=16, weight_dtype="fp8", batch=64, two_batch_overlap=1)
    ops = times(explain(q, row).prefill)
    link = sum(t for name, t in ops.items() if name.startswith("moe_"))
    assert q.setting.engine.dispatch_cores == 20
    assert 0 < -ops["two_batch_overlap"] <= float(q.setting.engine.overlap_fraction) * 112 / 132 * link * (1 + 1e-9)


def test_drafts_are_told_apart():
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    one, two = (times(explain(q, Strategy(tp=8, weight_dtype="fp8", batch=8, mtp=k)).decode) for k in (1, 2))
    assert two["mtp_lm_head"] == pytest.approx(2 * one["mtp_lm_head"])
    assert "mtp_attention_core" in one


@pytest.mark.parametrize(("depth", "tokens"), [(1, 16), (2, 32), (3, 48)])
def test_the_first_pass_of_the_draft_layer_is_over_all_tokens_just_verified(depth, tokens):
    """8 sequences, k drafts: 8 (1 + k) tokens, then k - 1 passes over 8; the head sees one of each sequence."""
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    found = explain(q, Strategy(tp=8, weight_dtype="fp8", batch=8, mtp=depth)).decode
    flops = {op.name: op.flops for op in found.ops}
    assert flops["mtp_mtp_proj"] == 2 * tokens * 2 * 7168 * 7168
    assert flops["mtp_lm_head"] == 2 * 8 * depth * 7168 * 129280 / 8


def test_a_draft_layer_in_16_bit_reads_twice_the_bytes_of_its_fp8_self():
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    of = q.setting.model
    wide = of.model_copy(update={"weights": of.weights.model_copy(update={"mtp": "bf16"})})
    row = Strategy(tp=8, weight_dtype="fp8", batch=1, mtp=1)
    narrow, own = (explain(replace(q, setting=replace(q.setting, model=m)), row) for m in (of, wide))
    before, after = ({op.name: op.bytes for op in found.decode.ops} for found in (narrow, own))
    assert after["mtp_routed_experts"] / before["mtp_routed_experts"] == pytest.approx(2.0, rel=0.01)
    changed = {name for name in before if after[name] != before[name]}
    assert changed and all(name.startswith("mtp_") for name in changed)
    # a byte more for each of 11.5e9 parameters over 8 chips, of which projection and latents are whole on each
    more = own.memory.items["weight_bytes"] - narrow.memory.items["weight_bytes"]
    assert more == pytest.approx(11.5e9 / 8, rel=0.1)


def test_without_drafts_no_draft_is_told():
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    assert "mtp_lm_head" not in times(explain(q, Strategy(tp=8, weight_dtype="fp8", batch=8)).decode)


def test_memory_adds_up_and_says_what_it_holds():
    q = question("deepseek-r1", "h200-sxm", work=WORK)
    found = explain(q, Strategy(tp=8, ep=8, weight_dtype="fp8", batch=8)).memory
    items = dict(found.items)
    held = items.pop("kv_bytes")
    assert found.total_bytes == pytest.approx(sum(items.values()) + held)
    # 8 sequences of 5120 tokens, 70,272 B each
    assert held == 8 * 5120 * 70_272
    assert found.kv_tokens == math.floor((found.usable_bytes - sum(items.values())) / 70_272)


def test_unknown_loads_of_experts_widen_the_band_both_ways():
    """At 32 tokens a step the even end touches more experts and the uneven end fewer; a dense model has none."""
    st, work = Strategy(tp=8, weight_dtype="fp8", batch=32), Workload(1024, 512, concurrency=32)
    q = question("deepseek-v3", "h200-sxm", work=work)
    even = replace(q, setting=replace(q.setting, engine=q.setting.engine._replace(load_spread=exactly(0.81))))
    wide, narrow = (explain(one, st).served.tpot_s for one in (q, even))
    assert wide.value == narrow.value
    assert wide.low < narrow.low
    assert wide.high > narrow.high


def test_an_expert_imbalance_widens_the_band_upwards():
    q = question("deepseek-v3", "h200-sxm", "sglang", WORK, redundant_experts=16)
    served = explain(q, Strategy(dp=16, ep=16, weight_dtype="fp8", batch=4)).served
    for figure in (served.ttft_s, served.tpot_s, served.tok_s_chip, served.tok_s_user, served.requests_per_s):
        assert figure.low < figure.value < figure.high
    factor = float(q.setting.engine.imbalance)
    known = question("deepseek-v3", "h200-sxm", "sglang", WORK, redundant_experts=16, imbalance=factor)
    same = explain(known, Strategy(dp=16, ep=16, weight_dtype="fp8", batch=4)).served
    assert same.tpot_s.value == served.tpot_s.value
    assert same.tpot_s.high < served.tpot_s.high


def test_without_a_balancer_the_law_of_loads_widens_the_band():
    q = question("deepseek-v3", "h200-sxm", "sglang", WORK)
    assert not q.setting.engine.balanced
    st = Strategy(dp=16, ep=16, weight_dtype="fp8", batch=4)
    law, sure = (
        replace(q, setting=replace(q.setting, engine=q.setting.engine._replace(rank_spread=s)))
        for s in (q.setting.engine.rank_spread, exactly(q.setting.engine.rank_spread.value))
    )
    wide, narrow = explain(law, st).served.tpot_s, explain(sure, st).served.tpot_s
    assert wide.value == narrow.value
    assert wide.low < narrow.low
    assert wide.high > narrow.high


@pytest.mark.parametrize("degrees", [{"tp": 16}, {"tp": 8, "pp": 2}, {"tp": 8, "dp": 2, "ep": 16}])
def test_across_nodes_without_a_network_memory_is_told_and_no_time(degrees):
    q = question("deepseek-v2-lite", "k3", work=WORK)
    found = explain(q, Strategy(batch=4, **degrees))
    assert (found.decode, found.prefill, found.served) == (None, None, None)
    assert [code for code, _, _ in found.reasons] == ["MLA107"]
    assert found.memory.kv_tokens > 0


def test_the_doubt_of_launches_reaches_as_far_as_the_device_lets_it():
    """Launches of 1 s that may take 0.5 to 2 s: beside 0.8 s of device work down to that, beside 1.5 s only up."""
    from types import SimpleNamespace

    from mlaplan.costs.breakdown import _layer_host
    from mlaplan.costs.engine import Interval
    from mlaplan.costs.machine import Op

    s = SimpleNamespace(engine=SimpleNamespace(prefill_layer_host_s=Interval(1.0, 0.5, 2.0)))
    bound = [Op("q_b", "gemm.bf16", 0.8), Op("host_launch", "host", 0.2), Op("host_overhead", "host", 0.3)]
    assert _layer_host(s, bound, 1.0) == pytest.approx((0.2, 1.0))
    device = [Op("q_b", "gemm.bf16", 1.5), Op("host_overhead", "host", 0.3)]
    assert _layer_host(s, device, 1.0) == pytest.approx((0.0, 0.5))
    assert _layer_host(s, device, 0.0) == (0.0, 0.0)
