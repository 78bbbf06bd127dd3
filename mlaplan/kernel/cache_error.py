"""What rounding the cache costs in output error: observed, not bounded, since it depends on the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel import core
from mlaplan.kernel.cache_formats import FORMATS
from mlaplan.kernel.rounding import cast, dequantise, quantise
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.tolerance import difference


@dataclass(frozen=True, slots=True)
class CacheError:
    cache_format: str
    context: int
    max_abs: float
    relative: float
    cosine: float


def cache_errors(
    shapes: Shapes,
    contexts: Sequence[int],
    formats: Sequence[str],
    logit_std: float = 4.0,
    heads: int = 16,
    seed: int = 0,
) -> list[CacheError]:
    """Absorbed core in fp64 on a rounded cache against the same on an exact one, for Gaussian latents.

    `heads` of the model's heads suffice: they are alike here. Error grows with the spread of the logits.
    """
    rng = np.random.default_rng(seed)
    d_c, width = shapes.kv_lora_rank, shapes.cache_dim
    scale = logit_std * width**-0.5
    q = rng.standard_normal((1, min(heads, shapes.heads), width))
    rows = rng.standard_normal((max(contexts), width))

    def attend(cache: np.ndarray, context: int) -> np.ndarray:
        return core.absorbed(q, cache[:context], d_c, scale).out

    return _against_exact(contexts, attend, rows, {name: FORMATS[name].store(rows, d_c) for name in formats})


def grouped_cache_errors(
    head_dim: int,
    contexts: Sequence[int],
    formats: Sequence[str],
    logit_std: float = 4.0,
    heads: int = 16,
    seed: int = 0,
) -> list[CacheError]:
    """The same for keys and values of their own, as in grouped-query attention: one query a head, Gaussian rows.

    A format with scales has one for every 128 numbers of keys and of values; others are cast whole.
    """
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((heads, head_dim)) * logit_std * head_dim**-0.5
    cache = rng.standard_normal((2, heads, max(contexts), head_dim))  # keys and values

    def attend(cache: np.ndarray, context: int) -> np.ndarray:
        return _attention(q, *cache[:, :, :context])

    return _against_exact(contexts, attend, cache, {name: _rounded(cache, name) for name in formats})


def _against_exact(
    contexts: Sequence[int],
    attend: Callable[[np.ndarray, int], np.ndarray],
    exact: np.ndarray,
    rounded: Mapping[str, np.ndarray],
) -> list[CacheError]:
    """Outputs over each cache up to each context against those over the exact one."""
    found = []
    for context in contexts:
        reference = attend(exact, context)
        for name, cache in rounded.items():
            d = difference(attend(cache, context), reference)
            found.append(CacheError(name, context, d.max_abs, d.relative, d.cosine))
    return found


def _rounded(rows: np.ndarray, name: str) -> np.ndarray:
    scaled = {"fp8_ds_mla": "fp8_e4m3", "int8": "int8"}.get(name)
    return cast(rows, name) if scaled is None else dequantise(*quantise(rows, scaled), dtype=rows.dtype)


def _attention(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    logits = np.einsum("hd,htd->ht", q, keys)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.einsum("ht,htd->hd", weights / weights.sum(axis=1, keepdims=True), values)
