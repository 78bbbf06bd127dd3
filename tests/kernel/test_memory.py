"""No temporary beyond the score tile: peak allocations, measured."""

import tracemalloc

import numpy as np
import pytest

from mlaplan.kernel import core
from mlaplan.kernel.online import cut, streamed
from mlaplan.kernel.paging import BlockPool, Sequence


def peak_bytes(work) -> int:
    work()  # caches inside numpy fill on the first call
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(("heads", "keys"), [(128, 4096), (16, 8192)])
def test_absorbed_decode_allocates_one_score_tile_and_the_output(heads, keys):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, heads, 576), np.float32)
    cache = rng.standard_normal((keys, 576), np.float32)
    tile, rows = 4 * heads * keys, 4 * heads * (576 + 512)
    assert peak_bytes(lambda: core.absorbed(q, cache, 512, 0.07)) <= 1.1 * tile + rows


def test_a_causal_mask_adds_one_byte_per_query_and_key_and_not_per_head():
    rng = np.random.default_rng(0)
    q = rng.standard_normal((3, 32, 576), np.float32)
    cache = rng.standard_normal((4096, 576), np.float32)
    at, keys = np.arange(4093, 4096), np.arange(4096)
    tile, rows = 4 * 3 * 32 * 4096, 4 * 3 * 32 * (576 + 512)
    assert peak_bytes(lambda: core.absorbed(q, cache, 512, 0.07, at, keys)) <= 1.2 * tile + rows


def test_streaming_needs_a_tile_of_one_slice_whatever_the_context():
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 128, 576), np.float32)
    cache = rng.standard_normal((8192, 576), np.float32)
    slices = cut(cache, 256)
    tile, rows = 4 * 128 * 256, 4 * 128 * (576 + 512)
    peak = peak_bytes(lambda: streamed(q, slices, 512, 0.07, np.array([8191])))
    assert peak <= 1.2 * tile + 2 * rows  # the product of a slice stands beside the accumulator


def test_paged_attention_reads_blocks_in_place():
    pool, sequence = BlockPool(80, 64, 576, np.float32), Sequence()
    pool.append(sequence, np.random.default_rng(0).standard_normal((5000, 576), np.float32))
    q = np.ones((1, 16, 576), np.float32)
    peak = peak_bytes(lambda: streamed(q, pool.slices(sequence), 512, 0.07, np.array([4999])))
    assert peak < 0.05 * 5000 * 576 * 4
