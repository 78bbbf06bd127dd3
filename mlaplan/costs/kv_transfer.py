"""A prompt's cache on its way from the chips that computed it to those that decode: bytes, time, and what shows.

A request's cache lies on the T P chips of one attention-DP rank (tensor parallel T, pipeline P), b bytes a token each.
Every decoding chip takes what it will read, so b counts copies: an MLA latent goes to each of its TP ranks whole, since
each will hold it; a key-value head of GQA to every rank that repeats it. The prefilling chips share the sending evenly:
where they hold copies of the latent, each sends a part of the copies.

    received = ISL b_d                               bytes a decoding chip
    sent     = ISL b_d T_d P_d / (T_p P_p)           bytes a prefilling chip
    T        = alpha + max(received, sent) / B       every chip has a network card of its own
    rate     = D_d B / received,  D_p B / sent       requests per second that the cards of one instance carry

Sent layer by layer while later layers compute, the transfer is the second of two resources that n items pass, n layers
of a stage times the chunks of the prompt, and what shows after the prefill S is

    exposed  = max( T / n,  T - S (n - 1) / n )      T where it is sent after the prefill

Left out: other traffic on the cards, the proxy's own time, layouts that must be rearranged on the way.
Sources: Mooncake, arXiv:2407.00079, sec. 5.2 (layer-wise prefill); DistServe, arXiv:2401.09670, sec. 4; `costs.chain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import memory, pipeline
from mlaplan.costs.chain import two_stage_s
from mlaplan.costs.collectives import DEFAULT_LINK_EFFICIENCY, link_bandwidth
from mlaplan.costs.roofline import Numeric

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model
    from mlaplan.strategy import Strategy


class Route(NamedTuple):
    """The link between two pools: its name, achieved bytes per second and chip, and the time before the first byte."""

    name: str
    bytes_per_s: float
    alpha_s: float


class Transfer(NamedTuple):
    """One request's cache: bytes of a decoding and of a prefilling chip, all bytes, and the time on the way."""

    received_bytes: Numeric
    sent_bytes: Numeric
    total_bytes: Numeric
    time_s: Numeric


def route(source: Chip, target: Chip, inside: bool) -> Route | None:
    """The slower of both chips' network links, or the scale-up link where all chips are in one node; None without.

    inside: all chips of both pools are one node of one kind.
    """
    if inside:
        up = source.scale_up
        return Route(up.name, float(link_bandwidth(up, 2)), float(source.overheads.collective))
    found = []
    for chip in (source, target):
        out = chip.scale_out
        if out is None:
            return None
        efficiency = float(out.efficiency) if out.efficiency is not None else DEFAULT_LINK_EFFICIENCY
        alpha = float(chip.overheads.collective)
        hop = float(out.latency) if out.latency is not None else alpha / 2
        found.append(Route(out.name, float(out.bandwidth) * efficiency, alpha + hop))
    return min(found, key=lambda r: r.bytes_per_s)


def chip_token_bytes(model: Model, s: Strategy) -> float:
    """Bytes of one token of the cache on one chip, the mean over pipeline stages, MTP layers included. [B]"""
    shards = memory.Shards(s.tp, s.dp, s.ep, s.dcp, s.cp)
    kinds = [*zip(pipeline.layer_kinds(model), pipeline.layer_counts(model), strict=True)]
    if s.mtp and model.mtp is not None:
        kinds.append((pipeline.LayerKind((model.mtp.attention,), ()), model.mtp.layers))
    layers = (n * memory.layer_kv_bytes(model, kind, shards, s.kv_layout, s.kv_dtype) for kind, n in kinds)
    return float(sum(layers)) / s.pp


def transfer(isl: int, token_bytes: Numeric, sources: Numeric, targets: Numeric, link: Route) -> Transfer:
    """One prompt from `sources` = T_p P_p chips to `targets` = T_d P_d, b_d bytes a token and target."""
    received = isl * token_bytes
    total = received * targets
    sent = total / sources
    return Transfer(received, sent, total, link.alpha_s + np.maximum(received, sent) / link.bytes_per_s)


def exposed_s(transfer_s: Numeric, prefill_s: Numeric, items: Numeric) -> Numeric:
    """What of the transfer shows after the prefill, sent in `items` parts as they are computed. [s]"""
    return two_stage_s(prefill_s / items, transfer_s / items, items) - prefill_s
