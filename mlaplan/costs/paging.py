"""Blocks of a paged cache: what rounding up to whole blocks costs, and buckets of a pool of prefixes.

A sequence of L tokens takes ceil(L / b) blocks of b tokens. For lengths L of any distribution

    waste(b) = E[ceil(L / b)] b - E[L]                                                            tokens a sequence

exactly: uniform over lo..hi by counting whole blocks, geometric with mean m by E[ceil(L / b)] = 1 / (1 - (1 - 1/m)^b),
anything else by its values. A wide distribution wastes (b - 1) / 2 tokens, a fixed length anything from 0 to b - 1.

A pool of prefixes in buckets of s tokens stores and finds them in whole buckets: of a shared prefix of P tokens
P mod s are computed again, and a prompt of I tokens is looked up once a bucket border, I / s times, until one misses.
Source: internal fragmentation of paged caches, vLLM, arXiv:2309.06180, sec. 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.roofline import Numeric


class Lengths(NamedTuple):
    """A distribution of lengths: its words, and the values with their probabilities."""

    words: str
    values: NDArray[np.int64]
    weights: NDArray[np.float64]
    geometric_mean: float | None = None  # a geometric distribution has no last value

    @property
    def mean(self) -> float:
        if self.geometric_mean is not None:
            return self.geometric_mean
        return float(np.dot(self.values, self.weights))


def fixed(tokens: int) -> Lengths:
    """Every sequence has so many tokens."""
    return Lengths(f"{tokens:,} tokens each", np.array([tokens]), np.array([1.0]))


def uniform(low: int, high: int) -> Lengths:
    """Each whole length from low to high with equal chance."""
    n = high - low + 1
    return Lengths(f"uniform from {low:,} to {high:,} tokens", np.arange(low, high + 1), np.full(n, 1.0 / n))


def geometric(mean: float) -> Lengths:
    """P(L = k) = (1 - 1/m)^(k-1) / m, k from 1 on."""
    return Lengths(f"geometric, {mean:,.0f} tokens on average", np.empty(0, np.int64), np.empty(0), float(mean))


def observed(values: NDArray[np.int64], words: str) -> Lengths:
    """Lengths as a trace has them."""
    kinds, counts = np.unique(values, return_counts=True)
    return Lengths(words, kinds, counts / counts.sum())


def blocks(lengths: Lengths, block: Numeric) -> Numeric:
    """E[ceil(L / b)], for one block size or an array of them."""
    b = np.asarray(block)
    if lengths.geometric_mean is not None:
        return (
            1.0 / -np.expm1(b * np.log1p(-1.0 / lengths.geometric_mean)) if lengths.geometric_mean > 1 else 1.0 + 0 * b
        )
    return np.tensordot(-(-lengths.values // b[..., None]), lengths.weights, axes=(-1, 0))


def waste_tokens(lengths: Lengths, block: Numeric) -> Numeric:
    """Tokens of a sequence's blocks that hold nothing, on average: E[ceil(L / b)] b - E[L]."""
    return blocks(lengths, block) * block - lengths.mean


def usable_blocks(pool_tokens: Numeric, block: Numeric, watermark: float = 0.0) -> Numeric:
    """Whole blocks of a pool of so many tokens that may be given out: floor((1 - watermark) floor(pool / b))."""
    return np.floor((1.0 - watermark) * np.floor(pool_tokens / block) + 1e-9)


def sequences(lengths: Lengths, pool_tokens: Numeric, block: Numeric, watermark: float = 0.0) -> Numeric:
    """Sequences that a pool holds on average: usable blocks / E[blocks of a sequence]."""
    return usable_blocks(pool_tokens, block, watermark) / blocks(lengths, block)


class Bucket(NamedTuple):
    """A pool of prefixes in buckets of one size: tokens, means over prefixes and prompts."""

    recomputed: Numeric  # tokens of a shared prefix that are computed again
    padding: Numeric  # tokens of a stored prefix's last bucket that hold nothing
    lookups: Numeric  # of a prompt whose prefix is there, the miss included


def bucket(prefixes: Lengths, size: Numeric) -> Bucket:
    """Buckets of `size` tokens for shared prefixes of these lengths.

    Only whole buckets are found: L mod s tokens are computed again. A partly filled bucket is kept too where the
    pool stores it, and pads s - L mod s of its tokens. One look-up a whole bucket, and the one that misses.
    """
    whole = whole_buckets(prefixes, size)
    return Bucket(prefixes.mean - whole * size, waste_tokens(prefixes, size), whole + 1.0)


def whole_buckets(prefixes: Lengths, size: Numeric) -> Numeric:
    """E[floor(L / s)]; for a geometric length the sum of P(L >= j s) = q^(j s - 1) over j >= 1, q = 1 - 1/m."""
    s = np.asarray(size)
    if prefixes.geometric_mean is not None:
        q = 1.0 - 1.0 / prefixes.geometric_mean
        return q ** (s - 1.0) / (1.0 - q**s)
    return np.tensordot(prefixes.values // s[..., None], prefixes.weights, axes=(-1, 0))
