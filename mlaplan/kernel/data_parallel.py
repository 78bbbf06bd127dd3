"""Attention data parallelism: each rank holds all the weights and the caches of its own requests.

Nothing is sent inside attention; the price is a copy of the weights on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlaplan.kernel import block
from mlaplan.kernel.block import Setting
from mlaplan.kernel.shares import ShareError, assert_owned, copied
from mlaplan.kernel.weights import Weights


@dataclass(frozen=True, slots=True)
class RequestRank:
    weights: Weights
    requests: list[int]  # which sequences of the batch
    caches: list[np.ndarray]  # theirs, whole


def split(weights: Weights, caches: Sequence[np.ndarray], ranks: int) -> list[RequestRank]:
    """Requests in turn: request b goes to rank b mod N. A rank may have none."""
    group = []
    for rank in range(ranks):
        mine = list(range(rank, len(caches), ranks))
        group.append(RequestRank(copied(weights), mine, [caches[b].copy() for b in mine]))
    return group


def step(x: np.ndarray, group: Sequence[RequestRank], setting: Setting) -> tuple[np.ndarray, list[RequestRank]]:
    """x [B, q_len, d] -> u [B, q_len, d]. Each rank sees only the rows of its requests."""
    assert_shares(group, len(x))
    u = np.empty_like(x)
    after = []
    for rank in group:
        if not rank.requests:
            after.append(rank)
            continue
        u[rank.requests], caches = block.step(x[rank.requests].copy(), rank.caches, rank.weights, setting)
        after.append(replace(rank, caches=caches))
    return u, after


def assert_shares(group: Sequence[RequestRank], batch: int) -> None:
    """Each request on one rank, its cache in that rank's memory."""
    if sorted(b for rank in group for b in rank.requests) != list(range(batch)):
        raise ShareError("each request belongs to one rank")
    for rank in group:
        if len(rank.caches) != len(rank.requests):
            raise ShareError("a rank holds one cache per request of its own")
        assert_owned({f"cache {b}": (rows, rows.shape) for b, rows in enumerate(rank.caches)})
