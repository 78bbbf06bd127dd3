"""The cache as fixed-size blocks of one pool, found through a block table per sequence.

Row t of a sequence is pool[table[t // block_size], t % block_size]. Blocks lie anywhere in the pool, the last
one is partly filled, and sequences with a common prefix share its full blocks. Unused slots hold NaN here, so
that a read beyond the end shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mlaplan.kernel.online import KvSlice


class OutOfBlocks(RuntimeError):
    """The pool has no free block."""


@dataclass(slots=True)
class Sequence:
    """A block table and the number of tokens it holds."""

    table: list[int] = field(default_factory=list)
    length: int = 0


class BlockPool:
    """`blocks` blocks of block_size rows; each counts the sequences that use it."""

    def __init__(
        self,
        blocks: int,
        block_size: int,
        width: int,
        dtype: np.dtype | type = np.float64,
        order: np.ndarray | None = None,
    ) -> None:
        """order: in which blocks are handed out, a permutation; a shuffled one is a fragmented pool."""
        self.rows = np.full((blocks, block_size, width), np.nan, dtype)
        self.users = [0] * blocks
        self.block_size = block_size
        self._free = [int(b) for b in (np.arange(blocks) if order is None else order)][::-1]

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    def _take(self) -> int:
        if not self._free:
            raise OutOfBlocks(f"all {len(self.rows)} blocks are in use")
        block = self._free.pop()
        self.users[block] = 1
        return block

    def append(self, sequence: Sequence, rows: np.ndarray) -> None:
        """Write rows [n, width] behind the sequence's last token, taking blocks as needed."""
        written = 0
        while written < len(rows):
            offset = sequence.length % self.block_size
            if offset == 0:
                sequence.table.append(self._take())
            block = sequence.table[-1]
            if self.users[block] > 1:
                raise RuntimeError(f"block {block} is shared; only full blocks may be")
            count = min(self.block_size - offset, len(rows) - written)
            self.rows[block, offset : offset + count] = rows[written : written + count]
            sequence.length += count
            written += count

    def fork(self, parent: Sequence, length: int) -> Sequence:
        """A sequence of the parent's first `length` tokens: full blocks shared, the rest copied."""
        if not 0 <= length <= parent.length:
            raise ValueError(f"a prefix of {length} tokens of a sequence of {parent.length}")
        full = length // self.block_size
        child = Sequence(parent.table[:full], full * self.block_size)
        for block in child.table:
            self.users[block] += 1
        rest = length - child.length
        if rest:
            self.append(child, self.rows[parent.table[full], :rest].copy())
        return child

    def release(self, sequence: Sequence) -> None:
        """Give the sequence's blocks back; a block that nobody uses any more is poisoned and free."""
        for block in sequence.table:
            self.users[block] -= 1
            if self.users[block] == 0:
                self.rows[block] = np.nan
                self._free.append(block)
        sequence.table.clear()
        sequence.length = 0

    def slices(self, sequence: Sequence) -> Iterator[KvSlice]:
        """One slice per block, without copying: what a paged kernel reads."""
        return paged_slices(self.rows, sequence.table, sequence.length)


def paged_slices(pool: np.ndarray, table: list[int] | np.ndarray, length: int) -> Iterator[KvSlice]:
    """The first `length` tokens as slices. pool [blocks, block_size, width].

    Table entries beyond the last used block are never looked at: serving engines leave garbage there.
    """
    block_size = pool.shape[1]
    for index in range(-(-length // block_size)):
        start = index * block_size
        stop = min(start + block_size, length)
        yield KvSlice(pool[int(table[index]), : stop - start], np.arange(start, stop))


def gather(pool: np.ndarray, table: list[int] | np.ndarray, length: int, out: np.ndarray | None = None) -> np.ndarray:
    """The first `length` rows as one array, into `out` if given (reuse it: gathers are half the time)."""
    rows = np.empty((length, pool.shape[2]), pool.dtype) if out is None else out[:length]
    for kv in paged_slices(pool, table, length):
        rows[kv.positions[0] : kv.positions[-1] + 1] = kv.rows
    return rows
