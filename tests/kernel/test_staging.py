"""Reference-counted staging buffers under real threads."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.kernel import core
from mlaplan.kernel.online import KvSlice, cut
from mlaplan.kernel.staging import StagingBuffers, StaleSlice, stream_through_staging
from mlaplan.kernel.visibility import step_positions

from .cases import assert_lse_same, assert_same, random_core


@settings(max_examples=25)
@given(
    q_len=st.sampled_from([1, 4, 17]),
    keys=st.sampled_from([1, 50, 200]),
    slice_tokens=st.sampled_from([7, 32]),
    depth=st.integers(1, 5),
    workers=st.integers(1, 6),
    q_chunk=st.sampled_from([1, 4, 64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_streaming_through_few_buffers_gives_the_whole(q_len, keys, slice_tokens, depth, workers, q_chunk, seed):
    q, cache, scale = random_core(seed, q_len, 3, keys)
    at = step_positions(keys - 1, q_len)
    slices = cut(cache, slice_tokens)
    arrival = np.random.default_rng(seed).permutation(len(slices)).tolist()
    got = stream_through_staging(q, slices, arrival, 32, scale, at, depth, workers, q_chunk)
    reference = core.absorbed(q, cache, 32, scale, at, np.arange(keys))
    assert_same(got.out, reference.out)
    assert_lse_same(got.lse, reference.lse)


def test_neither_arrival_nor_threads_change_a_single_bit():
    q, cache, scale = random_core(1, 6, 8, 300)
    q, cache = q.astype(np.float32), cache.astype(np.float32)
    slices, at = cut(cache, 16), step_positions(294, 6)
    rng = np.random.default_rng(0)
    results = [
        stream_through_staging(
            q, slices, rng.permutation(len(slices)).tolist(), 32, scale, at, depth, workers, q_chunk=2
        )
        for depth, workers in [(1, 1), (2, 4), (4, 2), (8, 8)]
    ]
    for other in results[1:]:
        assert np.array_equal(other.out, results[0].out)
        assert np.array_equal(other.lse, results[0].lse)


def test_no_slices_give_empty_rows():
    q, _, scale = random_core(0, 2, 3, 1)
    got = stream_through_staging(q, [], [], 32, scale, np.arange(2))
    assert not got.out.any()
    assert np.isneginf(got.lse).all()


def test_a_counted_buffer_waits_for_all_its_readers():
    buffers = StagingBuffers(1, 4, 3, np.float64)
    first = buffers.receive(KvSlice(np.ones((4, 3)), np.arange(4)), readers=2)
    received = threading.Event()

    def receive_next() -> None:
        buffers.receive(KvSlice(np.zeros((4, 3)), np.arange(4, 8)), readers=1)
        received.set()

    thread = threading.Thread(target=receive_next)
    thread.start()
    buffers.release(first)
    assert not received.wait(0.05)  # one reader is left
    assert buffers.read(first).rows.all()
    buffers.release(first)
    assert received.wait(5)
    thread.join()


def test_a_buffer_reused_too_early_is_detected():
    """The receiver that ignores reader counts overwrites what a task reads; the generation shows it."""
    buffers = StagingBuffers(1, 4, 3, np.float64, counted=False)
    staged = buffers.receive(KvSlice(np.ones((4, 3)), np.arange(4)), readers=1)
    rows = buffers.read(staged).rows
    reading, overwritten = threading.Event(), threading.Event()

    def receiver() -> None:
        reading.wait(5)
        buffers.receive(KvSlice(np.full((4, 3), 7.0), np.arange(4, 8)), readers=1)
        overwritten.set()

    thread = threading.Thread(target=receiver)
    thread.start()
    reading.set()
    assert overwritten.wait(5)
    assert (rows == 7.0).all()  # the task would compute with the wrong slice
    with pytest.raises(StaleSlice, match="was reused"):
        buffers.release(staged)
    with pytest.raises(StaleSlice):
        buffers.read(staged)
    thread.join()


def test_the_race_is_real_without_counts_and_gone_with_them():
    """A slow reader and a fast receiver on two buffers: damage without counting, none with."""

    def run(counted: bool) -> tuple[int, int]:
        buffers = StagingBuffers(2, 8, 2, np.float64, counted=counted)
        damaged, stale, threads = [], [], []

        def read(staged, expected: float) -> None:
            time.sleep(0.002)
            try:
                rows = buffers.read(staged).rows
                if not (rows == expected).all():
                    damaged.append(expected)
                buffers.release(staged)
            except StaleSlice:
                stale.append(expected)

        for i in range(12):
            staged = buffers.receive(KvSlice(np.full((8, 2), float(i)), np.arange(8)), readers=1)
            threads.append(threading.Thread(target=read, args=(staged, float(i))))
            threads[-1].start()
        for thread in threads:
            thread.join()
        return len(damaged), len(stale)

    assert run(counted=True) == (0, 0)
    assert run(counted=False)[1] > 0


def test_staging_memory_is_depth_slices():
    assert StagingBuffers(4, 28, 576, np.float16).nbytes == 4 * 28 * 576 * 2
    with pytest.raises(ValueError, match="at least one"):
        StagingBuffers(0, 1, 1, np.float64)
