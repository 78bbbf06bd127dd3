"""Mixture of experts by hand: who is touched, how rows are tiled, which way tokens take."""

import math

import numpy as np
import pytest
from scalar.cases import model as shipped

from mlaplan.costs import moe, params
from mlaplan.costs.machine import Machine
from mlaplan.costs.operators import split

from . import round as r

ROUND = r.model(ffn=r.MOE)


def block(tokens=10, tp=1, dp=1, ep=1, cp=1, is_decode=True, model=ROUND, choice=None):
    m, shape = r.machine(model), moe.MoeShape(tokens, tp, dp, ep, cp, is_decode)
    return r.named(moe.ffn_ops(m, m.model.ffn["f"], shape, choice or moe.MoeChoice(False)))


def test_an_expert_rank_stores_copies_of_hot_experts_too():
    f = ROUND.ffn["f"]
    assert moe.local_experts(f, 4) == 5
    assert moe.local_experts(f, 4, 4) == 6
    assert moe.local_experts(f, np.array([3, 20])).tolist() == [7, 1]


def test_a_block_by_hand():
    ops = block(2)
    assert ops["router"].flops == 2 * 2 * 1000 * 20
    assert ops["router_top_k"].bytes == 2 * 20 * 4
    experts = ops["routed_experts"]
    # 2 tokens x 4 experts: 8 rows on 7.2 experts, each padded to 16
    assert experts.flops == pytest.approx(8 * 6 * 1000 * 500)
    assert experts.compute_s == pytest.approx(7.2 * 16 * 6 * 1000 * 500 / 50e12, rel=1e-12)
    assert experts.bytes == pytest.approx(7.2 * 3 * 500_000 * 2 + 8 * 4000 * 2, rel=1e-12)
    assert ops["shared_expert_gate_up"].flops == 2 * 2 * 1000 * 1000
    assert ops["shared_expert_down"].flops == 2 * 2 * 500 * 1000


def test_expert_parallel_divides_experts_and_moe_tensor_parallel_their_width():
    ep, tp = block(64, tp=4, ep=4)["routed_experts"], block(64, tp=4, ep=1)["routed_experts"]
    # all 20 experts are touched: 5 whole ones, or 20 of a quarter of the width
    weights = 5 * 3 * 500_000 * 2
    assert ep.bytes == pytest.approx(weights + 64 * 4 / 4 * (2 * 1000 + 4 * 500) * 2, rel=1e-5)
    assert tp.bytes == pytest.approx(weights + 64 * 4 * (2 * 1000 + 4 * 125) * 2, rel=1e-5)


def test_full_tiles_stay_full():
    """160 tokens x 4 of 20 experts: 32 rows each, two tiles of 16, though the expectation is 32.00000000000001."""
    experts = block(160)["routed_experts"]
    assert experts.compute_s * 50e12 == pytest.approx(experts.flops, rel=1e-12)


def test_imbalance_adds_rows_to_the_busiest_expert_rank_only():
    even = block(64, tp=4, ep=4)["routed_experts"]
    skew = block(64, tp=4, ep=4, choice=moe.MoeChoice(False, imbalance=1.5))["routed_experts"]
    assert skew.flops == pytest.approx(1.5 * even.flops)
    one = moe.MoeChoice(False, imbalance=1.5)
    assert block(64, choice=one)["routed_experts"].time_s == block(64)["routed_experts"].time_s


def test_without_a_balancer_the_busiest_rank_has_what_the_law_says():
    """64 tokens x 4 choices over 4 ranks of 5 experts: v^2 = 3 of an expert is 0.6 of a rank, the draw 4 / 256."""
    spread = math.sqrt(math.log(4.0))
    even = block(64, tp=4, ep=4)["routed_experts"]
    law = moe.MoeChoice(False, balanced=False, rank_spread=spread)
    factor = 1 + 1.0491314 * math.sqrt(0.75 * (0.6 + 4 / 256))
    busiest = block(64, tp=4, ep=4, choice=law)["routed_experts"]
    assert busiest.flops == pytest.approx(factor * even.flops, rel=1e-6)
    assert block(64, choice=law)["routed_experts"].time_s == block(64)["routed_experts"].time_s


def test_zero_experts_take_choices_and_cost_nothing():
    f = r.MOE | {"zero_experts": 10, "experts_per_token": 6}
    model = r.model(ffn=f)
    # 6 of 30 choices, 20 of them with weights: 4 on average
    assert params.routed_per_token(model.ffn["f"]) == 4
    ops = block(10, model=model)
    assert ops["routed_experts"].time_s == block(10)["routed_experts"].time_s
    assert ops["router"].flops == 2 * 10 * 1000 * 30
    # LongCat-Flash: 12 of 512 + 256
    assert params.routed_per_token(shipped("longcat-flash").ffn["moe"]) == 8


def test_gathered_tokens_meet_all_others_of_the_stage():
    ops = block(10, tp=2, dp=4, ep=8)
    assert ops["routed_experts"].flops == pytest.approx(10 * 4 * 4 / 8 * 6 * 1000 * 500)
    # 4 data-parallel ranks of 10 tokens of 2000 B: 3/4 of 80 kB each way, and the sum over two tensor ranks
    assert ops["moe_dp_gather"].link_bytes == ops["moe_dp_scatter"].link_bytes == 60_000
    assert ops["moe_all_reduce"].link_bytes == 20_000
    assert "moe_dispatch" not in ops


def test_dispatched_tokens_travel_once_per_copy():
    # tokens at 32 of 1000 chips' worth: dispatch beats an all-gather over 8 data-parallel ranks
    ops = block(64, tp=1, dp=8, ep=8, choice=moe.MoeChoice(True, False, False))
    # 64 tokens x 4 copies x (1000 + 1000/128 x 4) B
    assert ops["moe_dispatch"].link_bytes == pytest.approx(64 * 4 * 1031.25)
    assert ops["moe_combine"].link_bytes == pytest.approx(64 * 4 * 2000)
    assert ops["moe_dp_gather"].time_s == 0
    assert ops["moe_dp_gather"].link_bytes == 0


@pytest.mark.parametrize("tokens", [1, 16, 256, 4096])
@pytest.mark.parametrize("is_decode", [True, False])
def test_the_faster_way_is_taken(tokens, is_decode):
    def time_s(choice):
        m, shape = r.machine(ROUND), moe.MoeShape(tokens, 2, 8, 16, 1, is_decode)
        return float(sum(split(moe.ffn_ops(m, m.model.ffn["f"], shape, choice))))

    ways = ((True, True), (False, True), (True, False))
    both, gather, dispatch = (time_s(moe.MoeChoice(dispatch, False, gather)) for dispatch, gather in ways)
    assert both == pytest.approx(min(gather, dispatch), rel=1e-14)


def test_one_column_may_hold_rows_of_either_way():
    m = r.machine(ROUND)
    f, choice = m.model.ffn["f"], moe.MoeChoice()
    tokens, dp, ep = np.array([1, 64, 4096]), np.array([1, 8, 8]), np.array([1, 8, 8])
    table = split(moe.ffn_ops(m, f, moe.MoeShape(tokens, np.ones(3, dtype=int), dp, ep), choice))
    for i in range(3):
        one = split(moe.ffn_ops(m, f, moe.MoeShape(int(tokens[i]), 1, int(dp[i]), int(ep[i])), choice))
        for column, expected in zip(table, one, strict=True):
            assert column[i] == pytest.approx(float(expected), rel=1e-14)


def test_behind_a_dispatch_runs_the_kernel_fitted_there():
    fit = r.chip().kernel("grouped_gemm", "bf16")
    faster = {"grouped_gemm_ep": {"bf16": fit.model_copy(update={"floor": 0.0})}}
    chip = r.chip().model_copy(update={"efficiency": r.chip().efficiency | faster})
    f, shape = ROUND.ffn["f"], moe.MoeShape(64, 1, 8, 8)

    def experts_s(choice, on):
        machine = Machine(on, ROUND, r.engine(), "bf16", "bf16")
        return float(r.named(moe.ffn_ops(machine, f, shape, choice))["routed_experts"].time_s)

    dispatch, gather = moe.MoeChoice(True, False, False), moe.MoeChoice(False, False, True)
    assert experts_s(dispatch, chip) == pytest.approx(experts_s(gather, chip) - 1e-6, rel=1e-12)
    # a chip without such a fit has one kernel for both
    assert experts_s(dispatch, r.chip()) == experts_s(gather, r.chip())


def test_an_engine_may_dispatch_over_all_ranks_only():
    partial, whole = (block(64, 1, 8, ep, choice=moe.MoeChoice(True, True, False)) for ep in (4, 8))
    assert "moe_dispatch" not in partial
    assert whole["moe_dispatch"].time_s > 0
