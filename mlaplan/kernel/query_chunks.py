"""Query chunks that finish out of order and are put back in order.

A chunk is a run of queries. Chunks are independent, so they may run and finish in any order; the token
sampled next is read from the last row, so writing results as they come picks the wrong one. `InOrder` is the
buffer between the two.
"""

from __future__ import annotations

import threading

import numpy as np

from mlaplan.kernel.partial import Partial


def chunk_bounds(q_len: int, chunk: int) -> list[tuple[int, int]]:
    """[start, stop) of each chunk; a chunk larger than q_len is one chunk of q_len."""
    if chunk < 1:
        raise ValueError(f"a query chunk has at least one token, got {chunk}")
    return [(start, min(start + chunk, q_len)) for start in range(0, q_len, chunk)]


class InOrder:
    """Results by index, written by any thread in any order, read once in index order when all are there."""

    def __init__(self, count: int) -> None:
        self._results: dict[int, Partial] = {}
        self._count = count
        self._lock = threading.Lock()

    def put(self, index: int, result: Partial) -> None:
        with self._lock:
            if not 0 <= index < self._count:
                raise IndexError(f"chunk {index} of {self._count}")
            if index in self._results:
                raise ValueError(f"chunk {index} finished twice")
            self._results[index] = result

    def joined(self) -> Partial:
        """All chunks, in order, as one partial over all queries."""
        with self._lock:
            missing = sorted(set(range(self._count)) - self._results.keys())
            if missing:
                raise ValueError(f"chunks {missing} have not finished")
            ordered = [self._results[i] for i in range(self._count)]
        return Partial(np.concatenate([p.out for p in ordered]), np.concatenate([p.lse for p in ordered]))
