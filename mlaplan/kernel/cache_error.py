"""What rounding the cache costs in output error: observed, not bounded, since it depends on the data."""

from __future__ import annotations

from collections.abc import Sequence
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
    rounded = {name: FORMATS[name].store(rows, d_c) for name in formats}
    found = []
    for context in contexts:
        exact = core.absorbed(q, rows[:context], d_c, scale).out
        for name in formats:
            d = difference(core.absorbed(q, rounded[name][:context], d_c, scale).out, exact)
            found.append(CacheError(name, context, d.max_abs, d.relative, d.cosine))
    return found


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
    keys, values = rng.standard_normal((2, heads, max(contexts), head_dim))
    rounded = {name: (_rounded(keys, name), _rounded(values, name)) for name in formats}
    found = []
    for context in contexts:
        exact = _attention(q, keys[:, :context], values[:, :context])
        for name, (k, v) in rounded.items():
            d = difference(_attention(q, k[:, :context], v[:, :context]), exact)
            found.append(CacheError(name, context, d.max_abs, d.relative, d.cosine))
    return found


def _rounded(rows: np.ndarray, name: str) -> np.ndarray:
    scaled = {"fp8_ds_mla": "fp8_e4m3", "int8": "int8"}.get(name)
    return cast(rows, name) if scaled is None else dequantise(*quantise(rows, scaled), dtype=rows.dtype)


def _attention(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    logits = np.einsum("hd,htd->ht", q, keys)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.einsum("ht,htd->hd", weights / weights.sum(axis=1, keepdims=True), values)
