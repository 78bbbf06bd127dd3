"""Pipeline parallelism: consecutive layers, with their caches, on consecutive stages.

A layer here is the attention half of a transformer layer, h + attention(norm(h)); feed-forward parts would
sit between without changing what is sent: h and the last block's output, B q d elements each. The next norm adds
them, as engines do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mlaplan.kernel import block
from mlaplan.kernel.block import Setting
from mlaplan.kernel.collectives import send
from mlaplan.kernel.norm import rms_norm
from mlaplan.kernel.shares import ShareError, assert_owned, copied
from mlaplan.kernel.traffic import Widths
from mlaplan.kernel.weights import Weights


@dataclass(frozen=True, slots=True)
class Layer:
    norm: np.ndarray  # [d]
    weights: Weights
    caches: list[np.ndarray]  # B x [T_b, d_c + d_h^R]


def layer_step(h: np.ndarray, layer: Layer, setting: Setting) -> tuple[np.ndarray, Layer]:
    """h + attention(norm(h))."""
    u, after = _output(h, layer, setting)
    return h + u, after


def _output(h: np.ndarray, layer: Layer, setting: Setting) -> tuple[np.ndarray, Layer]:
    """attention(norm(h))."""
    x = rms_norm(h, layer.norm, layer.weights.norm_eps)
    u, caches = block.step(x, layer.caches, layer.weights, setting)
    return u, Layer(layer.norm, layer.weights, caches)


def split(layers: Sequence[Layer], stages: int) -> list[list[Layer]]:
    """Layers in order over the stages, the first stages one longer where it does not divide."""
    if not 1 <= stages <= len(layers):
        raise ValueError(f"{len(layers)} layers cannot fill {stages} stages")
    bounds = np.cumsum([0] + [len(layers) // stages + (s < len(layers) % stages) for s in range(stages)])
    return [
        [Layer(la.norm.copy(), copied(la.weights), [c.copy() for c in la.caches]) for la in layers[lo:hi]]
        for lo, hi in pairwise(bounds)
    ]


def step(
    h: np.ndarray, stages: Sequence[Sequence[Layer]], setting: Setting, widths: Widths | None = None
) -> tuple[np.ndarray, list[list[Layer]]]:
    """h [B, q_len, d] into the first stage -> h out of the last."""
    widths = widths or Widths()
    assert_shares(stages)
    after: list[list[Layer]] = []
    u = np.zeros_like(h)
    for index, stage in enumerate(stages):
        if index:
            h, u = (send(part, "stage_boundary", widths.activation, setting.how.ledger) for part in (h, u))
        done = []
        for layer in stage:
            h = h + u
            u, new = _output(h, layer, setting)
            done.append(new)
        after.append(done)
    return h + u, after


def assert_shares(stages: Sequence[Sequence[Layer]]) -> None:
    """No array lives on two stages, and every stage has work."""
    seen: dict[int, int] = {}
    for index, stage in enumerate(stages):
        if not stage:
            raise ShareError(f"stage {index} has no layer")
        for layer in stage:
            for array in (layer.weights.w_uk, layer.weights.w_o, *layer.caches):
                assert_owned({"layer": (array, array.shape)})
                if seen.setdefault(id(array), index) != index:
                    raise ShareError(f"stages {seen[id(array)]} and {index} hold the same array")
