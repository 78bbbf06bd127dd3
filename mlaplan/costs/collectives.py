"""Time of one collective: alpha + volume / bandwidth, by operation, ranks and tier.

    all-reduce                    V = 2 (n-1)/n S        S: the reduced buffer
    all-gather, reduce-scatter,
    all-to-all                    V = (n-1)/n S          S: the whole buffer over all ranks
    send                          V = S

Where an operation was measured its own alpha and bandwidth hold, interpolated over log2(ranks); an all-reduce is
not a reduce-scatter and an all-gather (NVLink SHARP makes it faster). Otherwise the alpha is the chip's default
and the bandwidth the link's, cut by topology: on a switch every subset has the whole rate, in a full mesh n chips
have n-1 of the links, on a ring a part of the chips is a line with one link each way and the whole ring has two.

A group that spans nodes works in two tiers: the collective inside each node, then between nodes on the shard that
each chip's own network card carries. An all-reduce is then a reduce-scatter in the node, an all-reduce between nodes
and an all-gather in the node, each with its own alpha.
Source: NCCL, doc/PERFORMANCE.md of NVIDIA/nccl-tests (bus bandwidth); fits beside the constants in hardware/*.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs.roofline import Numeric, ceil_div

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip, Link
    from mlaplan.specs.fit import CollectiveFit

DEFAULT_LINK_EFFICIENCY = 0.75  # of the datasheet rate, where a spec states none
DEFAULT_RESIDUAL = 0.35  # of a time that comes from a datasheet link


class Group(NamedTuple):
    """`ranks` chips, `stride` apart in the placement (tensor parallel ranks are neighbours: stride 1)."""

    ranks: Numeric
    stride: Numeric = 1


def volume_bytes(op: str, size: Numeric, ranks: Numeric) -> Numeric:
    """Bytes that one chip sends for a buffer of `size` bytes. [B]"""
    if op == "send":
        return size * (ranks > 1)
    share = (ranks - 1.0) / ranks
    return (2.0 if op == "all_reduce" else 1.0) * share * size


def members_per_node(group: Group, chips_per_node: int) -> Numeric:
    """How many ranks of the group share a node when chips are numbered node by node."""
    return np.minimum(np.maximum(chips_per_node // np.maximum(group.stride, 1), 1), group.ranks)


def collective_s(chip: Chip, op: str, size: Numeric, group: Group, custom_limit_bytes: Numeric = 0.0) -> Numeric:
    """Time of one collective of `size` bytes over a group; 0 for one rank. [s]

    custom_limit_bytes: up to this size an engine's own one-shot all-reduce kernel may be used inside a node.
    """
    n = np.asarray(group.ranks)
    inside = members_per_node(group, chip.scale_up.chips_per_node)
    nodes = ceil_div(n, inside)
    t = _tier_s(chip, chip.scale_up, op, size, inside)
    if op == "all_reduce" and np.any(custom_limit_bytes) and "all_reduce_custom" in chip.scale_up.collectives:
        custom = fitted_s(chip.scale_up.collectives["all_reduce_custom"], "all_reduce", size, inside)
        t = np.where((size <= custom_limit_bytes) & (nodes == 1), np.minimum(t, custom), t)
    if np.all(nodes <= 1):
        return np.where(n > 1, t, 0.0)
    if op == "all_reduce":
        # three kernels one after the other: scatter in the node, reduce between nodes, gather in the node
        parts = (_tier_s(chip, chip.scale_up, part, size, inside) for part in ("reduce_scatter", "all_gather"))
        t = np.where(nodes > 1, sum(parts), t)
    between = _network_s(chip, op, size / (inside if op == "all_reduce" else 1.0), nodes, inside)
    return np.where(n > 1, np.where(inside > 1, t, 0.0) + np.where(nodes > 1, between, 0.0), 0.0)


def _tier_s(chip: Chip, link: Link, op: str, size: Numeric, ranks: Numeric) -> Numeric:
    fit = link.collectives.get(op)
    if fit is not None:
        return fitted_s(fit, op, size, ranks)
    if op == "all_reduce" or op not in link.unsupported:
        alpha = float(chip.overheads.collective)
        return np.where(ranks > 1, alpha + volume_bytes(op, size, ranks) / link_bandwidth(link, ranks), 0.0)
    # no reduce-scatter on the chip: an all-reduce of the whole buffer, of which each rank keeps its part
    return _tier_s(chip, link, "all_reduce", size, ranks)


def fitted_s(fit: CollectiveFit, op: str, size: Numeric, ranks: Numeric) -> Numeric:
    """alpha(n) + (V + sqrt(V K(n))) / B(n), all linear in log2(n) between measured rank counts and held beyond them.

    K is the knee: protocols change in the middle sizes, which costs more than a straight line says. 0 for none.

    Beyond the largest measured count alpha goes on with its last slope (a longer ring or tree), bandwidth stays.
    """
    alpha, bandwidth, knee = by_count(ranks, _Fitted(fit.ranks, fit.alpha, fit.bandwidth, fit.knee))
    volume = volume_bytes(op, size, ranks)
    if fit.knee:
        volume = volume + np.sqrt(volume * knee)
    return np.where(np.asarray(ranks) > 1, alpha + volume / bandwidth, 0.0)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """Constants of a fit beside the ranks they were measured at; called with ranks: alpha(n), B(n) and K(n)."""

    ranks: tuple[int, ...]
    alpha: tuple[float, ...]
    bandwidth: tuple[float, ...]
    knee: tuple[float, ...]

    def __call__(self, ranks: Numeric) -> list[Numeric]:
        x = np.log2(np.maximum(ranks, 2))
        known = np.log2(np.asarray(self.ranks, dtype=float))
        alpha = np.interp(x, known, self.alpha)
        if len(known) > 1:
            slope = max((self.alpha[-1] - self.alpha[-2]) / (known[-1] - known[-2]), 0.0)
            alpha = alpha + slope * np.maximum(x - known[-1], 0.0)
        return [alpha, np.interp(x, known, self.bandwidth), np.interp(x, known, self.knee or (0.0,) * len(known))]


def by_count(counts: Numeric, of: Callable[[Numeric], list[Numeric]]) -> list[Numeric]:
    """`of` a column of ranks or nodes, evaluated once for each number up to the largest where that is less work."""
    counts = np.asarray(counts)
    highest = int(counts.max(initial=0))
    if highest >= counts.size or counts.dtype.kind != "i":
        return of(counts)
    return [table[counts] for table in _up_to(highest, of)]


@lru_cache(maxsize=512)
def _up_to(highest: int, of: Callable[[Numeric], list[Numeric]]) -> list[Numeric]:
    """`of` each whole number up to the highest. Not to be written to."""
    return of(np.arange(highest + 1))


def _hops(nodes: Numeric) -> list[Numeric]:
    return [np.ceil(np.log2(np.maximum(nodes, 2)))]


def tree_hops(nodes: Numeric) -> Numeric:
    """Steps of a tree over so many nodes, at least one: ceil(log2 n)."""
    return by_count(nodes, _hops)[0]


def link_bandwidth(link: Link, ranks: Numeric) -> Numeric:
    """Achieved bytes per second and direction that `ranks` chips of a node give each of them."""
    efficiency = float(link.efficiency) if link.efficiency is not None else DEFAULT_LINK_EFFICIENCY
    return float(link.bandwidth) * efficiency * topology_share(link, ranks)


def topology_share(link: Link, ranks: Numeric) -> Numeric:
    """Part of the chip's whole link rate that a group of `ranks` chips can use.

    switch: 1.   full mesh of N: (n-1)/(N-1).   ring: 1/links for a part (a line), 2/links for the whole ring.
    Measured: MI300X all-reduce of 2 chips 47.7 GB/s against 312.9 of 8 (stas00/ml-engineering, network).
    """
    n = np.asarray(ranks, dtype=float)
    if link.topology == "full_mesh":
        size = link.group or link.chips_per_node
        return np.clip((n - 1.0) / max(size - 1, 1), 1.0 / max(size - 1, 1), 1.0)
    if link.topology in ("ring", "ring_chords"):
        links = link.links or 2
        return np.where(n >= link.chips_per_node, min(2.0 / links, 1.0), 1.0 / links)
    return np.ones_like(n)


def _network_s(chip: Chip, op: str, size: Numeric, nodes: Numeric, inside: Numeric) -> Numeric:
    """The part between nodes: a tree of hops, each chip's card carrying its shard. [s]"""
    link = chip.scale_out
    if link is None:
        return np.where(nodes > 1, np.inf, 0.0)
    hop = float(link.latency) if link.latency is not None else float(chip.overheads.collective) / 2
    hops = (2.0 if op == "all_reduce" else 1.0) * tree_hops(nodes)
    efficiency = float(link.efficiency) if link.efficiency is not None else DEFAULT_LINK_EFFICIENCY
    volume = volume_bytes(op, size, nodes)
    if op in ("all_gather", "reduce_scatter"):
        volume = volume / inside  # each chip brings its shard over once, the node spreads it
    return float(chip.overheads.collective) + hops * hop + volume / (float(link.bandwidth) * efficiency)


def send_s(chip: Chip, size: Numeric, crosses_node: Numeric) -> Numeric:
    """One activation tensor to the next pipeline stage: alpha + S/B of the link between them. [s]"""
    up, out = chip.scale_up, chip.scale_out
    alpha = float(chip.overheads.collective)
    near = alpha + size / link_bandwidth(up, 2)
    if out is None:
        return np.where(crosses_node, np.inf, near)
    efficiency = float(out.efficiency) if out.efficiency is not None else DEFAULT_LINK_EFFICIENCY
    hop = float(out.latency) if out.latency is not None else alpha / 2
    return np.where(crosses_node, alpha + hop + size / (float(out.bandwidth) * efficiency), near)


def collective_residual(chip: Chip, op: str, group_spans_nodes: bool, ranks: int = 2) -> float:
    """Relative error of the model of this collective: the fit's own where as many ranks were measured, else the
    class's."""
    fit = chip.scale_up.collectives.get(op)
    measured = fit is not None and not group_spans_nodes and ranks <= fit.ranks[-1]
    return fit.residual if fit is not None and measured else DEFAULT_RESIDUAL
