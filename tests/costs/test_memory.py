"""Memory by hand, and that shards add up: no byte is lost, none is counted twice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar.cases import divisors
from scalar.cases import model as shipped

from mlaplan.costs import memory, params
from mlaplan.costs.memory import Shards
from mlaplan.costs.pipeline import LayerKind, layer_kinds
from mlaplan.costs.precision import part_dtype, quantised, stored_bytes
from mlaplan.engines.load import load_profile

from . import round as r

ONE = Shards(1, 1, 1, 1, 1)
KIND = LayerKind(("a",), ("f",))
MODELS = ["deepseek-v3", "deepseek-v3.2", "glm-5.2", "longcat-flash", "kimi-k2.5", "llama-3-70b", "mixtral-8x7b"]


def test_weights_of_a_layer_by_hand():
    # attention 937,300 and its absorbed copy of kv_b 88,000; FFN 6,000,000 and its norm 1000; 2 B each
    assert memory.layer_weight_bytes(r.model(), KIND, ONE, "bf16") == 2 * (937_300 + 88_000 + 6_001_000)
    # TP4: q_b, kv_b, o and the FFN are divided, q_a, kv_a and norms are whole
    whole, divided = 200_000 + 120_000 + 1300 + 1000, 128_000 + 2 * 88_000 + 400_000 + 6_000_000
    found = memory.layer_weight_bytes(r.model(), KIND, Shards(4, 1, 1, 1, 1), "bf16")
    assert found == 2 * (whole + divided / 4)


def test_prefill_context_parallel_leaves_attention_whole():
    one = memory.layer_weight_bytes(r.model(), KIND, ONE, "bf16")
    cp = memory.layer_weight_bytes(r.model(), KIND, Shards(4, 1, 1, 1, 4), "bf16")
    assert one - cp == 2 * 6_000_000 * 3 / 4


def test_weights_of_experts_by_hand():
    model = r.model(ffn=r.MOE)
    whole = 320_000 + 1300 + 20_000 + 1000
    # 8 ranks hold the experts as EP4 x MoE-TP2, attention and shared expert over TP2
    found = memory.layer_weight_bytes(model, KIND, Shards(2, 4, 4, 1, 1), "bf16")
    assert found == 2 * (whole + (616_000 + 2 * 88_000 - 88_000 + 1_500_000) / 2 + 5 * 1_500_000 / 2)
    # with 4 redundant copies a rank stores 6 experts
    more = memory.layer_weight_bytes(model, KIND, Shards(2, 4, 4, 1, 1), "bf16", 4)
    assert more - found == 2 * 1_500_000 / 2


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_weights_of_all_ranks_are_the_model_and_what_is_replicated(name, data):
    """Sum over the ranks of a stage = divided parts once per DP rank, experts once, whole parts on every rank."""
    model = shipped(name)
    target = quantised(model)
    tp, dp = data.draw(st.sampled_from([1, 2, 4, 8])), data.draw(st.sampled_from([1, 2, 4]))
    moe = any(f.kind == "moe" for f in model.ffn.values())
    experts = max(getattr(f, "experts", 1) for f in model.ffn.values())
    ep = data.draw(st.sampled_from([e for e in divisors(tp * dp) if experts % e == 0])) if moe else 1
    s = Shards(tp, dp, ep, 1, 1)
    for kind in layer_kinds(model):
        matrices = [m for n in kind.attention for m in params.attention_matrices(model, n)]
        matrices += [m for n in kind.ffn for m in params.ffn_matrices(model, n)]
        expected = 0.0
        for m in matrices:
            size = m.params * stored_bytes(model, part_dtype(model, m.part, target))
            kv_heads = next((a.kv_heads for a in model.attention.values() if a.kind == "gqa"), tp)
            repeats = {"tp": dp, "none": tp * dp, "moe": 1, "kv": dp * max(tp // kv_heads, 1)}[m.split]
            expected += size * repeats
            if m.name == "kv_b":  # the 16-bit copy that absorbed decode multiplies
                expected += m.params * 2 * dp
        found = tp * dp * float(memory.layer_weight_bytes(model, kind, s, target))
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_unsharded_layers_and_vocabulary_are_the_checkpoint(name):
    """All layers at TP1, without the absorbed copies: every parameter at its stored width."""
    model = shipped(name)
    total = 2 * model.hidden_size  # the last norm
    for count, matrices in params.blocks(model):
        widths = [stored_bytes(model, part_dtype(model, m.part, quantised(model))) for m in matrices]
        total += count * sum(m.params * width for m, width in zip(matrices, widths, strict=True))
    total += memory.vocabulary_bytes(model, "embedding", ONE)
    total += 0 if model.tied_embeddings else memory.vocabulary_bytes(model, "lm_head", ONE)
    counts = params.params_total(model)
    assert 0.5 * counts <= total <= 2.001 * counts
    if quantised(model) == "bf16":
        assert total == pytest.approx(2 * counts, rel=1e-9)


# ---- cache ----


def test_cache_of_a_layer_by_layout():
    model = r.model()
    args = {"replicated": 240, "sequence_sharded": 60, "latent_sharded": (25 + 20) * 2}
    for layout, expected in args.items():
        s = Shards(4, 1, 1, 4 if layout == "sequence_sharded" else 1, 1)
        assert memory.layer_kv_bytes(model, KIND, s, layout, "bf16") == expected


def test_tensor_parallel_does_not_divide_the_latent():
    found = [memory.layer_kv_bytes(r.model(), KIND, Shards(tp, 1, 1, 1, 1), "replicated", "bf16") for tp in (1, 2, 8)]
    assert found == [240, 240, 240]


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from(["bf16", "fp8"]))
def test_cache_of_all_ranks_is_one_cache(ranks, dtype):
    model, row = r.model(r.SPARSE), {"bf16": 240.0, "fp8": 120.0}[dtype] + 24
    sharded = memory.layer_kv_bytes(model, KIND, Shards(ranks, 1, 1, ranks, 1), "sequence_sharded", dtype)
    assert ranks * sharded == pytest.approx(row, rel=1e-14)
    # rotary keys are on every rank
    dense = r.model()
    latent = memory.layer_kv_bytes(dense, KIND, Shards(ranks, 1, 1, 1, 1), "latent_sharded", dtype)
    width = 2.0 if dtype == "bf16" else 1.0
    assert ranks * latent == pytest.approx((100 + 20 * ranks) * width, rel=1e-14)


# ---- the rest ----


def test_activations_by_hand():
    # 100 tokens: residual 2 x 100 x 1000; attention 2 x 100 x 8 x 130 = 208,000; FFN 3 x 100 x 2000
    assert memory.activation_bytes(r.model(), ONE, 100, 2.0, 1.0, False) == 2 * (200_000 + 600_000)
    # TP4 leaves 150,000 of the FFN and 52,000 of the heads
    found = memory.activation_bytes(r.model(), Shards(4, 1, 1, 1, 1), 100, 2.0, 1.0, False)
    assert found == 2 * (200_000 + 150_000)


def test_logits_by_hand():
    # 3 sequences of 2 positions, 10,000 numbers in 2 and in 4 B
    assert memory.logit_bytes(r.model(), 3, 2) == 6 * 10_000 * 6


def test_activations_of_experts_by_hand():
    # 4 ranks x 100 tokens x 4 of 20 over EP4: 400 rows of 1000 and 3 x 500; 400 gathered tokens of 1000, if they are
    for gathers in (True, False):
        found = memory.activation_bytes(r.model(ffn=r.MOE), Shards(1, 4, 4, 1, 1), 100, 1.0, 1.0, gathers)
        assert found == 2 * (100_000 + 400 * 2500 + 400_000 * gathers)


def test_workspace_of_chunked_prefill_is_4_gib_and_half_a_gib_at_tp8():
    v3 = shipped("deepseek-v3")
    rows = load_profile("vllm").memory.prefill_workspace.rows(10**9, 1, 64)
    assert rows == 65536
    expanded = memory.mla_workspace_bytes(v3, ONE, rows) - rows * 1152
    assert expanded == 4 * 2**30
    assert memory.mla_workspace_bytes(v3, Shards(8, 1, 1, 1, 1), rows) - rows * 1152 == 2**29
    # sparse attention expands nothing
    assert memory.mla_workspace_bytes(shipped("deepseek-v3.2"), ONE, rows) == 0


def test_memory_takes_columns():
    model = shipped("deepseek-v3")
    tp, dp, ep = np.array([1, 8, 2]), np.array([1, 1, 16]), np.array([1, 8, 32])
    one = np.ones(3, dtype=int)
    kind = layer_kinds(model)[1]
    table = memory.layer_weight_bytes(model, kind, Shards(tp, dp, ep, one, one), "fp8")
    for i in range(3):
        s = Shards(int(tp[i]), int(dp[i]), int(ep[i]), 1, 1)
        assert table[i] == pytest.approx(float(memory.layer_weight_bytes(model, kind, s, "fp8")), rel=1e-15)
