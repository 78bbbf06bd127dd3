"""Rotary position embedding of q^R and k^R: tables, the two pairings, YaRN and its factor on the logits.

MLA rotates adjacent pairs (interleaved); the V3.2 indexer rotates x[i] with x[i + n/2] (half-split). A mix-up
of the two is an error of order one, and is invisible at position 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

INTERLEAVED = "interleaved"
HALF_SPLIT = "half_split"


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN as DeepSeek uses it (arXiv:2309.00071; config.json `rope_scaling` or `rope_parameters`)."""

    factor: float = 40.0
    original_positions: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 1.0


@dataclass(frozen=True, slots=True)
class RopeTables:
    """cos and sin of every position's angles, [positions, d_h^R / 2].

    Build them in fp64, or hand in those of another implementation: fp32 angles at position 4k already move
    the output by 3e-5, so two correct modules with tables of their own do not agree.
    """

    cos: np.ndarray
    sin: np.ndarray


def inverse_frequencies(rope_dim: int, theta: float, yarn: Yarn | None = None) -> np.ndarray:
    """theta^(-2i/n), i < n/2; with YaRN blended towards the same divided by `factor` for slow pairs. [n/2]

    A pair that turns more than beta_fast times within the original context is kept, one that turns less than
    beta_slow times is interpolated, and a linear ramp lies between (the bounds rounded outwards).
    """
    pairs = np.arange(0, rope_dim, 2, dtype=np.float64) / rope_dim
    plain = theta**-pairs
    if yarn is None:
        return plain

    def pair_that_turns(rotations: float) -> float:
        turns_once = yarn.original_positions / (rotations * 2 * math.pi)
        return rope_dim * math.log(turns_once) / (2 * math.log(theta))

    low = max(math.floor(pair_that_turns(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(yarn.beta_slow)), rope_dim - 1)
    width = max(high - low, 0.001)  # the public implementations avoid 0/0 in this way
    interpolated_share = np.clip((np.arange(rope_dim // 2) - low) / width, 0.0, 1.0)
    return plain * (1.0 - interpolated_share) + plain / yarn.factor * interpolated_share


def rope_tables(
    positions: int, rope_dim: int, theta: float = 10000.0, yarn: Yarn | None = None, first_position: int = 0
) -> RopeTables:
    """cos, sin of position * frequency in fp64, [positions, rope_dim / 2].

    YaRN also multiplies both by mscale(mscale) / mscale(mscale_all_dim), which is 1 for every DeepSeek model:
    their amplitude sits in the logit scale instead.
    """
    at = np.arange(first_position, first_position + positions, dtype=np.float64)
    angles = at[:, None] * inverse_frequencies(rope_dim, theta, yarn)
    amplitude = 1.0
    if yarn is not None:
        amplitude = mscale(yarn.factor, yarn.mscale) / mscale(yarn.factor, yarn.mscale_all_dim)
    return RopeTables(np.cos(angles) * amplitude, np.sin(angles) * amplitude)


def mscale(factor: float, weight: float) -> float:
    """0.1 * weight * ln(factor) + 1, and 1 where nothing is stretched."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def logit_scale(qk_head_dim: int, yarn: Yarn | None = None) -> float:
    """(d_h + d_h^R)^-0.5, times mscale(mscale_all_dim)^2 under YaRN.

    192^-0.5 for V3, also when absorbed: the products run over 576 columns, the logits are those of 192.
    """
    scale = qk_head_dim**-0.5
    return scale if yarn is None else scale * mscale(yarn.factor, yarn.mscale_all_dim) ** 2


def rotate(x: np.ndarray, tables: RopeTables, positions: np.ndarray, pairing: str = INTERLEAVED) -> np.ndarray:
    """Rotate each pair of x by its position's angle. x [..., t, n], positions [t] -> the same layout as x."""
    cos = tables.cos[positions].astype(x.dtype, copy=False)
    sin = tables.sin[positions].astype(x.dtype, copy=False)
    half = x.shape[-1] // 2
    first, second = slice(0, half), slice(half, None)
    if pairing == INTERLEAVED:
        first, second = slice(0, None, 2), slice(1, None, 2)
    out = np.empty_like(x)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out
