"""The KV cache of one attention-DP rank: blocks held by requests, and prompt blocks kept for reuse.

A prompt's hash block of 512 tokens takes a whole number of cache blocks. While requests use it, it is held; when the
last of them leaves, it is kept and may leave the cache, least recently used first. Of the blocks that one request lets
go, those further from its start count as older, as nothing can use them without those before. Blocks without a hash,
the rest of a prompt and the output, are free again as soon as their request ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from mlaplan.serving.simulator.requests import HASH_TOKENS


class Cache:
    """Counts of blocks; `capacity = free + held + kept` at all times."""

    def __init__(self, blocks: int, block_tokens: int, reuse: bool = True) -> None:
        self.capacity = self.free = blocks
        self.block_tokens = block_tokens
        self.reuse = reuse and HASH_TOKENS % block_tokens == 0
        self.per_hash = HASH_TOKENS // block_tokens if self.reuse else 0
        self.users: dict[int, int] = {}  # of each hash block in the cache
        self.unused: OrderedDict[int, None] = OrderedDict()  # those with no user, the next to leave first
        self.evictions = 0

    @property
    def kept(self) -> int:
        return len(self.unused) * self.per_hash

    @property
    def held(self) -> int:
        return self.capacity - self.free - self.kept

    @property
    def available(self) -> int:
        """Blocks that can be taken, by eviction if need be."""
        return self.free + self.kept

    def found(self, ids: Sequence[int], most: int) -> int:
        """How many of the first `most` hash blocks are in the cache, without a gap."""
        if not self.reuse:
            return 0
        n, users = 0, self.users
        while n < most and ids[n] in users:
            n += 1
        return n

    def unused_among(self, ids: Sequence[int]) -> int:
        """Cache blocks of hash blocks that nothing uses now: using them makes them unavailable."""
        return sum(1 for i in ids if i in self.unused) * self.per_hash

    def use(self, ids: Sequence[int]) -> None:
        """One more user for hash blocks that are in the cache."""
        for i in ids:
            self.users[i] += 1
            self.unused.pop(i, None)

    def take(self, blocks: int) -> None:
        """Blocks for a request, of those free, else from the least recently used hash blocks."""
        while self.free < blocks:
            i, _ = self.unused.popitem(last=False)
            del self.users[i]
            self.free += self.per_hash
            self.evictions += 1
        self.free -= blocks

    def give(self, blocks: int) -> None:
        """Blocks of a request back."""
        self.free += blocks

    def name(self, i: int) -> bool:
        """Makes blocks that a request holds the hash block `i`, with it as the user; False if there is one already."""
        if i in self.users:
            return False
        self.users[i] = 1
        return True

    def leave(self, ids: Sequence[int]) -> None:
        """One user less for each; those without a user are kept, the last ones to leave first."""
        for i in reversed(ids):
            self.users[i] -= 1
            if self.users[i] == 0:
                self.unused[i] = None
