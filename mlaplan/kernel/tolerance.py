"""How two variants are compared, and how far apart they may lie.

Never element by element in relative terms: some outputs are nearly zero, where a correct fp32 run shows 7e-2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FP64 = 1e-12  # any two exact variants; the worst seen is 6e-15, the smallest bug tried is six decades above
FP64_FP32_ISLANDS = 2e-6  # against modules that norm, rotate or exponentiate in fp32 whatever their input
FP32 = 1e-5  # whole block in fp32


@dataclass(frozen=True, slots=True)
class Difference:
    max_abs: float
    relative: float  # max|d| / max|ref|
    cosine: float  # 1 - 2 <x, y> / (<x, x> + <y, y>)


def difference(got: np.ndarray, reference: np.ndarray) -> Difference:
    """Both in fp64. Non-finite values anywhere count as an infinite difference."""
    x, y = np.asarray(got, np.float64), np.asarray(reference, np.float64)
    if x.shape != y.shape:
        raise ValueError(f"shapes differ: {x.shape} and {y.shape}")
    if not x.size:
        return Difference(0.0, 0.0, 0.0)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return Difference(np.inf, np.inf, np.inf)
    max_abs = float(np.max(np.abs(x - y)))
    largest = float(np.max(np.abs(y)))
    # 1 - 2<x,y>/(<x,x>+<y,y>) equals |x-y|^2/(|x|^2+|y|^2), which does not cancel
    norms = float(np.sum(x * x) + np.sum(y * y))
    cosine = float(np.sum((x - y) ** 2)) / norms if norms else 0.0
    return Difference(max_abs, max_abs / largest if largest else max_abs, cosine)


def fp32_core_tolerance(max_abs_logit: float) -> float:
    """8 eps (1 + max|logit|): a logit of size s is known to eps * s at best, and the output follows it."""
    return 8 * float(np.finfo(np.float32).eps) * (1.0 + max_abs_logit)


def lse_tolerance(lse: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Absolute, for a log-sum-exp: 16 eps (1 + |lse|) in fp32, 1e-12 (1 + |lse|) in fp64."""
    unit = 16 * float(np.finfo(np.float32).eps) if np.dtype(dtype) == np.float32 else FP64
    return unit * (1.0 + np.abs(np.where(np.isfinite(lse), lse, 0.0)))
