"""A tier behind the chips' memory: fetch what is kept there, or compute it again.

    fetch      = alpha + n b / B                n tokens, b bytes of each on a chip, every chip over its own link
    recompute  = t(n)                           the prefill of n tokens, alone on its rank
    break-even B* = n b / (t(n) - alpha)        the link below which computing is faster
    carried    = B / (f b)                      requests per second of a rank, of which f tokens come over the link

With a replicated latent every tensor-parallel rank fetches its whole copy, with repeated heads every rank that has one:
b counts copies. Left out: staging through the host's memory on the way from a pool, other traffic, look-up.
Sources: Mooncake, arXiv:2407.00079, sec. 4 and 6; LMCache, arXiv:2510.09665.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs.collectives import DEFAULT_LINK_EFFICIENCY
from mlaplan.costs.roofline import Numeric

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip


class Link(NamedTuple):
    """The way to a tier: name, achieved bytes per second and chip, time before the first byte."""

    name: str
    bytes_per_s: float
    alpha_s: float


def host_link(chip: Chip, rate: float | None) -> Link | None:
    """The chip's link to its host at `rate`, or at the usual share of its datasheet rate; None where it has none."""
    if rate is not None:
        return Link("the host link given", rate, float(chip.overheads.collective))
    if chip.host_link is None:
        return None
    achieved = DEFAULT_LINK_EFFICIENCY * float(chip.host_link.bandwidth)
    return Link(chip.host_link.name, achieved, float(chip.overheads.collective))


def pool_link(chip: Chip, rate: float | None) -> Link | None:
    """The chip's network card; None where it has none."""
    alpha = float(chip.overheads.collective)
    if rate is not None:
        return Link("the pool link given", rate, alpha)
    out = chip.scale_out
    if out is None:
        return None
    efficiency = float(out.efficiency) if out.efficiency is not None else DEFAULT_LINK_EFFICIENCY
    hop = float(out.latency) if out.latency is not None else alpha / 2
    return Link(out.name, float(out.bandwidth) * efficiency, alpha + hop)


def fetch_s(tokens: Numeric, token_bytes: float, link: Link) -> Numeric:
    """Time to bring so many tokens of a cache to the chips. [s]"""
    return link.alpha_s + tokens * token_bytes / link.bytes_per_s


def break_even_bytes_per_s(tokens: Numeric, token_bytes: float, recompute_s: Numeric, alpha_s: float) -> Numeric:
    """The rate of a link at which fetching takes as long as computing, infinite where alpha alone is longer. [B/s]"""
    left = np.asarray(recompute_s, dtype=float) - alpha_s
    with np.errstate(divide="ignore"):
        return np.where(left > 0, tokens * token_bytes / np.maximum(left, 1e-300), np.inf)
