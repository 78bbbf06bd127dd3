"""RMSNorm of the two latents, LayerNorm of the indexer keys."""

from __future__ import annotations

import numpy as np


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, in the precision of x.

    Over the whole latent: a rank that holds some columns of c^KV must normalise before it drops the others.
    """
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + x.dtype.type(eps)) * weight


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(np.square(centred), axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(eps)) * weight + bias
