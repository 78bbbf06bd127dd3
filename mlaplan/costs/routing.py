"""How many different experts the tokens of a step touch: their weights are what decode streams.

Experts are not equally liked. The load w_e of an expert is taken as log-normal, by the quantiles z_e of a normal
distribution; one of a token's k choices falls on it with p_e, and it is among the k different ones with pi_e:

    w_e = exp(s z_e),  p_e = w_e / sum w,  pi_e = 1 - (1 - p_e)^c,  c such that sum pi_e = k
    touched(T) = sum over E experts of 1 - (1 - pi_e)^T

s = 0 is the even draw, E (1 - (1 - k/E)^T). Tokens are taken as independent and the router's limit on groups is left
out; both let a step touch fewer experts than this. The spread s follows from published loads, whose standard
deviation over their mean is sqrt(exp(s^2) - 1); routing.yaml holds it with its sources.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from mlaplan.costs.roofline import Numeric

FILE = Path(__file__).with_name("routing.yaml")
BINS = 16  # quantiles that stand for all experts
SURE = 1.0 - 1e-12  # a handful of experts: the liked ones are in every draw


def touched(experts: float, per_token: float, tokens: Numeric, spread: float) -> Numeric:
    """Expected different experts of E that T tokens with k choices each touch."""
    if spread == 0.0:
        return experts * (1.0 - (1.0 - per_token / experts) ** tokens)
    missed = -np.expm1(np.multiply.outer(tokens, log_missed(experts, per_token, spread)))
    return experts * missed.mean(axis=-1)


@lru_cache(maxsize=64)
def log_missed(experts: float, per_token: float, spread: float) -> np.ndarray:
    """ln(1 - pi) of the experts of each quantile. [BINS]"""
    z = np.array([NormalDist().inv_cdf((i + 0.5) / BINS) for i in range(BINS)])
    load = np.exp(spread * z)
    missed_draw = np.log1p(-np.minimum(load / load.mean() / experts, SURE))

    def found(draws: float) -> float:
        return float(experts * -np.expm1(draws * missed_draw).mean())

    low, high = 0.0, per_token
    while found(high) < per_token and high < 1e9:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if found(middle) < per_token else (low, middle)
    return high * missed_draw


@lru_cache(maxsize=1)
def load_spread() -> tuple[float, float, float]:
    """The spread of routing.yaml: its value, its even end and its uneven end."""
    from mlaplan.specs.source import read

    known = read(FILE).data["load_spread"]
    return float(known["value"]), float(known["low"]), float(known["high"])


def spread_of(deviation: float) -> float:
    """The spread s of loads whose standard deviation over their mean is given: sqrt(ln(1 + v^2))."""
    return math.sqrt(math.log1p(deviation * deviation))
