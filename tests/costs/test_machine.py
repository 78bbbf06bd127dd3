"""Operators of one chip, by hand on round figures: 1 us + TFLOP / 50 + GB / 500."""

import math

import numpy as np
import pytest
from scalar.cases import chip as shipped
from scalar.cases import model as shipped_model

from mlaplan.costs.collectives import Group
from mlaplan.costs.engine import CoreMode
from mlaplan.costs.kernels import Work
from mlaplan.costs.machine import Machine, Op, bound_of, link_op

from . import round as r

BF16 = r.model()
FP8 = r.model(weights={"default": "fp8", "block": [128, 128], "scale_bytes": 4})


def test_gemm_pads_rows_to_tiles_and_counts_flop_without_them():
    op = r.machine(BF16).gemm("x", "attention", 20, 1000, 500)
    assert op.flops == 2 * 20 * 1000 * 500
    # 20 rows are two tiles of 16
    assert op.compute_s == pytest.approx(2 * 32 * 1000 * 500 / 50e12, rel=1e-14)
    # weights 1,000,000 B, in 40,000 B, out 20,000 B
    assert op.bytes == 1_060_000
    assert op.memory_s == pytest.approx(1_060_000 / 0.5e12, rel=1e-14)
    assert op.time_s == pytest.approx(1e-6 + 0.64e-6 + 2.12e-6, rel=1e-14)


def test_gemm_in_fp8_runs_at_the_fp8_peak_and_streams_scales_too():
    op = r.machine(FP8, "fp8").gemm("x", "attention", 16, 1000, 500)
    assert op.group == "gemm.fp8_block"
    assert op.compute_s == pytest.approx(2 * 16 * 1000 * 500 / 100e12, rel=1e-14)
    assert op.bytes == pytest.approx(500_000 * (1 + 4 / 16384) + 32_000 + 16_000, rel=1e-14)


def test_gemm_of_upcast_weights_is_a_16_bit_one():
    op = r.machine(FP8, "bf16").gemm("x", "attention", 16, 1000, 500)
    assert op.group == "gemm.bf16"
    assert op.bytes == 1_000_000 + 48_000


def test_a_part_the_checkpoint_leaves_in_16_bit_stays_there():
    assert r.machine(FP8, "fp8").gemm("x", "lm_head", 16, 1000, 500).group == "gemm.bf16"


def test_per_head_products():
    op = r.machine(BF16).per_head("x", 10, 8, 60, 100)
    assert op.flops == 8 * 2 * 10 * 60 * 100
    assert op.compute_s == pytest.approx(8 * 2 * 16 * 60 * 100 / 50e12, rel=1e-14)
    assert op.bytes == 8 * 2 * (6000 + 600 + 1000)


def test_experts_are_one_call():
    # 3 matrices of 1000 x 500 in each of 5 experts, 40 rows as 80 of tiles
    op = r.machine(BF16).experts("x", 40, 80, 5, 20, 500, False)
    assert op.flops == 40 * 2 * 3 * 1000 * 500
    assert op.bytes == 5 * 3 * 500_000 * 2 + 40 * (2 * 1000 + 4 * 500) * 2
    assert op.time_s == pytest.approx(r.kernel_s(2 * op.flops, op.bytes), rel=1e-14)


def test_elementwise_kernels_only_move_memory():
    op = r.machine(BF16).elementwise("x", 5e6)
    assert op.time_s == pytest.approx(1e-6 + 10e-6, rel=1e-14)
    assert (op.flops, op.compute_s) == (0, 0)


def test_a_core_uses_the_caches_dtype_or_16_bit_where_the_engine_widens_it():
    native = r.machine(BF16, kv_dtype="fp8").core("x", "mla_decode", Work(1e9, 2e9, 1e6))
    assert native.group == "mla_decode.fp8"
    assert native.compute_s == pytest.approx(2e9 / 100e12, rel=1e-14)
    modes = {"fp8": CoreMode("upcast")}
    wide = r.machine(BF16, kv_dtype="fp8", core_modes=modes).core("x", "mla_decode", Work(1e9, 2e9, 1e6))
    assert wide.group == "mla_decode.bf16"
    assert wide.compute_s == pytest.approx(2e9 / 50e12, rel=1e-14)


def test_widening_the_whole_pool_is_traffic_of_its_own():
    assert r.machine(BF16, kv_dtype="fp8").cache_cast(1e9) == []
    modes = {"fp8": CoreMode("cast_pool", 3.0, 0.25)}
    (op,) = r.machine(BF16, kv_dtype="fp8", core_modes=modes).cache_cast(1e6)
    # one fp8 read and one bf16 write per element at a quarter of 1 TB/s
    assert op.bytes == 3e6
    assert op.time_s == pytest.approx(12e-6, rel=1e-14)


def test_collective_takes_the_engines_kernel_for_small_messages_only():
    plain = r.machine(BF16).collective("x", "all_reduce", 1e6, Group(8))
    own = r.machine(BF16, custom_all_reduce=((8, 1e6),))
    # V = 2 x 7/8 x 1 MB: 9 us + 1.75 MB / 200 GB/s, and 4 us + 1.75 MB / 100 GB/s
    assert plain.time_s == pytest.approx(9e-6 + 8.75e-6, rel=1e-14)
    assert plain.link_bytes == 1.75e6
    assert own.collective("x", "all_reduce", 1e5, Group(8)).time_s == pytest.approx(4e-6 + 1.75e-6, rel=1e-14)
    # at 1 MB NCCL is faster, above the limit it is the only one
    assert own.collective("x", "all_reduce", 1e6, Group(8)).time_s == plain.time_s
    assert own.collective("x", "all_reduce", 1e5 + 1e6, Group(8)).time_s > 18e-6
    # no such kernel for 4 ranks
    assert own.collective("x", "all_reduce", 1e5, Group(4)).time_s > 7e-6


def test_operators_take_columns():
    m = r.machine(BF16)
    rows = np.array([1, 16, 20, 300])
    for one in (
        lambda t: m.gemm("x", "attention", t, 1000, 500),
        lambda t: m.per_head("x", t, 8, 60, 100),
        lambda t: m.collective("x", "all_reduce", 1e4 * t, Group(8)),
        lambda t: m.elementwise("x", 1e4 * t),
    ):
        assert one(rows).time_s.tolist() == pytest.approx([float(one(int(t)).time_s) for t in rows], rel=1e-15)


def test_what_binds_an_operator():
    assert bound_of(Op("x", "gemm.bf16", 10e-6, compute_s=6e-6, memory_s=3e-6, floor_s=1e-6)) == "compute"
    assert bound_of(Op("x", "gemm.bf16", 10e-6, compute_s=3e-6, memory_s=6e-6, floor_s=1e-6)) == "memory"
    assert bound_of(Op("x", "gemm.bf16", 10e-6, compute_s=3e-6, memory_s=1e-6, floor_s=6e-6)) == "latency"
    assert bound_of(link_op("x", 1.0, 1.0, 0.1)) == "link"
    for group in ("host", "bubble", "overlap"):
        assert bound_of(Op("x", group, 1.0)) == group


def test_scaling_repeats_time_and_work_alike():
    op = r.machine(BF16).gemm("x", "attention", 20, 1000, 500)
    three = op.scaled(3)
    assert (three.time_s, three.flops, three.bytes) == (3 * op.time_s, 3 * op.flops, 3 * op.bytes)
    assert (three.name, three.residual) == (op.name, op.residual)


@pytest.mark.parametrize(("heads", "measured_us"), [(16, 216.5), (128, 272.3)])
def test_absorbed_decode_on_h100_is_what_was_measured(heads, measured_us):
    """128 sequences of 4096 tokens, bf16: 216.5 us with 16 heads, 272.3 us with 128 (aiconfigurator mla tables)."""
    from mlaplan.costs import mla

    v3 = shipped_model("deepseek-v3")
    m = Machine(shipped("h100-sxm"), v3, r.engine(), "fp8", "bf16")
    shape = mla.DecodeShape(128, 1, 4096, 128 // heads)
    core = r.named(mla.decode_ops(m, v3.attention["mla"], shape))["attention_core"]
    assert math.isclose(float(core.time_s), measured_us * 1e-6, rel_tol=0.25)
