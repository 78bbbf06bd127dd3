"""Pipeline stages: how layers are cut into them, and what a pipeline costs.

A stage is described by how many layers of each kind it holds and whether the embedding (first) or the head and
the MTP layers (last) are on it. Candidate cuts come from balancing different mixtures of weight bytes and time:
evenly by layers, by weights, and with the head counted as 0 to 2 layers. The plan takes the candidate whose worst
stage is fastest among those whose worst stage fits.

Bubbles. Decode keeps m micro-batches in flight on p stages: a round takes
    max( m (slowest stage + send), sum of stages + p sends )
so with m = p only imbalance and sends are lost. A prefill of m chunks passes in (m + p - 1) steps of the slowest
stage: it idles (p - 1) / (m + p - 1) when nothing follows it, and nothing when other requests do.
Source: GPipe, arXiv:1811.06965, sec. 2.3 (bubble fraction).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.costs.params import attention_matrices, ffn_matrices
from mlaplan.costs.roofline import Numeric

if TYPE_CHECKING:
    from mlaplan.specs.model import Model

HEAD_LAYERS = (0.0, 1.0, 2.0)  # how many layers of time the head and MTP are taken for, one candidate each
MOST_CUTS = 2 * len(HEAD_LAYERS)  # candidates of one pipeline depth: by layers, and by weights


class LayerKind(NamedTuple):
    """A layer: its attention blocks and its feed-forward blocks, by name."""

    attention: tuple[str, ...]
    ffn: tuple[str, ...]


class Stage(NamedTuple):
    """Layers of each kind on one stage, in the order of `layer_kinds`, and what else is on it."""

    counts: tuple[int, ...]
    first: bool
    last: bool


class Cut(NamedTuple):
    """One way to cut the model: layers per stage in order, the distinct stages, and those that may be the slowest."""

    layers: tuple[int, ...]
    stages: tuple[Stage, ...]
    heaviest: tuple[Stage, ...]


def _heaviest(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages of which no other has all they have: the slowest is one of them, as no part takes negative time."""
    return tuple(s for s in stages if not any(_contains(other, s) for other in stages if other != s))


def _contains(whole: Stage, part: Stage) -> bool:
    """Whether a stage has every layer of another, and the embedding and the head if that has them."""
    layers = all(a >= b for a, b in zip(whole.counts, part.counts, strict=True))
    return layers and whole.first >= part.first and whole.last >= part.last


def layer_kinds(model: Model) -> list[LayerKind]:
    """The distinct layer kinds of the schedule, in order of appearance."""
    out: list[LayerKind] = []
    for run in model.layers:
        kind = LayerKind(tuple(run.attention), tuple(run.ffn))
        if kind not in out:
            out.append(kind)
    return out


def sequence(model: Model) -> list[int]:
    """Index of its kind for every layer from the embedding to the head."""
    kinds = layer_kinds(model)
    return [
        kinds.index(LayerKind(tuple(run.attention), tuple(run.ffn))) for run in model.layers for _ in range(run.count)
    ]


def layer_counts(model: Model) -> tuple[int, ...]:
    """Layers of each kind in the whole model, in the order of `layer_kinds`."""
    order = sequence(model)
    return tuple(order.count(k) for k in range(len(layer_kinds(model))))


def attention_counts(model: Model) -> dict[str, int]:
    """Blocks of each attention in the whole model, by name."""
    counts: dict[str, int] = {}
    for run in model.layers:
        for name in run.attention:
            counts[name] = counts.get(name, 0) + run.count
    return counts


def kind_weights(model: Model) -> list[float]:
    """Parameters of one layer of each kind."""
    return [
        float(
            sum(m.params for name in kind.attention for m in attention_matrices(model, name))
            + sum(m.params for name in kind.ffn for m in ffn_matrices(model, name))
        )
        for kind in layer_kinds(model)
    ]


def cuts(model: Model, pp: int) -> list[Cut]:
    """Candidate cuts into `pp` stages, without repetition; empty when there are fewer layers than stages."""
    order = sequence(model)
    if pp > len(order):
        return []
    weights, n_kinds = kind_weights(model), len(layer_kinds(model))
    heavy = max(weights)
    seen: dict[tuple[int, ...], Cut] = {}
    for cost in ([1.0] * n_kinds, [w / heavy for w in weights]):
        for tail in HEAD_LAYERS if pp > 1 else (0.0,):
            layers = _balanced(tuple(cost[k] for k in order), pp, tail)
            if layers not in seen:
                stages = _stages(order, layers, n_kinds)
                seen[layers] = Cut(layers, stages, _heaviest(stages))
    return list(seen.values())


def _stages(order: list[int], layers: tuple[int, ...], n_kinds: int) -> tuple[Stage, ...]:
    out, start = [], 0
    for i, n in enumerate(layers):
        part = order[start : start + n]
        counts = tuple(part.count(k) for k in range(n_kinds))
        stage = Stage(counts, i == 0, i == len(layers) - 1)
        if stage not in out:
            out.append(stage)
        start += n
    return tuple(out)


@cache
def _balanced(costs: tuple[float, ...], pp: int, tail: float) -> tuple[int, ...]:
    """Contiguous cut with the least cost of the dearest stage; the last stage carries `tail` besides its layers.

    Bisection over the bound; a greedy filling from the end decides whether a bound holds. Every stage keeps at
    least one layer.
    """
    low, high = max(max(costs), sum(costs) / pp), sum(costs) + tail
    best = _fill(costs, pp, high, tail)
    while high - low > 0.01 * max(costs):
        middle = (low + high) / 2
        filled = _fill(costs, pp, middle, tail)
        if filled is None:
            low = middle
        else:
            best, high = filled, middle
    assert best is not None
    return best


def _fill(costs: tuple[float, ...], pp: int, bound: float, tail: float) -> tuple[int, ...] | None:
    """Layers per stage with no stage above `bound`, filled from the last stage forward, or None."""
    counts, i = [], len(costs)
    for stage in range(pp - 1, -1, -1):
        load, n = (tail if stage == pp - 1 else 0.0), 0
        # leave one layer for each earlier stage; always take one
        while i > stage and (n == 0 or load + costs[i - 1] <= bound * (1 + 1e-12)):
            load += costs[i - 1]
            i, n = i - 1, n + 1
        if n == 0 or (load > bound * (1 + 1e-12) and n > 1):
            return None
        counts.append(n)
    return tuple(reversed(counts)) if i == 0 else None


def round_s(stage_s: Numeric, total_s: Numeric, send_s: Numeric, pp: Numeric, micro_batches: Numeric) -> Numeric:
    """Time for all m micro-batches to pass all p stages once, kept in flight. [s]

    max( m (slowest + send), sum + p send ); one stage sends nothing.
    """
    import numpy as np

    send = np.where(pp > 1, send_s, 0.0) if np.ndim(pp) else send_s * bool(pp > 1)
    return np.maximum(micro_batches * (stage_s + send), total_s + pp * send)


def fill_bubble(pp: Numeric, micro_batches: Numeric) -> Numeric:
    """Idle fraction of a pipeline that fills and drains: (p - 1) / (m + p - 1)."""
    return (pp - 1.0) / (micro_batches + pp - 1.0)
