"""Block tables: any block size, partly filled last blocks, shared prefixes, fragmented pools."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.kernel import core
from mlaplan.kernel.online import streamed
from mlaplan.kernel.paging import BlockPool, OutOfBlocks, Sequence, gather
from mlaplan.kernel.visibility import step_positions

from .cases import assert_lse_same, assert_same, random_core

BLOCK_SIZES = [1, 2, 16, 53, 61, 64, 69]


def shuffled_pool(blocks: int, block_size: int, width: int, seed: int) -> BlockPool:
    return BlockPool(blocks, block_size, width, order=np.random.default_rng(seed).permutation(blocks))


@given(
    block_size=st.sampled_from(BLOCK_SIZES),
    lengths=st.lists(st.sampled_from([0, 1, 63, 64, 65, 129, 200]), min_size=1, max_size=4),
    q_len=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_paged_attention_is_attention_on_the_rows_in_order(block_size, lengths, q_len, seed):
    pool = shuffled_pool(sum(-(-n // block_size) for n in lengths) + 2, block_size, 40, seed)
    sequences, caches = [Sequence() for _ in lengths], []
    q, _, scale = random_core(seed, q_len, 3, 1)
    rng = np.random.default_rng(seed)
    for sequence, length in zip(sequences, lengths, strict=True):
        rows = rng.standard_normal((length, 40))
        caches.append(rows)
        for piece in np.array_split(rows, 3):  # written in steps, as decode does
            pool.append(sequence, piece)
    for sequence, cache in zip(sequences, caches, strict=True):
        at = step_positions(max(len(cache) - q_len, 0), q_len)
        reference = core.absorbed(q, cache, 32, scale, at, np.arange(len(cache)))
        paged = streamed(q, pool.slices(sequence), 32, scale, at)
        assert_same(paged.out, reference.out)
        assert_lse_same(paged.lse, reference.lse)
        assert np.array_equal(gather(pool.rows, sequence.table, sequence.length), cache)


@given(
    block_size=st.sampled_from(BLOCK_SIZES),
    prefix=st.sampled_from([0, 1, 16, 64, 100, 128]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_shared_prefix_is_stored_once_and_read_by_all(block_size, prefix, seed):
    rng = np.random.default_rng(seed)
    pool = shuffled_pool(600, block_size, 40, seed)
    parent = Sequence()
    parent_rows = rng.standard_normal((130, 40))
    pool.append(parent, parent_rows)
    before = pool.free_blocks
    children, tails = [], []
    for _ in range(3):
        child = pool.fork(parent, prefix)
        tails.append(rng.standard_normal((20, 40)))
        pool.append(child, tails[-1])
        children.append(child)
    full = prefix // block_size
    own = -(-(prefix + 20) // block_size) - full
    assert before - pool.free_blocks == 3 * own
    for child, tail in zip(children, tails, strict=True):
        assert child.table[:full] == parent.table[:full]
        rows = gather(pool.rows, child.table, child.length)
        assert np.array_equal(rows, np.concatenate([parent_rows[:prefix], tail]))
    assert np.array_equal(gather(pool.rows, parent.table, parent.length), parent_rows)
    pool.release(parent)
    for child, tail in zip(children, tails, strict=True):  # the prefix outlives its first owner
        rows = gather(pool.rows, child.table, child.length)
        assert np.array_equal(rows, np.concatenate([parent_rows[:prefix], tail]))
        pool.release(child)
    assert pool.free_blocks == 600
    assert np.isnan(pool.rows).all()


def test_garbage_table_entries_and_unused_slots_are_never_read():
    pool = BlockPool(4, 16, 40)
    sequence = Sequence()
    rows = np.random.default_rng(0).standard_normal((20, 40))
    pool.append(sequence, rows)
    table = np.array([*sequence.table, 2147480000, -1], np.int64)
    assert np.isnan(pool.rows[sequence.table[1], 4:]).all()
    assert np.array_equal(gather(pool.rows, table, 20), rows)


def test_gather_reuses_the_buffer_given():
    pool = BlockPool(4, 16, 40)
    sequence = Sequence()
    pool.append(sequence, np.ones((20, 40)))
    buffer = np.empty((64, 40))
    rows = gather(pool.rows, sequence.table, 20, out=buffer)
    assert rows.base is buffer
    assert rows.shape == (20, 40)


def test_a_full_pool_and_a_write_into_a_shared_block_are_errors():
    pool = BlockPool(2, 4, 3)
    sequence = Sequence()
    with pytest.raises(OutOfBlocks):
        pool.append(sequence, np.ones((9, 3)))
    pool = BlockPool(4, 4, 3)
    sequence = Sequence()
    pool.append(sequence, np.ones((6, 3)))
    pool.users[sequence.table[-1]] = 2
    with pytest.raises(RuntimeError, match="is shared"):
        pool.append(sequence, np.ones((1, 3)))
    with pytest.raises(ValueError, match="prefix of 7"):
        pool.fork(sequence, 7)
