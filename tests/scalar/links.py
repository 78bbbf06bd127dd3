"""Communication: alpha + V/B by operation, ranks, topology and tier; dispatch and combine of experts."""

from __future__ import annotations

import math
from typing import Any

UNKNOWN_EFFICIENCY = 0.75
VOLUME = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def volume(op: str, size: float, n: int) -> float:
    """Bytes that one of n chips sends: 2 (n-1)/n S for an all-reduce, (n-1)/n S for its halves, S for a send."""
    if n <= 1:
        return 0.0
    return size if op == "send" else VOLUME[op] * (n - 1) / n * size


def between(x: float, xs: list[float], ys: list[float]) -> float:
    """Linear interpolation, held at both ends."""
    if x <= xs[0]:
        return ys[0]
    for x0, x1, y0, y1 in zip(xs, xs[1:], ys, ys[1:], strict=False):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return ys[-1]


def fitted(fit: Any, op: str, size: float, n: int) -> float:
    """A measured alpha and bandwidth, linear in log2(n); beyond the table alpha keeps its last slope if it rises."""
    if n <= 1:
        return 0.0
    x, xs = math.log2(n), [math.log2(r) for r in fit.ranks]
    alpha = between(x, xs, list(fit.alpha))
    if len(xs) > 1 and x > xs[-1]:
        slope = (fit.alpha[-1] - fit.alpha[-2]) / (xs[-1] - xs[-2])
        alpha += max(slope, 0.0) * (x - xs[-1])
    moved = volume(op, size, n)
    if fit.knee:
        moved += math.sqrt(moved * between(x, xs, list(fit.knee)))
    return alpha + moved / between(x, xs, list(fit.bandwidth))


def efficiency(link: Any) -> float:
    return UNKNOWN_EFFICIENCY if link.efficiency is None else float(link.efficiency)


def share_of_links(link: Any, n: int) -> float:
    """Part of a chip's links that n chips of a node use among themselves."""
    if link.topology == "full_mesh":
        peers = max((link.group or link.chips_per_node) - 1, 1)
        return min(max((n - 1) / peers, 1.0 / peers), 1.0)
    if link.topology in ("ring", "ring_chords"):
        links = link.links or 2
        return min(2.0 / links, 1.0) if n >= link.chips_per_node else 1.0 / links
    return 1.0


def node_rate(link: Any, n: int) -> float:
    """Bytes per second and direction among n chips of a node."""
    return float(link.bandwidth) * efficiency(link) * share_of_links(link, n)


def network_rate(link: Any) -> float:
    return float(link.bandwidth) * efficiency(link)


def hop_latency(chip: Any) -> float:
    link = chip.scale_out
    return float(chip.overheads.collective) / 2 if link.latency is None else float(link.latency)


def in_node(chip: Any, op: str, size: float, n: int) -> float:
    """Among n chips of one node: the measured table, else the default alpha and the links' rate."""
    link = chip.scale_up
    if op in link.collectives:
        return fitted(link.collectives[op], op, size, n)
    if n <= 1:
        return 0.0
    if op in link.unsupported and op != "all_reduce":
        return in_node(chip, "all_reduce", size, n)
    return float(chip.overheads.collective) + volume(op, size, n) / node_rate(link, n)


def over_nodes(chip: Any, op: str, size: float, nodes: int, inside: int) -> float:
    """Between nodes, where each chip's card carries 1/inside of the buffer: alpha, a tree of hops, V/B."""
    if nodes <= 1:
        return 0.0
    if chip.scale_out is None:
        return math.inf
    shard = size / inside if op in ("all_reduce", "all_gather", "reduce_scatter") else size
    hops = math.ceil(math.log2(nodes)) * (2 if op == "all_reduce" else 1)
    alpha = float(chip.overheads.collective) + hops * hop_latency(chip)
    return alpha + volume(op, shard, nodes) / network_rate(chip.scale_out)


def collective(chip: Any, op: str, size: float, n: int, stride: int = 1, custom_limit: float = 0.0) -> float:
    """One collective over n chips `stride` apart: in the node, then over the nodes."""
    if n <= 1:
        return 0.0
    inside = min(max(chip.scale_up.chips_per_node // max(stride, 1), 1), n)
    nodes = -(-n // inside)
    near = in_node(chip, op, size, inside)
    if op == "all_reduce" and nodes > 1:
        near = in_node(chip, "reduce_scatter", size, inside) + in_node(chip, "all_gather", size, inside)
    if op == "all_reduce" and nodes == 1 and custom_limit > 0.0 and size <= custom_limit:
        custom = chip.scale_up.collectives.get("all_reduce_custom")
        if custom is not None:
            near = min(near, fitted(custom, op, size, n))
    return near + over_nodes(chip, op, size, nodes, inside)


def send(chip: Any, size: float, crosses_node: bool) -> float:
    """To the next pipeline stage, over the link that joins the two."""
    alpha = float(chip.overheads.collective)
    if not crosses_node:
        return alpha + size / node_rate(chip.scale_up, 2)
    if chip.scale_out is None:
        return math.inf
    return alpha + hop_latency(chip) + size / network_rate(chip.scale_out)


# ---- expert parallelism ----


def copy_width(hidden: int, fp8: bool) -> float:
    """One token on the wire: fp8 and an fp32 scale per 128 numbers, or bf16."""
    return hidden + 4 * hidden / 128 if fp8 else 2.0 * hidden


def distinct(places: int, draws: float) -> float:
    """n (1 - (1 - 1/n)^k)"""
    return places * (1.0 - (1.0 - 1.0 / places) ** draws)


def leaving(chip: Any, nbytes: float, nodes: int) -> float:
    """Bytes that leave the node over the chip's own card."""
    if nodes <= 1:
        return 0.0
    if chip.scale_out is None:
        return math.inf
    alpha = float(chip.overheads.collective) + hop_latency(chip) * math.ceil(math.log2(nodes))
    return alpha + nbytes / network_rate(chip.scale_out)


def low_latency(chip: Any, op: str, tokens: float, copies: float, width: float, ranks: int) -> float:
    """One copy per routed expert, as in decode: V = t k width, of which 1/nodes stays in the node."""
    if ranks <= 1:
        return 0.0
    inside = min(ranks, chip.scale_up.chips_per_node)
    nodes = -(-ranks // inside)
    total = tokens * copies * width
    table = chip.scale_up.collectives.get(op)
    if table is not None and nodes == 1:
        near = fitted(table, "send", total, ranks)
    elif table is not None:
        wide = chip.scale_out.collectives.get(op) if chip.scale_out is not None else None
        if wide is not None:
            return fitted(wide, "send", total, ranks)
        near = fitted(table, "send", total / nodes, inside)
    else:
        moved = total * max(1.0 / nodes - 1.0 / ranks, 0.0)
        near = float(chip.overheads.collective) + moved / node_rate(chip.scale_up, inside)
    return max(near, leaving(chip, total * (1.0 - 1.0 / nodes), nodes))


def normal(chip: Any, op: str, tokens: float, copies: float, width: float, ranks: int, node_limit: float) -> float:
    """One copy per distinct destination, as in prefill."""
    if ranks <= 1:
        return 0.0
    inside = min(ranks, chip.scale_up.chips_per_node)
    nodes = -(-ranks // inside)
    to_nodes = min(distinct(nodes, copies), node_limit) * (nodes - 1) / nodes
    to_chips = distinct(ranks, copies) * (ranks - 1) / ranks
    table = chip.scale_up.collectives.get(op)
    alpha = float(chip.overheads.collective) if table is None else table.alpha[-1]
    rate = node_rate(chip.scale_up, inside) if table is None else table.bandwidth[-1]
    near = alpha + tokens * to_chips * width / rate
    return max(near, leaving(chip, tokens * to_nodes * width, nodes))
