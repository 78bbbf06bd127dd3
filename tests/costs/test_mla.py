"""MLA by hand: work of the cores, what its blocks consist of, what sharing the cache changes."""

import numpy as np
import pytest
from scalar.cases import chip as shipped_chip
from scalar.cases import model as shipped

from mlaplan.costs import mla
from mlaplan.costs.machine import Machine

from . import round as r

V3 = shipped("deepseek-v3").attention["mla"]
ROUND = r.model()


def decode(batch=2, q_len=1, context=100, tp=1, dcp=1, layout="replicated", m=None):
    m = m or r.machine(ROUND)
    return r.named(mla.decode_ops(m, m.model.attention["a"], mla.DecodeShape(batch, q_len, context, tp, dcp, layout)))


# ---- work ----


def test_absorbed_core_work():
    # 2 sequences, 3 queries, 10 tokens, 4 heads: scores over 100 + 20, outputs over 100 numbers
    assert mla.core_flops(2, 3, 10, 4, 100, 20) == 2 * 2 * 3 * 10 * 4 * (120 + 100)
    # 20 rows of 240 B; queries and outputs of 4 heads in 16 bit
    assert mla.core_bytes(2, 3, 10, 4, 100, 20, 240) == 2 * 10 * 240 + 6 * 4 * (120 + 100) * 2


def test_naive_core_work():
    # 7 pairs, 4 heads: scores over 60 + 20, outputs over 50
    assert mla.naive_core_flops(7, 4, 60, 20, 50) == 2 * 7 * 4 * 130


def test_intensity_of_absorbed_decode_is_that_of_its_heads():
    # FLOP per cached byte: 2 h (2 x 512 + 64) / 1152 = 1.889 h
    for heads in (16, 128):
        flops = mla.core_flops(1, 1, 1000, heads, 512, 64)
        assert flops / (1000 * 1152) == pytest.approx(1.889 * heads, rel=1e-3)


def test_absorbing_costs_more_flop_than_cached_keys_and_less_than_expanding_them():
    absorbed = mla.core_flops(1, 1, 1, 1, 512, 64)
    cached = mla.naive_core_flops(1, 1, 128, 64, 128)
    assert (absorbed, cached) == (2176, 640)
    assert absorbed / cached == pytest.approx(3.4)
    expanded = cached + 2 * 512 * (128 + 128)
    assert expanded / absorbed == pytest.approx(120.8, abs=0.1)


# ---- where the cache lies ----


def test_gathering_queries_beats_gathering_the_cache_above_242_tokens():
    # q: 128 x 576 x 2 = 147,456 B; O: 128 x 512 x 2 = 131,072 B; 1152 B per token
    assert mla.query_gather_bytes(128, 512, 64) == 147_456
    assert mla.output_merge_bytes(128, 512, 2.0, 0.0) == 131_072
    assert mla.gather_crossover_tokens(V3, 2.0, 0.0) == pytest.approx((147_456 + 131_072) / 1152)
    assert round(mla.gather_crossover_tokens(V3, 2.0, 0.0)) == 242


def test_with_fp32_outputs_and_their_sums_it_is_356():
    # O: 128 x (512 x 4 + 4) = 262,656 B
    assert mla.output_merge_bytes(128, 512) == 262_656
    assert mla.gather_crossover_tokens(V3) == (147_456 + 262_656) / 1152 == 356


@pytest.mark.parametrize(
    ("weights", "width", "tokens"),
    [("up", 1, 47_332), ("up", 2, 94_663), ("whole", 1, 149_276), ("divided", 1, 162_418)],
)
def test_break_even_of_repeated_cache_and_repeated_weights(weights, width, tokens):
    """fp8 and bf16 up-projections; all fp8 weights with replicated and with divided down-projections."""
    up, whole = mla.attention_weight_elements(V3, 7168)
    divided = mla.attention_weight_elements(V3, 7168, replicated_down=False)[1]
    # q_b 1536 x 128 x 192, kv_b 512 x 128 x 256, o 128 x 128 x 7168, q_a and kv_a 7168 x (1536 + 576)
    assert (up, whole, divided) == (54_525_952, 171_966_464, 187_105_280)
    elements = {"up": up, "whole": whole, "divided": divided}[weights]
    assert round(mla.break_even_tokens(elements * width, 1152)) == tokens


# ---- blocks ----


def test_a_decode_block_by_hand():
    ops = decode()
    assert list(ops) == [
        "attention_norm", "qkv_a", "latent_norm_rope", "q_b", "absorb_q", "attention_core", "absorb_o", "o_proj",
        "attention_all_reduce",
    ]  # fmt: skip
    # 2 tokens: in and out of the residual and the norm, 4 x 2 x 1000 x 2 B
    assert ops["attention_norm"].bytes == 16_000
    # [2, 1000] x [1000, 200 + 120], 16 rows
    assert ops["qkv_a"].time_s == pytest.approx(r.kernel_s(2 * 16 * 1000 * 320, 640_000 + 4000 + 1280), rel=1e-14)
    # [2, 200] x [200, 8 x 80]
    assert ops["q_b"].bytes == 200 * 640 * 2 + 2 * 200 * 2 + 2 * 640 * 2
    # 8 heads of [2, 60] x [60, 100]
    assert ops["absorb_q"].flops == 8 * 2 * 2 * 60 * 100
    # 8 rows are a tile of 64, 100 tokens are 128: 2 x 2 x 128 x 64 x 220
    core = ops["attention_core"]
    assert core.flops == 2 * 2 * 100 * 8 * 220
    assert core.bytes == 2 * 100 * 240 + 2 * 8 * 220 * 2
    assert core.time_s == pytest.approx(r.kernel_s(2 * 2 * 128 * 64 * 220, core.bytes), rel=1e-14)
    assert ops["o_proj"].flops == 2 * 2 * 400 * 1000
    assert ops["attention_all_reduce"].time_s == 0


def test_without_a_query_latent_there_is_one_projection_less():
    m = r.machine(r.model(r.MLA | {"q_lora_rank": None}))
    ops = decode(m=m)
    assert "q_b" not in ops
    assert ops["q_proj"].flops == 2 * 2 * 1000 * 640
    assert ops["kv_a"].flops == 2 * 2 * 1000 * 120


def test_tensor_parallel_divides_heads_but_not_the_cache():
    one, four = decode(tp=1), decode(tp=4)
    q_and_o = 2 * 8 * 220 * 2
    assert one["attention_core"].bytes - q_and_o == four["attention_core"].bytes - q_and_o / 4 == 2 * 100 * 240
    assert four["q_b"].flops == one["q_b"].flops / 4
    assert four["qkv_a"].flops == one["qkv_a"].flops
    # V = 2 x 3/4 x 2 x 1000 x 2 B
    assert four["attention_all_reduce"].link_bytes == 6000


def test_fewer_heads_than_a_tile_cost_as_much_as_the_tile():
    """64 query rows are one tile: below it the core's FLOP do not fall, only its bytes."""
    padded = [decode(tp=tp)["attention_core"].compute_s for tp in (1, 2, 4, 8)]
    assert len(set(map(float, padded))) == 1
    # 9 queries of 8 heads are 72 rows: two tiles
    assert decode(q_len=9)["attention_core"].compute_s == 2 * padded[0]


def test_that_padding_is_free_where_memory_binds_and_not_where_compute_does():
    v3 = shipped("deepseek-v3")
    time = {}
    for name in ("h100-sxm", "h20"):
        m = Machine(shipped_chip(name), v3, r.engine(), "fp8", "bf16")
        for heads in (16, 64):
            shape = mla.DecodeShape(128, 1, 4096, 128 // heads)
            time[name, heads] = float(r.named(mla.decode_ops(m, V3, shape))["attention_core"].time_s)
    for name in ("h100-sxm", "h20"):
        assert time[name, 16] == pytest.approx(time[name, 64], rel=0.1)
    # on the H20 the 16 heads need four times the time that their own FLOP would
    peak = float(shipped_chip("h20").peak["bf16"])
    own = mla.core_flops(128, 1, 4096, 16, 512, 64) / peak
    assert time["h20", 16] > 3 * own


def test_sequence_sharded_decode_by_hand():
    ops = decode(tp=4, dcp=4, layout="sequence_sharded")
    core = ops["attention_core"]
    # all 8 heads over 25 of 100 tokens
    assert core.flops == 2 * 2 * 25 * 8 * 220
    assert core.bytes == 2 * 25 * 240 + 2 * 8 * 220 * 2
    # q of 8 heads in 16 bit, LSE of 8 heads of 4 ranks, fp32 outputs: 3/4 of each travels
    assert ops["dcp_query_gather"].link_bytes == 2 * 8 * 120 * 2 * 3 / 4
    assert ops["dcp_lse_gather"].link_bytes == 2 * 8 * 4 * 4 * 3 / 4
    assert ops["dcp_output_merge"].link_bytes == 2 * 8 * 400 * 3 / 4


def test_ranks_that_hold_all_heads_gather_none():
    """Prefill context parallel leaves all heads on every rank: dcp shares the sequence, not the heads."""
    m, a = r.machine(ROUND), ROUND.attention["a"]
    whole = r.named(mla.decode_ops(m, a, mla.DecodeShape(2, 1, 100, 1, 4, "sequence_sharded")))["attention_core"]
    assert whole.flops == 2 * 2 * 25 * 8 * 220


def test_latent_sharded_decode_by_hand():
    ops = decode(tp=4, layout="latent_sharded")
    core = ops["attention_core"]
    # all heads on 25 of 100 latent and 5 of 20 rotary numbers
    assert core.flops == 2 * 2 * 100 * 8 * (2 * 25 + 5)
    # fp32 scores out and in again, then the 25 latent numbers once more as values
    assert core.bytes == 2 * 100 * (25 + 5) * 2 + 2 * 8 * 55 * 2 + 2 * 2 * 8 * 100 * 4 + 2 * 100 * 25 * 2
    # fp32 scores of every head and token
    assert ops["latent_score_all_reduce"].link_bytes == 2 * 8 * 100 * 4 * 2 * 3 / 4
    # queries of 120 numbers there, outputs of 100 back, each rank a quarter of the heads
    assert ops["latent_query_exchange"].link_bytes == 2 * 8 * 120 * 2 / 4 * 3 / 4
    assert ops["latent_output_exchange"].link_bytes == 2 * 8 * 100 * 2 / 4 * 3 / 4


def test_a_prefill_block_by_hand():
    m = r.machine(ROUND)
    # 32 new tokens after 68: pairs 32 x (68 + 16), keys 100
    shape = mla.PrefillShape(32, 32 * 84, 100, 2)
    ops = r.named(mla.prefill_ops(m, m.model.attention["a"], shape))
    assert ops["kv_b"].flops == 2 * 100 * 100 * 4 * 110
    core = ops["attention_core"]
    assert core.flops == 2 * 32 * 84 * 4 * 130
    assert core.bytes == (32 + 100) * 4 * 130 * 2
    assert core.group == "mla_prefill.bf16"
    assert ops["o_proj"].flops == 2 * 32 * 200 * 1000
    assert ops["latent_gather"].time_s == 0


def test_prefill_context_parallel_divides_tokens_and_gathers_latents():
    m = r.machine(ROUND)
    a = m.model.attention["a"]
    whole = r.named(mla.prefill_ops(m, a, mla.PrefillShape(64, 64 * 32, 64, 1)))
    shared = r.named(mla.prefill_ops(m, a, mla.PrefillShape(64, 64 * 32, 64, 1, 4)))
    assert shared["q_b"].flops == whole["q_b"].flops / 4
    assert shared["attention_core"].flops == whole["attention_core"].flops / 4
    # every rank expands the keys of all tokens
    assert shared["kv_b"].flops == whole["kv_b"].flops
    assert shared["latent_gather"].link_bytes == 64 * 120 * 2 * 3 / 4


def test_blocks_take_columns():
    m = r.machine(ROUND)
    batch, context = np.array([1, 2, 7, 64]), np.array([1, 63, 64, 1000])
    table = mla.decode_ops(m, m.model.attention["a"], mla.DecodeShape(batch, 1, context, np.array([1, 2, 4, 8])))
    for i in range(4):
        one = mla.decode_ops(
            m, m.model.attention["a"], mla.DecodeShape(int(batch[i]), 1, int(context[i]), (1, 2, 4, 8)[i])
        )
        for column, scalar in zip(table, one, strict=True):
            assert np.broadcast_to(column.time_s, 4)[i] == pytest.approx(float(scalar.time_s), rel=1e-15)
