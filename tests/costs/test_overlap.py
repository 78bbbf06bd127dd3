"""Gathering the cache in slices: compute in tiles, modes by hand, the sweep's plateau and its two cliffs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs import chunks, overlap, slices
from mlaplan.costs.overlap import Choice, Rates, Work
from mlaplan.specs.lookup import load_chip, load_model

V2 = load_model("deepseek-v2").attention["mla"]
K3 = load_chip("k3")
# 1 GB/s, 10 us of latency, 1 us a descriptor, 2 us a switch, 5 us a kernel, 1 TFLOP/s, 1 GFLOP/s, 10 GB/s
ROUND = Rates(1e9, 10e-6, 1e-6, 2e-6, 5e-6, 1e12, 1e9, 10e9, np.inf, 1, 1, 1)
WORK = Work(V2, "absorbed", 4, 1000, 16, 4)


def test_received_bytes() -> None:
    assert WORK.received_bytes == 0.75 * 4 * 1000 * 1152
    assert replace(WORK, kv_dtype="fp8").received_bytes == 0.75 * 4 * 1000 * 576
    assert replace(WORK, from_memory=True).received_bytes == 4 * 1000 * 1152


def test_compute_by_hand() -> None:
    assert overlap.compute_s(WORK, ROUND, 100) == pytest.approx(100 * 2 * 16 * 1088 / 1e12)
    naive = replace(WORK, form="naive")
    assert overlap.compute_s(naive, ROUND, 100) == pytest.approx(100 * 16 * 2 * (512 * 256 + 320) / 1e12)
    # two chunks of one query each recover keys and values twice
    two = replace(naive, q_len=2, q_chunk=1)
    assert overlap.whole_s(two, ROUND) == pytest.approx(2 * overlap.whole_s(naive, ROUND))


def test_compute_in_tiles_and_waves() -> None:
    r = ROUND._replace(cores=4, row_tile=64, token_tile=64)
    one = 64 * 64 * 2 * 1088 / (1e12 / 4)
    # 16 rows are one tile of rows: 1 token or 256 tokens are one wave of four cores, 257 are two
    assert overlap.compute_s(WORK, r, 1) == pytest.approx(one)
    assert overlap.compute_s(WORK, r, 256) == pytest.approx(one)
    assert overlap.compute_s(WORK, r, 257) == pytest.approx(2 * one)


def test_serial_by_hand() -> None:
    comm = 10e-6 + 3456000 / 1e9
    memory = (3456000 + 4608000) / 10e9
    compute = 4000 * 2 * 16 * 1088 / 1e12
    assert overlap.serial_s(WORK, ROUND) == pytest.approx(comm + 5e-6 + max(memory, compute))


def test_fused_by_hand() -> None:
    # 3.456 MB in slices of 1 MB are four of 864 KB; each task takes 1000 tokens, its share of the own part included
    a = 864000 / 1e9
    b = 2e-6 + 1000 * 2 * 16 * 1088 / 1e12 + 2 * 16 * 512 / 1e9
    found = overlap.fused_s(WORK, ROUND, 1e6, 4)
    assert found == pytest.approx(5e-6 + 1e-6 + a + 10e-6 + b + 3 * a)
    assert slices.timeline(overlap.pipeline(WORK, ROUND, 1e6, 4)).total_s == pytest.approx(found)


@given(st.integers(1, 64), st.integers(64, 8192), st.sampled_from(["absorbed", "naive"]), st.integers(12, 20))
@settings(max_examples=40, deadline=None)
def test_closed_form_and_timeline_of_a_chip_agree(batch: int, context: int, form: str, power: int) -> None:
    work = Work(V2, form, batch, context, 16, 8)
    r = overlap.rates(K3, 8, form)
    size = max(2.0**power, float(work.received_bytes) / 400)  # a few hundred slices at most
    for depth in (1, 2, 5):
        p = overlap.pipeline(work, r, size, depth)
        assert slices.timeline(p).total_s == pytest.approx(float(overlap.fused_s(work, r, size, depth)))


def test_the_plateau_has_two_cliffs() -> None:
    """K3, keys and values recovered: descriptors and switches below, fill and staging above."""
    plan = chunks.gather_plan(K3, V2, "naive", 32, 2048, 16, 8)
    by: dict[tuple[int, int], Choice] = {(c.slice_bytes, c.depth): c for c in plan.sweep}
    assert len(by) == 9 * 16
    best = min(c.step_s for c in plan.sweep)
    assert by[4096, 16].step_s > 3 * best
    assert by[2**20, 16].spill_s > 0
    assert by[2**20, 16].step_s > 1.5 * best
    level = [c for c in plan.sweep if c.on_plateau]
    assert {c.slice_bytes for c in level} == {2**k for k in (17, 18, 19, 20)}
    assert plan.picked in level
    assert (plan.picked.slice_bytes, plan.picked.depth) == (128 * 1024, 4)
    # a single buffer is serial however large its slice
    assert not any(c.depth == 1 for c in level)


def test_depth_covers_latency_and_jitter() -> None:
    p = slices.Pipeline(100, 4, transfer_s=2.0, compute_s=1.0, latency_s=3.0)
    # L = 6, m = 2: three buffers, four with a slice up to 2 late
    assert overlap.depth_for(p) == 3
    assert overlap.depth_for(p, 2.0) == 4
    assert overlap.depth_for(p, 2.1) == 5
    assert overlap.jitter_covered_s(p) == 2.0
    late = [0.0] * 50 + [2.0] + [0.0] * 49
    assert slices.timeline(p, late_s=late).total_s == pytest.approx(slices.timeline(p).total_s, abs=2.0)


def test_best_slice_where_compute_sets_the_pace() -> None:
    """T(s) = s / W + V / s o: the overhead for which a slice is best is the one at which its neighbours are worse."""
    size = 2.0**17
    o = overlap.optimal_overhead_s(WORK, ROUND, size)
    v, w = float(WORK.received_bytes), 1e9

    def step(s: float) -> float:
        return s / w + v / s * o

    assert step(size) < min(step(size * 0.9), step(size * 1.1))


def test_modes_of_k3_stay_above_the_floor_of_overlap() -> None:
    for form in ("absorbed", "naive"):
        plan = chunks.gather_plan(K3, V2, form, 32, 2048, 16, 8)
        serial, chunked, fused, deep = plan.modes
        link = float(plan.work.received_bytes) / plan.rates.link_bytes_per_s
        assert serial.step_s > chunked.step_s > deep.step_s
        assert fused.step_s >= deep.step_s * (1 - overlap.PLATEAU)
        assert all(m.step_s >= max(m.compute_s, link) for m in plan.modes)
        assert 0 < deep.utilisation <= 1


def test_where_slices_pay() -> None:
    plan = chunks.gather_plan(K3, V2, "naive", 32, 2048, 16, 8)
    found = chunks.border(plan, (32, 2048))
    # the more sequences, the shorter the context from which on it pays
    paying = [c for c in found.contexts if c is not None]
    assert paying == sorted(paying, reverse=True)
    assert 0.4 < found.decode_saved < 0.5
    assert found.prefill_saved < 0
    # a cost as large as the saving at that point moves the border there
    moved = chunks.border(plan, (32, 2048), cost_s=found.implied_s * 0.999)
    assert moved.contexts[moved.batches.index(32)] == 2048
    assert moved.contexts[moved.batches.index(8)] == 8192


def test_own_memory_on_known_chips() -> None:
    """FlashMLA's tile on an SM: 64 rows, slices of 64 tokens, two of them. Whole sequences to a core of SC11."""
    h100 = chunks.local_plan(load_chip("h100-sxm"), V2, 128, 32, 8192)
    assert (h100.heads, h100.slice_tokens, h100.depth, h100.fit.spilled) == (64, 64, 2, ())
    assert h100.fit.levels == ("registers", "shared_memory")
    sc11 = chunks.local_plan(load_chip("sc11"), V2, 16, 128, 512)
    assert (sc11.scheme.name, sc11.fit.levels) == ("batch", ("local_memory",))
    ascend = chunks.local_plan(load_chip("ascend-910b3"), V2, 16, 32, 8192)
    assert ascend.fit.spilled == ()
    assert "L0C" in ascend.fit.levels


def test_draft_tokens_are_query_rows() -> None:
    found = chunks.local_plan(load_chip("h100-sxm"), V2, 32, 8, 4096, q_len=4)
    assert found.q_chunk * found.heads == 64


def test_a_network_has_its_own_rate_and_latency() -> None:
    h100 = load_chip("h100-sxm")
    inside, outside = overlap.tier(h100, 8), overlap.tier(h100, 16)
    assert inside[0] > 5 * outside[0]
    assert outside[1] > inside[1]
