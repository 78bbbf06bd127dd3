"""Stack distances by hand, and hit rates against an LRU cache that is really run."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import stack_distance as sd


def lru(ids: list[int], capacity: int) -> int:
    """Hits of a cache of so many blocks."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for i in ids:
        if i in held:
            hits += 1
            held.move_to_end(i)
        else:
            held[i] = None
            if len(held) > capacity:
                held.popitem(last=False)
    return hits


def test_distances_by_hand() -> None:
    """a b c a: b and c since; then b: c and a; then b again: nothing."""
    assert sd.distances(np.array([1, 2, 3, 1, 2, 2])).tolist() == [-1, -1, -1, 2, 2, 0]


def test_a_prompt_is_aged_from_its_end_and_partial_blocks_are_never_found() -> None:
    """1100 tokens are two whole blocks of 512; their last block is the oldest."""
    assert sd.accesses([[7, 8, 9]], np.array([1100]), 512).tolist() == [8, 7]


def test_a_curve_by_hand() -> None:
    """Two prompts of two blocks, the second equal to the first: distances 1 and 1, so two blocks find half of all."""
    found = sd.curve([[1, 2], [1, 2]], np.array([1024, 1024]), 512)
    assert found.at(1) == 0 and found.at(2) == pytest.approx(0.5) and found.most == pytest.approx(0.5)
    assert found.distinct == 2


@given(st.lists(st.integers(0, 12), min_size=1, max_size=200), st.integers(1, 14))
def test_the_hits_of_a_cache_that_is_run(ids: list[int], capacity: int) -> None:
    found = sd.distances(np.array(ids))
    assert int(((found >= 0) & (found < capacity)).sum()) == lru(ids, capacity)


def test_blocks_of_accesses_are_joined_without_a_seam() -> None:
    rng = np.random.default_rng(0)
    ids = rng.zipf(1.3, 5 * sd.BLOCK + 17) % 700
    found = sd.distances(ids)
    for capacity in (1, 10, 100, 500):
        assert int(((found >= 0) & (found < capacity)).sum()) == lru(ids.tolist(), capacity)
