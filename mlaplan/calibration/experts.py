"""How many experts the draws of the published expert tables touch.

`balanced` spreads the copies evenly. `power_law_a` draws a load for each expert from a power law with exponent a
between 1 and 0.8 T (0.01 and 2 where there are fewer copies than experts), scales the loads to the copies and rounds
them (ai-dynamo/aiconfigurator collector/helper.py). The draw is stood for by its quantiles.
"""

from __future__ import annotations

import numpy as np

from mlaplan.calibration.rows import Array


def active_experts(tokens: Array, topk: Array, experts: Array, skew: Array) -> Array:
    """Experts with at least one token, for each row; skew 0 is balanced."""
    out = np.minimum(tokens * topk, experts)
    for key in {(t, k, e, a) for t, k, e, a in zip(tokens, topk, experts, skew, strict=True) if a > 0}:
        t, k, e, a = key
        rows = (tokens == t) & (topk == k) & (experts == e) & (skew == a)
        out[rows] = _touched(t, k, int(e), a)
    return out


def _touched(tokens: float, topk: float, experts: int, exponent: float) -> float:
    u = (np.arange(experts) + 0.5) / experts
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    if exponent == 1.0:
        load = low * (high / low) ** u
    else:
        p = 1.0 - exponent
        load = ((high**p - low**p) * u + low**p) ** (1.0 / p)
    copies = np.round(load / load.sum() * tokens * topk)
    touched, missing = float((copies > 0).sum()), tokens * topk - float(copies.sum())
    # copies that rounding lost are dealt out once more; a token that drew an expert twice takes another one
    touched += max(missing, 0.0) * (1.0 - touched / experts)
    return float(np.clip(touched, min(topk, experts), min(tokens * topk, experts)))
