"""Dispatch and combine of expert parallelism: every routed copy of a token to its expert's chip and back.

Decode (low latency): each of the k copies travels, fp8 with a 4-byte scale per 128 numbers out, bf16 back:
    V_out = t k (d + 4 d / 128),   V_back = 2 t k d        t: tokens that this chip owns, d: hidden size
Prefill (normal): a token travels once to each distinct destination,
    copies over the network = nodes (1 - (1 - 1/nodes)^k) (nodes-1)/nodes, at most the router's node limit
    copies in the node = the distinct chips of n, n (1 - (1 - 1/n)^k)
and a chip that lies elsewhere is reached through the card of the chip with the same number.
Source: DeepSeek-V3, arXiv:2412.19437, sec. 3.2; DeepEP README (its MB/us/GB/s identities use these counts).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlaplan.costs.collectives import DEFAULT_LINK_EFFICIENCY, fitted_s, link_bandwidth, tree_hops
from mlaplan.costs.roofline import Numeric, ceil_div

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip

SCALE_GROUP, SCALE_BYTES = 128, 4


def copy_bytes(hidden: int, fp8: bool) -> float:
    """Bytes of one token on the wire: fp8 with scales, or bf16. [B]"""
    return hidden + hidden / SCALE_GROUP * SCALE_BYTES if fp8 else 2.0 * hidden


def distinct(places: Numeric, draws: float) -> Numeric:
    """Expected distinct places that k uniform draws hit: n (1 - (1 - 1/n)^k)."""
    return places * (1.0 - (1.0 - 1.0 / places) ** draws)


def low_latency_s(chip: Chip, op: str, tokens: Numeric, k: float, bytes_each: float, ranks: Numeric) -> Numeric:
    """`dispatch` or `combine` with one copy per routed expert, as decode uses it. [s]"""
    volume = tokens * k * bytes_each
    fit = chip.scale_up.collectives.get(op)
    inside = np.minimum(ranks, chip.scale_up.chips_per_node)
    nodes = ceil_div(ranks, inside)
    near = (nodes - 0.0) ** -1  # part of the copies that stay in the node
    if fit is not None:
        wide = chip.scale_out.collectives.get(op) if chip.scale_out is not None else None
        in_node = _copies_s(fit, volume, ranks)
        if wide is not None:
            return np.where(ranks > 1, np.where(nodes > 1, _copies_s(wide, volume, ranks), in_node), 0.0)
        base = _copies_s(fit, volume * near, inside)
    else:
        stay = 1.0 / ranks
        base = float(chip.overheads.collective) + volume * np.maximum(near - stay, 0.0) / link_bandwidth(
            chip.scale_up, inside
        )
    return np.where(ranks > 1, np.maximum(base, _cross_s(chip, volume * (1.0 - near), nodes)), 0.0)


def _copies_s(fit: object, volume: Numeric, ranks: Numeric) -> Numeric:
    """Measured dispatch tables count every copy of a rank, those that stay on it included."""
    return fitted_s(fit, "send", volume, ranks)  # type: ignore[arg-type]


def normal_s(
    chip: Chip, op: str, tokens: Numeric, k: float, bytes_each: float, ranks: Numeric, node_limit: int
) -> Numeric:
    """`dispatch` or `combine` with one copy per distinct destination, as prefill uses it. [s]"""
    inside = np.minimum(ranks, chip.scale_up.chips_per_node)
    nodes = ceil_div(ranks, inside)
    far = np.minimum(distinct(nodes, k), node_limit) * (nodes - 1.0) / nodes
    near = distinct(ranks, k) * (ranks - 1.0) / ranks
    fit = chip.scale_up.collectives.get(op)
    rate = np.interp(1, [1], [fit.bandwidth[-1]]) if fit is not None else link_bandwidth(chip.scale_up, inside)
    alpha = fit.alpha[-1] if fit is not None else float(chip.overheads.collective)
    base = alpha + tokens * near * bytes_each / rate
    return np.where(ranks > 1, np.maximum(base, _cross_s(chip, tokens * far * bytes_each, nodes)), 0.0)


def _cross_s(chip: Chip, volume: Numeric, nodes: Numeric) -> Numeric:
    """Bytes that leave the node over this chip's network card. [s]"""
    link = chip.scale_out
    if link is None:
        return np.where(nodes > 1, np.inf, 0.0)
    efficiency = float(link.efficiency) if link.efficiency is not None else DEFAULT_LINK_EFFICIENCY
    hop = float(link.latency) if link.latency is not None else float(chip.overheads.collective) / 2
    alpha = float(chip.overheads.collective) + hop * tree_hops(nodes)
    return np.where(nodes > 1, alpha + volume / (float(link.bandwidth) * efficiency), 0.0)
