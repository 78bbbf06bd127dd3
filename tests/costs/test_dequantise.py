"""Widening a cache with scales per group, by hand: the round chip's vector units widen a number in a picosecond.

4 TFLOP/s, half of it reached, 2 FLOP a number: 1e12 numbers a second. Its norm of 1 adds times up.
"""

import numpy as np
import pytest

from mlaplan.costs import gqa, kv, mla, sparse
from mlaplan.costs.engine import CoreMode
from mlaplan.costs.machine import bound_of

from . import round as r

TILES = {"fp8_ds_mla": CoreMode("upcast", pass_heads=4)}
GROUPS = {"int8": CoreMode("upcast")}
SPARSE, GQA = r.model(r.SPARSE), r.model(r.GQA)


def decode(context=1000, tp=1, batch=2, kv_dtype="fp8_ds_mla", modes=TILES, model=SPARSE):
    m = r.machine(model, kv_dtype=kv_dtype, core_modes=modes)
    a, shape = m.model.attention["a"], mla.DecodeShape(batch, 1, context, tp)
    return r.named(mla.decode_ops(m, a, shape) if a.kind == "mla" else gqa.decode_ops(m, a, shape))


def prefill(tokens, past=0, tp=1, kv_dtype="fp8_ds_mla", modes=TILES, model=SPARSE):
    m = r.machine(model, kv_dtype=kv_dtype, core_modes=modes)
    a = m.model.attention["a"]
    kept = float(sparse.causal_selected_pairs(past, tokens, 100)) if a.kind == "mla" else 0.0
    shape = mla.PrefillShape(tokens, tokens * (past + tokens / 2), past + tokens, tp, 1, kept)
    return r.named(mla.prefill_ops(m, a, shape) if a.kind == "mla" else gqa.prefill_ops(m, a, shape))


def test_what_has_a_scale_per_group():
    latent, grouped = SPARSE.attention["a"], GQA.attention["a"]
    assert kv.scaled_numbers(latent, "fp8_ds_mla") == 100  # the rotary key is in 16 bit
    assert kv.scaled_numbers(grouped, "int8") == 2 * 2 * 50
    assert [kv.scaled_numbers(grouped, d) for d in ("bf16", "fp16", "fp8")] == [0, 0, 0]


def test_a_sparse_core_widens_each_querys_own_selection():
    op = decode()["kv_dequantise"]
    # 2 queries, 100 keys each, 100 latent numbers: 20,000 numbers
    assert op.compute_s == pytest.approx(20_000 / 1e12, rel=1e-14)
    assert op.time_s == pytest.approx(20_000 / 1e12, rel=1e-9)  # with a norm of 1 nothing hides
    assert (op.flops, op.bytes, op.group, bound_of(op)) == (0, 0, "kv_dequantise.fp8_ds_mla", "vector")


def test_heads_share_a_tile_up_to_a_block_of_64():
    assert decode(tp=8)["kv_dequantise"].time_s == pytest.approx(decode()["kv_dequantise"].time_s, rel=1e-9)
    wide = r.model(r.SPARSE | {"heads": 128})
    assert decode(model=wide)["kv_dequantise"].compute_s == 2 * decode()["kv_dequantise"].compute_s


def test_a_hard_maximum_hides_the_shorter_of_both(monkeypatch):
    """Products of 2 x 100 x 64 x 220 x 2 FLOP at half of 100 TFLOP/s, 36.6 kB at half of 1 TB/s; 20 ns of widening."""
    chip = r.chip()
    fit = chip.efficiency["sparse_mla_decode"]["fp8_ds_mla"]
    hard = chip.model_copy(
        update={
            "efficiency": {
                **chip.efficiency,
                "sparse_mla_decode": {"fp8_ds_mla": fit.model_copy(update={"norm": np.inf})},
            }
        }
    )
    monkeypatch.setattr(r, "chip", lambda: hard)
    products_s, memory_s = 2 * 2 * 100 * 64 * 220 / 50e12, decode()["attention_core"].bytes / 0.5e12
    assert decode()["kv_dequantise"].time_s == 0.0
    assert max(products_s, memory_s) > 20_000 / 1e12
    slow = hard.model_copy(update={"vector": {"fp32": hard.vector["fp32"].model_copy(update={"value": 0.1e12})}})
    monkeypatch.setattr(r, "chip", lambda: slow)
    assert decode()["kv_dequantise"].time_s == pytest.approx(20_000 / 0.025e12 - max(products_s, memory_s), rel=1e-9)


def test_a_prompt_reads_its_cache_through_one_pass():
    ops = prefill(200, past=50)
    # 250 keys: 100 numbers each on the vector units, 156 B read and 120 x 2 B written; then 120 x 2 B read by the core
    assert ops["kv_dequantise"].time_s == pytest.approx(1e-6 + 250 * 100 / 1e12 + 250 * (156 + 240) / 0.5e12, rel=1e-14)
    assert bound_of(ops["kv_dequantise"]) == "latency"
    assert ops["attention_core"].bytes == 250 * 240 + 200 * 8 * 220 * 2


def test_with_few_heads_a_prompt_goes_through_the_decode_kernel():
    ops = prefill(200, past=50, tp=4)  # 2 heads a chip, a pass from 4 on
    pairs = float(sparse.causal_selected_pairs(50, 200, 100))
    assert ops["kv_dequantise"].compute_s == pytest.approx(pairs * 100 / 1e12, rel=1e-14)
    assert ops["kv_dequantise"].bytes == 0
    assert ops["attention_core"].bytes == 250 * 156 + 200 * 2 * 220 * 2


def test_rows_with_many_and_few_heads_are_priced_together():
    both = prefill(200, past=50, tp=np.array([1, 4]))
    apart = [prefill(200, past=50, tp=tp) for tp in (1, 4)]
    for name in ("kv_dequantise", "attention_core"):
        assert both[name].time_s == pytest.approx([float(ops[name].time_s) for ops in apart], rel=1e-13)


def test_int8_groups_of_key_value_heads():
    op = decode(kv_dtype="int8", modes=GROUPS, model=GQA)["kv_dequantise"]
    assert op.compute_s == pytest.approx(2 * 1000 * 200 / 1e12, rel=1e-14)
    # each of two ranks holds one of the two heads
    assert decode(kv_dtype="int8", modes=GROUPS, model=GQA, tp=2)["kv_dequantise"].compute_s == op.compute_s / 2
    earlier = prefill(200, past=50, kv_dtype="int8", modes=GROUPS, model=GQA)["kv_dequantise"]
    row = 200 + 200 / 128 * 2
    assert earlier.time_s == pytest.approx(1e-6 + 50 * 200 / 1e12 + 50 * (row + 400) / 0.5e12, rel=1e-14)
    # a first chunk finds nothing in the cache
    assert prefill(200, kv_dtype="int8", modes=GROUPS, model=GQA)["kv_dequantise"].time_s == 0.0


@pytest.mark.parametrize(
    ("model", "kv_dtype", "modes"),
    [
        (SPARSE, "bf16", TILES),
        (SPARSE, "fp8", {"fp8": CoreMode("upcast")}),
        (SPARSE, "fp8_ds_mla", {"fp8_ds_mla": CoreMode("native")}),
        (GQA, "bf16", GROUPS),
        (GQA, "fp8", {"fp8": CoreMode("native")}),
    ],
)
def test_other_caches_have_no_such_operator(model, kv_dtype, modes):
    assert "kv_dequantise" not in decode(kv_dtype=kv_dtype, modes=modes, model=model)
    assert "kv_dequantise" not in prefill(200, past=50, kv_dtype=kv_dtype, modes=modes, model=model)
