"""The block cache against a reference with a list of everything that was ever let go, in order."""

from __future__ import annotations

import numpy as np
import pytest

from mlaplan.serving.simulator.cache import Cache


class Plain:
    """Hash blocks in a list, the least recently used first; `users` counts those who hold each."""

    def __init__(self, blocks: int, per_hash: int) -> None:
        self.capacity, self.per_hash = blocks, per_hash
        self.order: list[int] = []
        self.users: dict[int, int] = {}
        self.private = 0
        self.gone: list[int] = []

    def free(self) -> int:
        return self.capacity - self.private - len(self.users) * self.per_hash

    def take(self, blocks: int) -> None:
        while self.free() < blocks:
            oldest = self.order.pop(0)
            del self.users[oldest]
            self.gone.append(oldest)
        self.private += blocks


@pytest.mark.parametrize("seed", range(8))
def test_the_least_recently_used_leave_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cache, plain = Cache(56, 128), Plain(56, 4)  # four blocks for each hash block
    held: list[tuple[list[int], int]] = []
    for _ in range(600):
        if held and (rng.random() < 0.5 or len(held) > 6):
            used, private = held.pop(int(rng.integers(len(held))))
            cache.leave(used)
            cache.give(private)
            for i in reversed(used):
                plain.users[i] -= 1
                if not plain.users[i]:
                    plain.order.append(i)
            plain.private -= private
        else:
            prefix, own = int(rng.integers(5)) * 10, int(rng.integers(0, 4))
            ids = [prefix + k for k in range(int(rng.integers(1, 5)))]
            n = cache.found(ids, len(ids))
            assert n == next((k for k, i in enumerate(ids) if i not in plain.users), len(ids))
            hit, new = ids[:n], ids[n:]
            wanted = own + 4 * len(new)
            if wanted > cache.available - cache.unused_among(hit):
                continue
            cache.use(hit)
            cache.take(wanted)
            for i in hit:
                plain.users[i] += 1
                if i in plain.order:
                    plain.order.remove(i)
            plain.take(wanted)
            for i in new:  # computed: others can find it
                named = cache.name(i)
                assert named == (i not in plain.users)
                if named:
                    plain.users[i] = 1
                    plain.private -= 4
            named = [i for i in new if cache.users[i] == 1]
            held.append((hit + named, wanted - 4 * len(named)))
        assert cache.free == plain.free()
        assert set(cache.users) == set(plain.users)
        assert list(cache.unused) == plain.order
        assert cache.free + cache.held + cache.kept == cache.capacity
    assert cache.evictions == len(plain.gone) > 20


def test_a_block_that_does_not_divide_a_hash_block_reuses_nothing() -> None:
    cache = Cache(100, 96)
    assert not cache.reuse
    assert cache.found([1, 2], 2) == 0


def test_the_end_of_a_prompt_leaves_before_its_start() -> None:
    cache = Cache(3, 512)
    cache.take(3)
    assert all(cache.name(i) for i in (1, 2, 3))
    cache.leave([1, 2, 3])
    cache.take(1)
    assert sorted(cache.users) == [1, 2]
