"""Ring collectives: results, and counted bytes against their closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.kernel.arithmetic import Ledger
from mlaplan.kernel.collectives import all_gather, all_reduce, all_to_all, reduce_scatter, send

RANKS = st.sampled_from([1, 2, 3, 4, 8])


def integers(seed: int, ranks: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-1000, 1000, shape).astype(float) for _ in range(ranks)]


@given(ranks=RANKS, rows=st.integers(1, 5), seed=st.integers(0, 1000))
def test_all_reduce(ranks, rows, seed):
    parts, ledger = integers(seed, ranks, (rows, 7)), Ledger()
    got = all_reduce(parts, "x", 2.0, ledger)
    assert all(np.array_equal(g, sum(parts)) for g in got)
    size = 2.0 * rows * 7
    assert ledger.sent_bytes("x") == pytest.approx(2 * (ranks - 1) / ranks * size)
    assert [t.buffer_bytes for t in ledger.transfers] == [size] * (ranks > 1)


@given(ranks=RANKS, columns=st.integers(1, 4), seed=st.integers(0, 1000))
def test_all_gather_and_reduce_scatter(ranks, columns, seed):
    parts, ledger = integers(seed, ranks, (3, columns)), Ledger()
    gathered = all_gather(parts, 1, "gather", 4.0, ledger)
    assert all(np.array_equal(g, np.concatenate(parts, axis=1)) for g in gathered)
    assert ledger.sent_bytes("gather") == pytest.approx((ranks - 1) / ranks * 4.0 * 3 * columns * ranks)

    parts = integers(seed, ranks, (3, columns * ranks))
    pieces = reduce_scatter(parts, 1, "scatter", 4.0, ledger)
    for piece, expected in zip(pieces, np.split(sum(parts), ranks, axis=1), strict=True):
        assert np.array_equal(piece, expected)
    assert ledger.sent_bytes("scatter") == pytest.approx((ranks - 1) / ranks * 4.0 * 3 * columns * ranks)


@given(ranks=RANKS, seed=st.integers(0, 1000))
def test_all_to_all_is_a_transpose(ranks, seed):
    blocks = [integers(seed + r, ranks, (2, 3)) for r in range(ranks)]
    ledger = Ledger()
    got = all_to_all(blocks, "x", 1.0, ledger)
    for target in range(ranks):
        for source in range(ranks):
            assert np.array_equal(got[target][source], blocks[source][target])
    assert ledger.sent_bytes() == pytest.approx((ranks - 1) / ranks * 6.0 * ranks)


def test_uneven_parts_are_counted_on_average():
    ledger = Ledger()
    parts = [np.ones((2, 1)), np.ones((2, 4)), np.ones((2, 0))]
    assert all_gather(parts, 1, "x", 1.0, ledger)[2].shape == (2, 5)
    assert ledger.sent_bytes() == pytest.approx(2 / 3 * 10)


def test_results_are_memory_of_their_own():
    parts = [np.ones(4), np.ones(4)]
    for got in (all_reduce(parts, "x", 1), all_gather(parts, 0, "x", 1), [send(parts[0], "x", 1)]):
        assert not any(np.shares_memory(g, p) for g in got for p in parts)


def test_send_counts_the_whole_array_once():
    ledger = Ledger()
    assert np.array_equal(send(np.arange(5.0), "x", 2.0, ledger), np.arange(5.0))
    assert ledger.sent_bytes() == 10.0


def test_one_rank_sends_nothing():
    ledger = Ledger()
    all_reduce([np.ones(3)], "x", 2.0, ledger)
    all_gather([np.ones(3)], 0, "x", 2.0, ledger)
    assert not ledger.transfers
