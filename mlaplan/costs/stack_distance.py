"""Hit rate of an LRU cache of any size from one pass over a trace: stack distances of its blocks.

The stack distance of an access is the number of different blocks touched since the last access to the same one. An LRU
cache of C blocks holds it where the distance is below C, so one histogram gives the hit rate of every capacity. With
p(i) the last access to the block of access i,

    distance(i) = #{ j < i : p(j) <= p(i) } - (p(i) + 1)           all j <= p(i) count, and each block since then once

A prompt is found from its start on. Its blocks are taken last to first, as engines age them, so that a block is never
older than one behind it, and a hit implies hits before it. Only whole blocks are found; outputs are not kept.
Source: Mattson, Gecsei, Slutz and Traiger, IBM Systems Journal 9(2), 1970, sec. 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024  # accesses whose distances are counted at once


class Curve(NamedTuple):
    """Blocks that a cache must hold, rising, and the prompt tokens that are then found, as a share of all."""

    blocks: NDArray[np.int64]
    hit_share: NDArray[np.float64]
    distinct: int  # whole blocks that the trace ever touches

    def at(self, blocks: float) -> float:
        """The hit rate of an LRU cache of so many whole blocks."""
        i = int(np.searchsorted(self.blocks, int(blocks), side="right")) - 1
        return float(self.hit_share[i]) if i >= 0 else 0.0

    @property
    def most(self) -> float:
        """What a cache without a limit finds."""
        return float(self.hit_share[-1]) if len(self.hit_share) else 0.0


def accesses(hash_ids: Sequence[Sequence[int]], prompts: NDArray[np.int64], block: int) -> NDArray[np.int64]:
    """The whole blocks of all prompts in order of their age: of one prompt the last first."""
    out: list[int] = []
    for ids, tokens in zip(hash_ids, prompts.tolist(), strict=True):
        out += list(ids[: tokens // block])[::-1]
    return np.array(out, dtype=np.int64)


def previous(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each access the last one before it to the same block, -1 for none."""
    order = np.argsort(ids, kind="stable")
    same = np.zeros(len(ids), dtype=bool)
    same[1:] = ids[order][1:] == ids[order][:-1]
    out = np.full(len(ids), -1, dtype=np.int64)
    out[order[same]] = order[np.flatnonzero(same) - 1]
    return out


def distances(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stack distance of every access, -1 for a first one. Earlier accesses are counted in blocks of `BLOCK`."""
    last = previous(ids)
    out = np.full(len(ids), -1, dtype=np.int64)
    seen = np.zeros(len(ids) + 1, dtype=np.int64)  # how many earlier accesses have p = k - 1
    for start in range(0, len(ids), BLOCK):
        part = last[start : start + BLOCK]
        again = np.flatnonzero(part >= 0)
        if len(again):
            earlier = np.cumsum(seen)[part[again] + 1]
            within = np.tril(part[None, :] <= part[:, None], -1).sum(axis=1)[again]
            out[start + again] = earlier + within - (part[again] + 1)
        np.add.at(seen, part + 1, 1)
    return out


def curve(hash_ids: Sequence[Sequence[int]], prompts: NDArray[np.int64], block: int) -> Curve:
    """Hit rate against capacity of the prompts of a trace, in whole blocks of so many tokens."""
    ids = accesses(hash_ids, prompts, block)
    found = distances(ids)
    counts = np.bincount(found[found >= 0]) if (found >= 0).any() else np.zeros(0, dtype=np.int64)
    where = np.flatnonzero(counts)
    total = max(int(prompts.sum()), 1)
    return Curve(where + 1, np.cumsum(counts[where]) * block / total, int((found < 0).sum()))
