"""What is sent: arrival, prompt and output of every request, and which blocks of its prompt others share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

HASH_TOKENS = 512  # prompt tokens behind one hash id of a trace


@dataclass(frozen=True, slots=True)
class Requests:
    """Columns over the requests, in the order of arrival.

    hash_ids: for each request the ids of its prompt's blocks of 512 tokens, the last one perhaps not full; equal ids
    at the start of two prompts mean an equal start. None where nothing is shared.
    cached: tokens at the start of each prompt that are in the cache, whoever keeps them there. None: none of any.
    """

    arrival_s: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    hash_ids: Sequence[Sequence[int]] | None = None
    cached: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def rate(self) -> float:
        """Arrivals per second from the first to the last."""
        span = float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) > 1 else 0.0
        return (len(self) - 1) / span if span > 0 else float("inf")

    def at_rate(self, rate: float) -> Requests:
        """The same requests with all gaps stretched alike, so that they arrive at `rate` per second."""
        start = self.arrival_s[0] if len(self) else 0.0
        if not np.isfinite(self.rate):
            return self
        return self.arriving((self.arrival_s - start) * (self.rate / rate))

    def arriving(self, arrival_s: NDArray[np.float64]) -> Requests:
        """The same requests at other times."""
        return replace(self, arrival_s=np.asarray(arrival_s, dtype=np.float64))

    def first(self, count: int) -> Requests:
        """The first `count` of them."""
        hashes = None if self.hash_ids is None else self.hash_ids[:count]
        cached = None if self.cached is None else self.cached[:count]
        return Requests(self.arrival_s[:count], self.prompt[:count], self.output[:count], hashes, cached)
