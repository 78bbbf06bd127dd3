"""Attention over the cores of a chip: hand-computed schemes on round figures, and what SC11's article says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import mapping
from mlaplan.costs.mapping import Cores, Decode
from mlaplan.costs.mla import attention_weight_elements
from mlaplan.specs.lookup import load_chip, load_model

V3 = load_model("deepseek-v3").attention["mla"]
SC11 = load_chip("sc11")
UP_BYTES = attention_weight_elements(V3, 7168)[0] * 2 / 8  # bf16, over eight chips
# a core: 1 TFLOP/s, 10 GB/s of memory, 40 GB/s of L2, 1 GFLOP/s of vector, syncs of 1 us, tiles of 16 rows and tokens
ROUND = Cores(8, 1e12, 10e9, 40e9, 1e9, 1e-6, 16, 16, True)


def one(name: str, d: Decode, cores: Cores = ROUND) -> mapping.Scheme:
    return {s.name: s for s in mapping.schemes(d, cores)}[name]


def test_batch_over_cores_by_hand() -> None:
    s = one("batch", Decode(V3, 16, 12, 1000))
    # 12 sequences on 8 cores are two rounds; 1000 tokens are 63 tiles of 16
    assert s.compute_s == pytest.approx(2 * 2 * 1008 * 16 * 1088 / 1e12)
    assert s.memory_s == pytest.approx(2 * 1000 * 1152 / 10e9)
    assert s.l2_s == pytest.approx(2 * 1000 * 1152 / 40e9)
    assert s.step_s == pytest.approx(s.memory_s + 1e-6)
    assert (s.used, s.bound) == (8, "memory")


def test_heads_over_cores_by_hand() -> None:
    s = one("heads", Decode(V3, 16, 3, 1024))
    # two heads a core fill a tile of 16 rows; all cores read all of the cache from L2, at 40 GB/s each
    assert s.compute_s == pytest.approx(3 * 2 * 1024 * 16 * 1088 / 1e12)
    assert s.memory_s == pytest.approx(3 * 1024 * 1152 / 80e9)
    assert s.l2_s == pytest.approx(3 * 1024 * 1152 / 40e9)
    assert s.used == 8


def test_sequence_over_cores_by_hand() -> None:
    s = one("sequence", Decode(V3, 16, 3, 1024))
    assert s.compute_s == pytest.approx(3 * 2 * 128 * 16 * 1088 / 1e12)
    # every partial output and log-sum-exp goes to L2 and back: 8 partials of 16 x 513 in fp32, over 8 cores at 40 GB/s
    exchange = 2 * 8 * 16 * 513 * 4 / (8 * 40e9)
    vector = 3 * 8 * 16 * 512 / (8 * 1e9)
    assert s.merge_s == pytest.approx(3 * (exchange + vector) + 2e-6)


def test_mixed_is_between() -> None:
    s = one("mixed", Decode(V3, 16, 2, 4096), ROUND._replace(vector_flops_per_s=1e12))
    assert s.parts == 4
    assert s.used == 8
    assert s.memory_s == pytest.approx(1024 * 1152 / 10e9)


@given(st.integers(1, 256), st.integers(1, 2**17), st.integers(1, 128))
def test_the_best_scheme_is_first_and_no_faster_than_memory(batch: int, context: int, heads: int) -> None:
    found = mapping.schemes(Decode(V3, heads, batch, context), ROUND)
    assert [s.step_s for s in found] == sorted(s.step_s for s in found)
    assert found[0].step_s >= batch * context * 1152 / 80e9
    assert all(s.used <= ROUND.number for s in found)


def test_table_2_of_the_sc11_article_again() -> None:
    """Few sequences: split each over cores. As many as cores or more: whole ones to a core, however long."""
    found = mapping.table(SC11, V3, 16, (1, 2, 4, 8, 128), (512, 2048, 32768))
    best = {key: (schemes[0].name, schemes[0].parts) for key, schemes in found.items()}
    assert {best[1, s] for s in (512, 2048, 32768)} == {("sequence", 8)}
    assert {best[2, s] for s in (512, 2048, 32768)} == {("mixed", 4)}
    assert {best[4, s] for s in (512, 2048, 32768)} == {("mixed", 2)}
    assert {best[b, s] for b in (8, 128) for s in (512, 2048, 32768)} == {("batch", 1)}


def test_table_1_of_the_sc11_article_again() -> None:
    """Up-projections against the cache at 16,384, 81,920 and 147,456 tokens, on four cards."""
    # q_b 1536 x 128 x 192, kv_b 512 x 128 x 256: 54.5 M parameters
    start = mapping.sizes(V3, 7168, 16384, 4, 2.0)
    assert start.up_bytes == 2 * (1536 * 128 * 192 + 512 * 128 * 256) == 109_051_904
    assert start.cache_bytes == 16384 * 1152
    assert start.tp_bytes < start.dp_bytes
    # fp8 up-projections at the mean: 13.6 + 94.4 = 108 MB under TP, 54.5 + 23.6 = 78 MB under DP
    mean = mapping.sizes(V3, 7168, 81920, 4, 1.0)
    assert mean.tp_bytes / 1e6 == pytest.approx(108.0, abs=0.1)
    assert mean.dp_bytes / 1e6 == pytest.approx(78.1, abs=0.1)


@pytest.mark.parametrize(
    ("weights", "shared", "copies", "saving"),
    [
        (0.0, True, False, 0.161),  # attention alone
        (UP_BYTES, False, False, 0.23),  # bf16 up-projections beside the first pages
        (UP_BYTES, True, False, 0.14),  # the same, at the cost of the pages
        (0.0, True, True, 0.382),  # the copy from L2 into the core as a step of its own
    ],
)
def test_saving_of_two_buffers_at_128_by_512(weights: float, shared: bool, copies: bool, saving: float) -> None:
    """The article measured 30 %: less than with a copy of its own, more than without."""
    d = Decode(V3, 16, 128, 512)
    found = mapping.double_buffered(SC11, d, weights, copies=copies, compute_share=0.7, shared_memory=shared)
    assert found.items == 16
    assert found.saving == pytest.approx(saving, abs=0.02)


def test_saving_by_hand() -> None:
    # without copies: 16 items of a = 9.6, b = 1.99 us: 1 - (a + b + 15 a) / 16 (a + b)
    found = mapping.double_buffered(SC11, Decode(V3, 16, 128, 512), copies=False, compute_share=0.7)
    a = 512 * 1152 / (0.9 * 546.1e9 / 8)
    b = 2 * 512 * 16 * 1088 / (0.7 * 102.4e12 / 8)
    assert found.gather_s == pytest.approx(a)
    assert found.compute_s == pytest.approx(b)
    assert found.saving == pytest.approx(1 - (16 * a + b) / (16 * (a + b)))


@given(st.integers(1, 256), st.integers(64, 8192))
def test_two_buffers_save_at_most_two_thirds(batch: int, context: int) -> None:
    found = mapping.double_buffered(SC11, Decode(V3, 16, batch, context))
    assert 0 <= found.saving <= 2 / 3


def test_an_sm_and_an_ascend_core() -> None:
    """One sequence of 32 K on 132 SMs or 24 cores is split; thousands are not."""
    for name in ("h100-sxm", "ascend-910c-die"):
        few = mapping.table(load_chip(name), V3, 16, (1,), (32768,))[1, 32768][0]
        many = mapping.table(load_chip(name), V3, 128, (4096,), (1024,))[4096, 1024][0]
        assert few.name in ("sequence", "mixed")
        assert many.name in ("batch", "mixed")
        assert many.parts <= 4 < few.parts
