"""Working sets of attention tiles, where they fit, and the largest chunk: worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import sram
from mlaplan.costs.sram import Tile
from mlaplan.specs.lookup import load_chip, load_model

MIB, KIB = 2**20, 2**10
V3 = load_model("deepseek-v3").attention["mla"]


def test_the_query_output_tile_of_the_k3_article() -> None:
    assert sram.query_output_tile_bytes(32, 64, 32, 128) == 16 * MIB
    assert sram.query_output_tile_bytes(32, 128, 32, 128) == 32 * MIB


@pytest.mark.parametrize(("sram_mib", "chunk"), [(8, None), (16, 32), (20, 64), (31, 64), (40, 128), (80, 256)])
def test_the_largest_chunk_by_size_of_the_memory(sram_mib: int, chunk: int | None) -> None:
    assert sram.largest_chunk(32, 32, 128, sram_mib * MIB).chunk == chunk


def test_none_feasible_says_what_would_be() -> None:
    found = sram.largest_chunk(32, 32, 128, 8 * MIB)
    # 0.8 x 8 MiB over 256 KiB a query token is 25; a chunk of 32 is 8 MiB, over 6.4
    why = "a chunk of 32 is over 4/5 of the memory: a chunk of 25 would fit, or the batch in 2 parts"
    assert found == (None, 8 * MIB, why)


def test_a_chunk_is_no_longer_than_the_queries() -> None:
    one = sram.largest_chunk(32, 32, 128, 24 * MIB, q_len=1)
    assert one.chunk == 1
    assert "one query token a sequence: 32 rows" in one.reason
    assert sram.largest_chunk(32, 32, 128, 24 * MIB, q_len=4).chunk == 4
    assert sram.largest_chunk(32, 32, 128, 24 * MIB, q_len=4096).chunk == 64


@given(st.integers(1, 2**40), st.integers(1, 2**40))
def test_the_guard_is_exact(nbytes: int, size: int) -> None:
    assert sram.within_guard(nbytes, size) == (nbytes * 10 <= size * 8)
    assert sram.within_guard(4 * size, 5 * size)
    assert not sram.within_guard(4 * size + 1, 5 * size)


@given(st.integers(1, 64), st.integers(1, 128), st.integers(1, 64))
def test_a_chunk_that_is_chosen_fits_and_the_next_does_not(batch: int, heads: int, mib: int) -> None:
    chunk = sram.largest_chunk(batch, heads, 128, mib * MIB).chunk
    larger = [c for c in sram.CHUNKS if chunk is None or c > chunk]
    assert chunk is None or sram.within_guard(sram.query_output_tile_bytes(batch, chunk, heads, 128), mib * MIB)
    assert all(not sram.within_guard(sram.query_output_tile_bytes(batch, c, heads, 128), mib * MIB) for c in larger)


def test_the_absorbed_working_set() -> None:
    parts = sram.working_set(V3, Tile(rows=64, heads=64, slice_tokens=64, depth=2), "absorbed", 1152.0)
    assert parts == {
        "state": 64 * 8, "output": 64 * 512 * 4, "scores": 64 * 64 * 4, "query": 64 * 576 * 2, "cache": 2 * 64 * 1152,
        "recovered": 0, "weights": 0,
    }  # fmt: skip


def test_the_naive_working_set() -> None:
    tile = Tile(rows=16, heads=16, slice_tokens=100, depth=4)
    parts = sram.working_set(V3, tile, "naive", 1152.0)
    assert parts["recovered"] == 100 * 16 * 256 * 2
    assert parts["weights"] == 2 * 512 * 256 * 2
    assert parts["query"] == 16 * 192 * 2
    assert parts["output"] == 16 * 128 * 4
    assert sram.working_set(V3, tile._replace(weights_resident=True), "naive", 1152.0)["weights"] == 16 * 512 * 256 * 2


def test_flash_mla_tile_fills_an_h100_sm() -> None:
    """64 rows: the output in registers, the query and two slices of 64 tokens in 216 of 227 KiB of shared memory."""
    chip = load_chip("h100-sxm")
    fit = sram.place(chip, sram.working_set(V3, Tile(64, 64, 64, 2), "absorbed", 1152.0), cores=132)
    where = {p.part: p.level for p in fit.parts}
    assert where == {
        "state": "registers", "output": "registers", "scores": "registers", "query": "shared_memory",
        "cache": "shared_memory",
    }  # fmt: skip
    assert fit.spilled == ()
    assert fit.room["shared_memory"] == pytest.approx(227 * KIB - 216 * KIB, abs=64)


def test_a_third_slice_spills_to_l2_and_costs_time() -> None:
    chip = load_chip("h100-sxm")
    parts = sram.working_set(V3, Tile(64, 64, 64, 3), "absorbed", 1152.0)
    fit = sram.place(chip, parts, cores=132, slices=10, depth=3)
    assert fit.spilled == ("cache",)
    # written and read once a slice, by every core, over the L2's 5.5 TB/s
    assert fit.spill_s == pytest.approx(2 * 10 * 64 * 1152 * 132 / 5.5e12)


def test_levels_of_an_ascend_core_and_of_sc11() -> None:
    parts = sram.working_set(V3, Tile(16, 16, 128, 2), "absorbed", 1152.0)
    ascend = {p.part: p.level for p in sram.place(load_chip("ascend-910c-die"), parts, cores=24).parts}
    assert ascend == {"state": "UB", "output": "L0C", "scores": "L0C", "query": "L0A", "cache": "L1"}
    sc11 = sram.place(load_chip("sc11"), parts, cores=8)
    assert sc11.levels == ("local_memory",)
    assert sc11.spill_s == 0


def test_nothing_fits_anywhere_is_device_memory() -> None:
    chip = load_chip("k3")
    parts = sram.working_set(V3, Tile(rows=2**20, heads=16, slice_tokens=64), "absorbed", 1152.0)
    fit = sram.place(chip, parts, cores=1)
    assert {p.level for p in fit.parts if p.part in ("output", "query")} == {sram.DEVICE}
    assert fit.spill_s > 0


@given(st.integers(1, 512), st.integers(1, 2048), st.integers(1, 8))
def test_nothing_is_lost_in_placing(rows: int, tokens: int, depth: int) -> None:
    parts = sram.working_set(V3, Tile(rows, 16, tokens, depth), "naive", 1152.0)
    fit = sram.place(load_chip("sc11"), parts, cores=8)
    assert fit.total_bytes == pytest.approx(sum(parts.values()))
    assert all(room >= 0 for room in fit.room.values())
