"""Shared experts by hand: apart, in the grouped kernel, on a second stream; norms inside the all-reduce."""

import math

import numpy as np
import pytest

from mlaplan.costs import dense, moe
from mlaplan.costs.engine import FusedSum
from mlaplan.costs.shared_experts import APART, Beside

from . import round as r

ROUND = r.model(ffn=r.MOE)


def block(beside, tokens=2, tp=1, ep=1, decode=True, **changes):
    m = r.machine(ROUND, **changes)
    shape = moe.MoeShape(tokens, tp, 1, ep, 1, decode)
    return r.named(moe.ffn_ops(m, m.model.ffn["f"], shape, moe.MoeChoice(False, beside=beside)))


SHARED = ("shared_expert_gate_up", "shared_expert_activation", "shared_expert_down")


def test_fused_they_are_experts_that_every_token_visits():
    ops = block(Beside("fused"))
    # 2 tokens x (4 + 1) experts: 10 rows on 7.2 + 1 experts
    experts = ops["routed_experts"]
    assert experts.flops == pytest.approx(10 * 6 * 1000 * 500)
    assert experts.bytes == pytest.approx(8.2 * 3 * 500_000 * 2 + 10 * 4000 * 2, rel=1e-12)
    assert not set(SHARED) & set(ops)


def test_fused_only_where_the_engine_does_it():
    apart = block(APART)
    for beside, ep, decode in (
        (Beside("fused", (256,)), 1, True),  # 20 experts are none of those
        (Beside("fused", with_ep=False), 4, True),
        (Beside("fused", prefill=False), 1, False),
    ):
        ops, plain = block(beside, tp=4, ep=ep, decode=decode), block(APART, tp=4, ep=ep, decode=decode)
        assert {n: op.time_s for n, op in ops.items()} == {n: op.time_s for n, op in plain.items()}
    assert set(SHARED) <= set(apart)


def test_a_column_of_ep_degrees_is_fused_row_by_row():
    ops = block(Beside("fused", with_ep=False), tp=4, ep=np.array([1, 4]))
    alone = [block(Beside("fused", with_ep=False), tp=4, ep=ep) for ep in (1, 4)]
    for i, one in enumerate(alone):
        assert ops["routed_experts"].time_s[i] == pytest.approx(one["routed_experts"].time_s)
    assert ops["shared_expert_down"].time_s[0] == 0
    assert ops["shared_expert_down"].time_s[1] == pytest.approx(alone[1]["shared_expert_down"].time_s)


def test_on_a_second_stream_their_traffic_is_left():
    plain, ops = block(APART), block(Beside("overlapped"))
    whole = sum(plain[name].time_s for name in SHARED)
    # 3 matrices of 500,000 in 16 bit, rows in and out twice, three activations out and in
    moved = 3 * 500_000 * 2 + (2 * 2 * 1000 + 6 * 2 * 500) * 2
    assert plain["routed_experts"].time_s > whole
    assert sum(ops[name].time_s for name in SHARED) == pytest.approx(moved / 1e12)
    assert ops["routed_experts"].time_s == plain["routed_experts"].time_s
    assert ops["shared_expert_down"].flops == plain["shared_expert_down"].flops


def test_what_routed_experts_do_not_cover_is_left_too():
    """Experts divided over 20 ranks take less time than the whole shared one."""
    plain, ops = (block(b, tokens=64, tp=20, ep=20) for b in (APART, Beside("overlapped")))
    whole, routed = sum(plain[name].time_s for name in SHARED), plain["routed_experts"].time_s
    left = sum(ops[name].time_s for name in SHARED)
    assert left == pytest.approx(max(whole - routed, sum(ops[name].bytes for name in SHARED) / 1e12))


def test_on_ranks_of_their_own_they_wait_for_nobody_but_the_busiest():
    """4 of 24 ranks have the shared expert: 20 experts over 20 ranks, 16 tokens for each of the 4, one copy more."""

    def found(beside, ep=24, dispatch=True, tokens=8):
        m = r.machine(ROUND)
        shape = moe.MoeShape(tokens, 1, 24, ep, 1, True)
        choice = moe.MoeChoice(dispatch, gather=not dispatch, beside=beside)
        return r.named(moe.ffn_ops(m, m.model.ffn["f"], shape, choice))

    own, apart = found(Beside("ranks", ranks=4)), found(APART)
    rows = 8 * 24 * 4 / 20  # 4 of 20 experts a token
    assert own["routed_experts"].flops == pytest.approx(rows * 6 * 1000 * 500)
    assert apart["routed_experts"].flops == pytest.approx(rows * 20 / 24 * 6 * 1000 * 500)
    assert own["moe_dispatch"].link_bytes == pytest.approx(apart["moe_dispatch"].link_bytes * 5 / 4)
    # what the shared ranks need beyond the routed ones: 192 / 4 rows
    m = r.machine(ROUND)
    whole = sum(op.time_s for op in dense.gated_ops(m, "shared_expert", "shared", 48, 500))
    routed = sum(own[n].time_s for n in ("routed_experts", "expert_activation"))
    left = sum(own[name].time_s for name in SHARED)
    assert left == pytest.approx(max(whole - routed, 0.0)) and left < sum(apart[name].time_s for name in SHARED)
    # no more ranks than are set apart: every rank keeps its own, row by row
    column = found(Beside("ranks", ranks=4), ep=np.array([4, 24]), dispatch=False)
    plain = found(APART, ep=4, dispatch=False)
    assert [column[n].time_s[0] for n in SHARED] == pytest.approx([plain[n].time_s for n in SHARED])
    assert column["routed_experts"].flops[0] == pytest.approx(plain["routed_experts"].flops)


def test_a_norm_inside_the_all_reduce_takes_no_time_of_its_own():
    m = r.machine(ROUND, fused_sum=FusedSum(math.inf))
    assert np.all(m.norm("n", np.array([10, 10]), np.array([1, 4])).time_s > np.array([0, -1]))
    assert m.norm("n", 10, np.array([1, 4])).time_s[1] == 0
    one, four = (r.named(dense.ffn_ops(m, r.model().ffn["f"], 10, tp, 1)) for tp in (1, 4))
    assert one["ffn_norm"].bytes == 4 * 10 * 1000 * 2
    assert four["ffn_norm"].time_s == 0
