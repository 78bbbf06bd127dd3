"""Dense blocks, shared expert and head under attention DP: on one DP rank's chips, or on all of the stage."""

import pytest
from scalar.cases import question

from mlaplan.costs import placement
from mlaplan.explain import explain
from mlaplan.strategy import Strategy
from mlaplan.workload import Workload

HIDDEN, VOCABULARY, LAYERS, DENSE = 7168, 163_840, 61, 1


def weights(engine, **degrees):
    q = question("kimi-k2", "h20-3e", engine, Workload(4000, 1500))
    s = Strategy(**degrees, weight_dtype="fp8", prefill_chunk=1024, batch=2)
    return explain(q, s, served=False).memory.items["weight_bytes"]


def test_where_everyones_tokens_are_gathered_they_are_divided_over_all():
    """TP8 against attention DP8 in SGLang: only the attention and the embedding are held more often."""
    up = 1536 * 64 * 192 + 512 * 64 * 256 + 64 * 128 * HIDDEN  # q_b, kv_b, o_proj: 7 of 8 parts more
    absorbed = 512 * 64 * 256 * 2
    repeated = 7 / 8 * (LAYERS * (up * (1 + 4 / 128**2) + absorbed) + VOCABULARY * HIDDEN * 2)
    found = weights("sglang", tp=1, dp=8, ep=1) - weights("sglang", tp=8, ep=1)
    assert found == pytest.approx(repeated, rel=1e-9)


def test_elsewhere_each_attention_dp_rank_has_its_own():
    """An engine that divides them over TP alone holds head, shared expert and dense layer eight times."""
    block = 1 + 4 / 128**2
    shared = (LAYERS - DENSE) * 3 * HIDDEN * 2048 * block
    dense = DENSE * 3 * HIDDEN * 18_432 * block
    head = VOCABULARY * HIDDEN * 2
    more = weights("vllm", tp=1, dp=8, ep=1) - weights("sglang", tp=1, dp=8, ep=1)
    assert more == pytest.approx(7 / 8 * (shared + dense + head), rel=1e-9)


def test_behind_a_dispatch_the_shared_expert_is_whole_and_the_rest_stays_with_its_rank():
    e = question("deepseek-v3", "h200-sxm", "sglang").setting.engine
    assert placement.ranks(e, 2, 4, 8) == (2, 1, 2)
    assert placement.ranks(e, 2, 4, 4) == (8, 8, 8)  # DeepEP takes experts over all ranks only
    assert placement.ranks(e, 8, 1, 8) == (8, 8, 8)
    assert placement.ranks(question("deepseek-v3", "h200-sxm", "vllm").setting.engine, 2, 4, 8) == (2, 2, 2)


def test_a_gathered_head_sees_everyones_rows_and_keeps_a_part_of_the_vocabulary():
    q = question("kimi-k2", "h20-3e", "sglang", Workload(4000, 1500), memory_fraction=0.95)
    at = Strategy(tp=1, dp=8, ep=1, weight_dtype="fp8", prefill_chunk=1024, batch=6)
    ops = {op.name: op for op in explain(q, at, decode_context=4750, served=False).decode.ops}
    assert ops["lm_head"].flops == pytest.approx(2 * 48 * HIDDEN * VOCABULARY / 8)
    assert ops["head_dp_gather"].link_bytes == pytest.approx(7 / 8 * 48 * HIDDEN * 2)
    assert ops["dense_dp_gather"].link_bytes == ops["dense_dp_scatter"].link_bytes == ops["head_dp_gather"].link_bytes
    assert ops["shared_expert_down"].flops == pytest.approx((LAYERS - DENSE) * 2 * 48 * HIDDEN * 2048 / 8)


def test_activations_lie_outside_the_share_of_an_engine_that_says_so():
    """SGLang: the share is weights and cache. As much is outside as the share leaves free, and no more."""
    outside = {}
    for fraction in (0.9, 0.99):
        q = question("deepseek-v3", "h200-sxm", "sglang", memory_fraction=fraction)
        items = explain(q, Strategy(tp=8, ep=1, weight_dtype="fp8", batch=8), served=False).memory.items
        held = sum(items[k] for k in ("activation_bytes", "workspace_bytes", "graph_bytes"))
        left_free = (1 - fraction) * float(q.setting.chip.memory.capacity)
        outside[fraction] = (-items["outside_fraction_bytes"], held, left_free)
    assert outside[0.9][0] == pytest.approx(outside[0.9][1])
    assert outside[0.99][0] == pytest.approx(outside[0.99][2])
    assert outside[0.99][0] < outside[0.99][1]
