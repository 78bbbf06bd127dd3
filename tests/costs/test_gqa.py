"""Grouped queries by hand."""

import pytest
from scalar.cases import model as shipped

from mlaplan.costs import gqa, memory
from mlaplan.costs.mla import DecodeShape, PrefillShape
from mlaplan.costs.pipeline import LayerKind

from . import round as r

ROUND = r.model(r.GQA)


def decode(tp=1, dcp=1, q_len=1):
    m = r.machine(ROUND)
    layout = "sequence_sharded" if dcp > 1 else "replicated"
    return r.named(gqa.decode_ops(m, m.model.attention["a"], DecodeShape(2, q_len, 100, tp, dcp, layout)))


def test_a_decode_block_by_hand():
    ops = decode()
    # 8 query, 2 key and 2 value heads of 50
    assert ops["qkv_proj"].flops == 2 * 2 * 1000 * 600
    core = ops["attention_core"]
    assert core.flops == 4 * 2 * 100 * 8 * 50
    # 200 rows of 400 B; 2 x 8 heads of 50 in and out
    assert core.bytes == 200 * 400 + 2 * 2 * 8 * 50 * 2
    # the 4 queries of a KV head fill 16 rows, 100 tokens are 128
    assert core.compute_s == pytest.approx(4 * 2 * 128 * (2 * 16) * 50 / 50e12, rel=1e-14)
    assert ops["o_proj"].flops == 2 * 2 * 400 * 1000


def test_key_value_heads_are_divided_until_they_repeat():
    a = ROUND.attention["a"]
    assert [gqa.local_kv_share(a, tp) for tp in (1, 2, 4, 8)] == [1, 0.5, 0.5, 0.5]
    per_chip = [decode(tp=tp)["attention_core"].bytes - 2 * 2 * 8 / tp * 50 * 2 for tp in (1, 2, 4)]
    assert per_chip == [200 * 400, 200 * 200, 200 * 200]


def test_decode_context_parallel_shares_the_sequence_among_repeats():
    ops = decode(tp=4, dcp=2)
    # 2 heads a rank, 4 in a pair of ranks; one KV head over 50 tokens
    assert ops["attention_core"].flops == 4 * 2 * 50 * 4 * 50
    assert ops["attention_core"].bytes == 2 * 50 * 200 + 2 * 2 * 4 * 50 * 2
    assert ops["dcp_output_merge"].link_bytes == 2 * 4 * 50 * 4 / 2


def test_a_prefill_block_by_hand():
    m = r.machine(ROUND)
    ops = r.named(gqa.prefill_ops(m, m.model.attention["a"], PrefillShape(32, 32 * 84, 100, 2)))
    core = ops["attention_core"]
    assert core.flops == 4 * 32 * 84 * 4 * 50
    # q and o of 4 heads, keys and values of one
    assert core.bytes == (2 * 32 * 4 + 2 * 100 * 1) * 50 * 2


def test_llama_70b_per_token_and_per_chip():
    """2 x 80 layers x 8 heads x 128 x 2 B; TP4 PP2 leaves two heads of 40 layers on a chip."""
    llama = shipped("llama-3-70b")
    kind = LayerKind(("gqa",), ("dense",))

    def per_layer(tp):
        return memory.layer_kv_bytes(llama, kind, memory.Shards(tp, 1, 1, 1, 1), "replicated", "bf16")

    assert 80 * per_layer(1) == 327_680
    assert 40 * per_layer(4) == 40_960
    # with as many ranks as KV heads, and more, a chip keeps one head
    assert per_layer(8) == per_layer(16) == 512


def test_replicated_mla_is_2_25_times_eight_key_value_heads_under_tp8():
    v3, llama, tp8 = shipped("deepseek-v3"), shipped("llama-3-70b"), memory.Shards(8, 1, 1, 1, 1)
    latent = memory.layer_kv_bytes(v3, LayerKind(("mla",), ("moe",)), tp8, "replicated", "bf16")
    heads = memory.layer_kv_bytes(llama, LayerKind(("gqa",), ("dense",)), tp8, "replicated", "bf16")
    assert (latent, heads) == (1152, 512)
    assert latent / heads == 2.25
