"""What the tool holds against figures that contradict themselves or physics.

Three checks need no cost model: the identity  rate = sequences in flight / step  (a rate above it is impossible
with one token a step, one far below it means that fewer ran), the share of a step that is communication against
what its collectives take at least, and  busy = busy share x step,  which overlapping cannot shrink. A fourth asks
the cost model whether the sequences in flight fit the memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlaplan.validation.points import published

if TYPE_CHECKING:
    from mlaplan.validation.points import Point

TOLERANCE = 0.05  # rounding of published figures
FAR_BELOW = 0.7


def flags(point: Point, siblings: tuple[Point, ...] = ()) -> list[str]:
    """Reasons in words to refuse a point; siblings: the points of its series."""
    return [*_identity(point), *_busy(point, siblings), *_memory(point)]


def rejected() -> list[tuple[Point, list[str]]]:
    """Every rejected point of the published set and what is held against it."""
    points = published()
    out = []
    for point in points:
        if point.use == "reject":
            siblings = tuple(p for p in points if p.series == point.series and p.group == point.group)
            out.append((point, flags(point, siblings)))
    return out


def _identity(point: Point) -> list[str]:
    c = point.claims
    if not {"step", "tok_s", "in_flight"} <= c.keys():
        return []
    bound = c["in_flight"] / c["step"]
    share = c["tok_s"] / bound
    said = f"{c['in_flight']:.0f} sequences at {1e3 * c['step']:.1f} ms a step are {bound:,.0f} tok/s"
    if share > 1 + TOLERANCE:
        return [f"{said}, {c['tok_s']:,.0f} are claimed"]
    if share < FAR_BELOW:
        return [f"{said}, {c['tok_s']:,.0f} are claimed: only {share:.0%} of the sequences can be running"]
    return []


def _busy(point: Point, siblings: tuple[Point, ...]) -> list[str]:
    """Variants of one step that only overlap better have the same busy time and the same sequences in flight."""
    claims = [p.claims for p in siblings if {"step", "busy_share"} <= p.claims.keys()]
    if "busy_share" not in point.claims or len(claims) < 2:
        return []
    busy = [c["step"] * c["busy_share"] for c in claims]
    out = []
    if max(busy) / min(busy) > 1 + TOLERANCE:
        out.append(
            f"the busy time of its variants goes from {1e3 * max(busy):.2f} to {1e3 * min(busy):.2f} ms: "
            "overlapping cannot shrink work"
        )
    flight = [c["step"] * c["tok_s"] for c in claims if "tok_s" in c]
    if len(flight) > 1 and max(flight) / min(flight) > 1 + TOLERANCE:
        out.append(f"rate times step goes from {min(flight):.2f} to {max(flight):.2f} tokens in flight")
    return out


def _memory(point: Point) -> list[str]:
    c = point.claims
    if not {"in_flight", "devices"} <= c.keys() or point.chip is None or point.model is None:
        return []
    from mlaplan.explain import explain
    from mlaplan.validation.setting import asked

    devices = round(c["devices"])
    wide = {**point.strategy, "tp": 1, "dp": devices, "ep": devices}
    per_rank = -(-round(c["in_flight"]) // devices)
    one = replace(point, strategy=wide, workload={**point.workload, "batch": per_rank})
    q, st, _ = asked(one)
    memory = explain(q, st, served=False, decode_context=point.workload.get("isl", 1)).memory
    held, need = memory.kv_tokens, per_rank * q.budget.max_context
    if held >= need:
        return []
    return [f"{per_rank} sequences a chip need room for {need:,} tokens, {max(held, 0):,} fit beside the weights"]
