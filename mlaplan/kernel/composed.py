"""All partitions at once: pipeline stages of data-parallel groups of tensor-parallel ranks.

stage (pp) > requests (dp) > heads (tp) > the cache inside the tp group:
    replicated          tensor_parallel
    latent-sharded      latent_parallel over tp ranks
    sequence-sharded    tp / dcp context_parallel groups of dcp ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel import context_parallel, latent_parallel, tensor_parallel, traffic
from mlaplan.kernel.block import Setting
from mlaplan.kernel.collectives import all_reduce, send
from mlaplan.kernel.norm import rms_norm
from mlaplan.kernel.pipeline_parallel import Layer
from mlaplan.kernel.pipeline_parallel import split as split_stages
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.shares import even
from mlaplan.kernel.traffic import LATENT_SHARDED, REPLICATED, SEQUENCE_SHARDED, Widths
from mlaplan.kernel.weights import Weights


@dataclass(frozen=True, slots=True)
class Layout:
    """The attention side of a strategy: tp ranks in each of dp groups in each of pp stages."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    kv_layout: str = REPLICATED
    dcp: int = 1
    interleave: int = 1
    exchange: str = traffic.GATHER_SCATTER

    @property
    def ranks(self) -> int:
        return self.tp * self.dp * self.pp

    def text(self) -> str:
        sizes = (("tp", self.tp), ("dp", self.dp), ("pp", self.pp))
        parts = [f"{name}{size}" for name, size in sizes if size > 1]
        if self.kv_layout == SEQUENCE_SHARDED:
            parts.append(f"dcp{self.dcp} by {self.interleave}, {self.exchange}")
        elif self.kv_layout != REPLICATED:
            parts.append(self.kv_layout)
        return " ".join(parts) or "one rank"


def group_step(
    x: np.ndarray,
    caches: Sequence[np.ndarray],
    weights: Weights,
    setting: Setting,
    layout: Layout,
    widths: Widths,
) -> np.ndarray:
    """One layer, one tensor-parallel group. x [B, q_len, d] -> u [B, q_len, d]"""
    if layout.kv_layout == REPLICATED:
        return tensor_parallel.step(x, tensor_parallel.split(weights, caches, layout.tp), setting, widths)[0]
    if layout.kv_layout == LATENT_SHARDED:
        return latent_parallel.step(x, latent_parallel.split(weights, caches, layout.tp), setting, widths)[0]
    if layout.kv_layout != SEQUENCE_SHARDED:
        raise ValueError(f"no such kv layout: {layout.kv_layout!r}")
    partial_sums: list[np.ndarray] = []
    groups = even(layout.tp, layout.dcp, "tensor-parallel ranks") if layout.dcp > 1 else layout.tp
    for index in range(groups):
        heads = tensor_parallel.head_share(weights, index, groups)
        group = context_parallel.split(heads, caches, layout.dcp, layout.interleave)
        partial_sums += context_parallel.step_partial_sums(x, group, setting, layout.exchange, widths)[0]
    return all_reduce(partial_sums, "o_proj", widths.activation, setting.how.ledger)[0]


def attention(
    x: np.ndarray,
    caches: Sequence[np.ndarray],
    weights: Weights,
    setting: Setting,
    layout: Layout,
    widths: Widths | None = None,
) -> np.ndarray:
    """One layer on all data-parallel groups. x [B, q_len, d] -> u [B, q_len, d]"""
    u = np.empty_like(x)
    for requests in request_groups(len(x), layout.dp):
        mine = [caches[b] for b in requests]
        u[requests] = group_step(x[requests], mine, weights, setting, layout, widths or Widths())
    return u


def step(
    h: np.ndarray,
    layers: Sequence[Layer],
    setting: Setting,
    layout: Layout,
    widths: Widths | None = None,
) -> np.ndarray:
    """h + attention(norm(h)) through all layers, which hold whole weights and caches. h [B, q_len, d]"""
    widths = widths or Widths()
    u = np.zeros_like(h)  # the last block's output, which the next norm adds to the residual stream h
    for index, stage in enumerate(split_stages(layers, layout.pp)):
        if index:
            for requests in request_groups(len(h), layout.dp):
                for part in (h, u):
                    send(part[requests], "stage_boundary", widths.activation, setting.how.ledger)
        for layer in stage:
            h = h + u
            x = rms_norm(h, layer.norm, layer.weights.norm_eps)
            u = attention(x, layer.caches, layer.weights, setting, layout, widths)
    return h + u


def request_groups(batch: int, dp: int) -> list[list[int]]:
    """Requests of each data-parallel group that has any."""
    return [list(range(g, batch, dp)) for g in range(min(dp, batch))]


def expected_total_bytes(
    s: Shapes,
    layout: Layout,
    layers: int,
    lengths: Sequence[int],
    q_len: int,
    widths: Widths | None = None,
) -> float:
    """Closed form of all that all ranks send in one step. lengths: cached tokens before the step."""
    widths = widths or Widths()
    total = 0.0
    for requests in request_groups(len(lengths), layout.dp):
        context = sum(lengths[b] + q_len for b in requests)
        sent = traffic.layer_sent_bytes(
            s,
            len(requests),
            q_len,
            context,
            layout.tp,
            layout.kv_layout,
            layout.dcp,
            layout.exchange,
            widths,
        )
        total += layers * layout.tp * sum(sent.values())
        total += (layout.pp - 1) * traffic.stage_boundary_bytes(s, len(requests), q_len, widths)
    return total
