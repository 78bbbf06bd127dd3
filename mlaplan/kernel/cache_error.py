"""What rounding the cache costs in output error: observed, not bounded, since it depends on the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel import core
from mlaplan.kernel.cache_formats import FORMATS
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
