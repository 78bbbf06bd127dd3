"""How many different experts the tokens of a step touch: their weights are what decode streams.

Experts are not equally liked. The load w_e of an expert is taken as log-normal, by the quantiles z_e of a normal
distribution; one of a token's k choices falls on it with p_e, and it is among the k different ones with pi_e:

    w_e = exp(s z_e),  p_e = w_e / sum w,  pi_e = 1 - (1 - p_e)^c,  c such that sum pi_e = k
    touched(T) = sum over E experts of 1 - (1 - pi_e)^T

s = 0 is the even draw, E (1 - (1 - k/E)^T). Tokens are taken as independent, which lets a step touch more experts
than it does. The spread s follows from published loads, whose standard deviation over their mean is
sqrt(exp(s^2) - 1); routing.yaml holds it with its sources.

Of n expert-parallel ranks all wait for the one that has most experts to read. With q = 1 - (1 - pi)^T of each expert
a rank has a mean of sum q / n and, drawn at random, a variance of f sum q (1 - q) / n, and the busiest of n has

    busiest = sum q / n + c(n) sqrt(f sum q (1 - q) / n),      c(n) = PHI^-1( (n - 3/8) / (n + 1/4) )

between 1 and all experts of a rank. c(n) is the expected largest of n normal draws. f is what the router's limit on
groups adds, the variance of a token's copies on a rank over that without it: k choices in t of g groups lie on fewer
ranks,

    f = 1 + (k - 1) (g - t) / (t (g - 1))                                  n <= g: a rank holds whole groups
    f = (1 + ((k - 1) g / t - k) / n) / (1 - 1 / n)                         n > g: several ranks share one

They also wait for the one that has most copies to compute. Where nothing balances the experts, a rank's share of the
load varies with those of its E/n experts, v^2 = exp(s^2) - 1 each, and the T k copies of a step are drawn, so that the
busiest has, over the mean,

    uneven = 1 + c(n) sqrt( (1 - 1/n) (v^2 n / E + f n / (T k)) ),    at most n

1.25 of 8 ranks and 1.7 of 32 with many tokens; measured without a balancer over 32 ranks: 2.56 (TensorRT-LLM, blog04).
Source: G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958, for c(n).
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlaplan.costs.roofline import Numeric

FILE = Path(__file__).with_name("routing.yaml")
BINS = 16  # quantiles that stand for all experts
SURE = 1.0 - 1e-12  # a handful of experts: the liked ones are in every draw


class Groups(NamedTuple):
    """A router's limit: the k choices of a token lie in `chosen` of `groups` groups of experts."""

    groups: int = 1
    chosen: int = 1


NO_LIMIT = Groups()


def touched(experts: float, per_token: float, tokens: Numeric, spread: float) -> Numeric:
    """Expected different experts of E that T tokens with k choices each touch."""
    if spread == 0.0:
        return experts * (1.0 - (1.0 - per_token / experts) ** tokens)
    missed = -np.expm1(np.multiply.outer(tokens, log_missed(experts, per_token, spread)))
    return experts * missed.mean(axis=-1)


def busiest(
    experts: float, per_token: float, tokens: Numeric, spread: float, ranks: Numeric, limit: Groups = NO_LIMIT
) -> Numeric:
    """Expected different experts that the tokens touch on that one of n ranks which has most of them."""
    if spread == 0.0:
        q = np.asarray(1.0 - (1.0 - per_token / experts) ** tokens)[..., None]
    else:
        q = -np.expm1(np.multiply.outer(tokens, log_missed(experts, per_token, spread)))
    mean = experts * q.mean(axis=-1) / ranks
    variance = clustering(per_token, limit, ranks) * experts * (q * (1.0 - q)).mean(axis=-1) / ranks
    most = np.minimum(tokens * per_token, np.divide(experts, ranks))
    return np.clip(mean + largest_normal(ranks) * np.sqrt(variance), np.minimum(most, 1.0), most)


def uneven(
    experts: float, per_token: float, tokens: Numeric, spread: float, ranks: Numeric, limit: Groups = NO_LIMIT
) -> Numeric:
    """Copies of tokens on the busiest of n ranks over the mean, where nothing balances the experts."""
    n = np.asarray(ranks, dtype=np.float64)
    loads, draws = math.expm1(spread * spread) * n / experts, clustering(per_token, limit, n) * n / (tokens * per_token)
    return np.minimum(1.0 + largest_normal(n) * np.sqrt((1.0 - 1.0 / n) * (loads + draws)), n)


def clustering(per_token: float, limit: Groups, ranks: Numeric) -> Numeric:
    """Variance of a token's copies on one of n ranks with the limit on groups, over that without it."""
    n, k, g, t = np.asarray(ranks, dtype=np.float64), per_token, limit.groups, limit.chosen
    if g == t:
        return np.ones_like(n)
    whole = 1.0 + (k - 1.0) * (g - t) / (t * (g - 1.0))  # a rank holds one group or more
    parts = (1.0 + ((k - 1.0) * g / t - k) / n) / np.where(n > 1.0, 1.0 - 1.0 / n, 1.0)  # several share a group
    return np.where(n <= g, whole, parts)


def largest_normal(n: Numeric) -> Numeric:
    """Expected largest of n draws from a normal distribution, 0 of one."""
    values, where = np.unique(n, return_inverse=True)
    return np.array([_blom(float(v)) for v in values])[where].reshape(np.shape(n))


@lru_cache(maxsize=256)
def _blom(n: float) -> float:
    return _normal((n - 0.375) / (n + 0.25))


def _normal(share: float) -> float:
    """The quantile of a normal distribution."""
    from statistics import NormalDist  # not before: it brings fractions and decimals, and a check needs no quantile

    return NormalDist().inv_cdf(share)


@lru_cache(maxsize=64)
def log_missed(experts: float, per_token: float, spread: float) -> np.ndarray:
    """ln(1 - pi) of the experts of each quantile. [BINS]"""
    z = np.array([_normal((i + 0.5) / BINS) for i in range(BINS)])
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
