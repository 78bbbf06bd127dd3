"""Time of one kernel on one chip: a launch floor and a smooth maximum of its two rooflines.

    t = t0 + ( (bytes / (a * BW))^n + (FLOP / (b * peak))^n )^(1/n)

a and b are the achieved fractions of bandwidth and of the dense matrix peak, t0 the floor of a call, n the norm
of the smooth maximum (infinite: a hard maximum). The form follows what measured MLA decode, GEMM and grouped
GEMM kernels show: a hard maximum is 5 to 15 % low where both terms are equal. Everything works on scalars and on
arrays; one multiply-add is 2 FLOP.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Numeric = Any  # a float, or an array of them: every formula takes both

BOUNDS = ("compute", "vector", "memory", "latency", "link", "host", "bubble", "overlap")


def ceil_div(a: Numeric, b: Numeric) -> Numeric:
    """The least integer >= a / b, for whole numbers (exact on int arrays)."""
    return -(-a // b)


ROUNDING = 1e-9  # a count above whole tiles by less than this part of one is a rounding error, not work


def pad_to(count: Numeric, tile: int) -> Numeric:
    """`count` rounded up to whole tiles, as a kernel works on them; counts may be means of whole numbers."""
    return np.ceil(count / tile - ROUNDING) * tile


def smooth_max(a: Numeric, b: Numeric, norm: float) -> Numeric:
    """(a^n + b^n)^(1/n); n = inf is max(a, b). Never below the maximum, at most 2^(1/n) above it."""
    if norm == np.inf:
        return np.maximum(a, b)
    high = np.maximum(a, b)
    ratio = np.minimum(a, b) / np.where(high > 0, high, 1.0)
    if norm == 1.0:
        return high * (1.0 + ratio)
    if norm == 2.0:
        return high * np.sqrt(1.0 + ratio * ratio)
    if norm == 3.0:
        return high * np.cbrt(1.0 + ratio * ratio * ratio)
    return high * (1.0 + ratio**norm) ** (1.0 / norm)


def kernel_s(compute_s: Numeric, memory_s: Numeric, floor_s: float, norm: float) -> Numeric:
    """t0 + smooth maximum of the two rooflines. [s]"""
    return floor_s + smooth_max(compute_s, memory_s, norm)


def gemm_flops(m: Numeric, k: Numeric, n: Numeric) -> Numeric:
    """2 m k n. [FLOP]"""
    return 2.0 * m * k * n


def gemm_bytes(
    m: Numeric, k: Numeric, n: Numeric, weight_bytes: float, in_bytes: float = 2.0, out_bytes: float = 2.0
) -> Numeric:
    """Weights once, activations in and out once: k n w + m k x + m n y. [B]

    Re-reads of a tile that missed the cache are not counted; the fitted fraction of bandwidth carries them.
    """
    return k * n * weight_bytes + m * k * in_bytes + m * n * out_bytes
