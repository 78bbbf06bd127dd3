"""Mixture of experts: router, the way of tokens to their experts, grouped GEMM, shared experts.

The w = tp x dp chips of a pipeline stage hold the experts as EP x MoE-TP. Tokens reach them in one of two ways:
  gathered     one attention-DP rank: the tokens are on every chip already, and an all-reduce sums the parts;
               several: an all-gather over the DP ranks before and a reduce-scatter after
  dispatched   each chip owns 1/tp of its rank's tokens, sends every copy to its expert and gets it back
Where the engine has both, the faster one is taken, decode and prefill each.

Expected distinct experts that T tokens touch: E (1 - (1 - k/E)^T); their weights are what decode streams.
Source: DeepSeek-V3, arXiv:2412.19437, sec. 3; vLLM and SGLang expert-parallel docs for the gathered way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import expert_parallel as ep_net
from mlaplan.costs.collectives import DEFAULT_RESIDUAL, Group
from mlaplan.costs.dense import gated_ops, reduce_ops
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine, Op, link_op
from mlaplan.costs.params import routed_per_token
from mlaplan.costs.roofline import Numeric, ceil_div, pad_to

if TYPE_CHECKING:
    from mlaplan.specs.model import MoEFFN


class MoeShape(NamedTuple):
    """One step on one pipeline stage; `tokens` per attention-DP rank."""

    tokens: Numeric
    tp: Numeric
    dp: Numeric
    ep: Numeric
    cp: Numeric = 1
    decode: bool = True


class MoeChoice(NamedTuple):
    """What the engine can do and what the user knows better."""

    dispatch: bool = True  # an all-to-all dispatch kernel
    dispatch_whole: bool = False  # dispatch only with the experts over all ranks (EP = TP x DP)
    gather: bool = True
    imbalance: float = 1.0  # tokens of the busiest EP rank over the mean
    redundant_experts: int = 0
    fp8_dispatch: bool = True


def distinct_experts(experts: Numeric, per_token: Numeric, tokens: Numeric) -> Numeric:
    """Expected distinct experts of E that T tokens with k choices each touch: E (1 - (1 - k/E)^T)."""
    return experts * (1.0 - (1.0 - per_token / experts) ** tokens)


def local_experts(f: MoEFFN, ep: Numeric, redundant: int = 0) -> Numeric:
    """Experts that one EP rank stores, copies of hot ones included: ceil((E + R) / ep)."""
    return ceil_div(f.experts + redundant, ep)


def ffn_ops(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> list[Op]:
    """One MoE block, from its norm to the reduction of its output."""
    d = m.model.hidden_size
    t = s.tokens / s.cp
    ops = [
        m.elementwise("ffn_norm", 4 * t * d * ACTIVATION_BYTES),
        m.gemm("router", "router", t, d, f.experts + f.zero_experts),
        m.elementwise("router_top_k", t * (f.experts + f.zero_experts) * 4.0),
    ]
    ops += _routed(m, f, s, choice)
    if f.shared_experts:
        ops += gated_ops(m, "shared_expert", "shared", s.tokens, f.shared_intermediate_size / s.tp)
    return ops


class _Load(NamedTuple):
    """Routed experts of one chip: its copies of all tokens of the stage, as they are and in whole tiles."""

    rows: Numeric
    padded_rows: Numeric
    active: Numeric
    stored: Numeric
    inner: Numeric  # its part of their width


def _load(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> _Load:
    k, everyone = routed_per_token(f), s.tokens * s.dp
    skew = np.where(np.asarray(s.ep) > 1, choice.imbalance, 1.0)
    rows = everyone * k / s.ep * skew
    stored = local_experts(f, s.ep, choice.redundant_experts)
    active = np.minimum(distinct_experts(f.experts, k, everyone) / s.ep, stored)
    # mean rows of an active expert, each padded to the tile
    each = pad_to(rows / active, m.tile.gemm_rows)
    return _Load(rows, active * each, active, stored, f.intermediate_size / moe_tp(s))


def moe_tp(s: MoeShape) -> Numeric:
    """Ranks that share the width of each expert."""
    return s.tp * s.dp / s.ep


def _routed(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> list[Op]:
    """The routed experts and the way of the tokens to them and back, by the faster of the ways the engine has."""
    load = _load(m, f, s, choice)
    before, after = _gathered(m, s)
    gathered = [*before, m.experts("routed_experts", *load, dispatched=False), *after]
    possible = np.asarray((s.ep > 1) & ((s.dp > 1) | (s.cp > 1))) & choice.dispatch
    if choice.dispatch_whole:
        possible = possible & np.asarray(s.ep == s.tp * s.dp)
    if not np.any(possible):
        return gathered
    before, after = _dispatched(m, f, s, choice)
    dispatched = [*before, m.experts("routed_experts", *load, dispatched=True), *after]
    slower = sum(op.time_s for op in gathered) > sum(op.time_s for op in dispatched)
    use = np.where(possible & (slower | (not choice.gather)), 1.0, 0.0)
    return [op.scaled(1.0 - use) for op in gathered] + [op.scaled(use) for op in dispatched]


def _gathered(m: Machine, s: MoeShape) -> tuple[list[Op], list[Op]]:
    """All tokens on all chips: DP gather and scatter, and the sum over the TP ranks."""
    size = s.tokens * s.dp * m.model.hidden_size * ACTIVATION_BYTES
    before = [m.collective("moe_dp_gather", "all_gather", size, Group(s.dp, s.tp))]
    after = [
        m.collective("moe_dp_scatter", "reduce_scatter", size, Group(s.dp, s.tp)),
        *reduce_ops(m, "moe", s.tokens, s.tp, s.cp),
    ]
    return before, after


def _dispatched(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> tuple[list[Op], list[Op]]:
    """All-to-all of the copies over the stage, then the TP ranks share what each of them owned."""
    d, k = m.model.hidden_size, routed_per_token(f)
    own = s.tokens / s.tp
    ranks = s.tp * s.dp
    out_bytes, back_bytes = ep_net.copy_bytes(d, choice.fp8_dispatch), 2.0 * d
    copies = k * moe_tp(s)
    ops = []
    for op, nbytes in (("dispatch", out_bytes), ("combine", back_bytes)):
        if s.decode:
            time_s = ep_net.low_latency_s(m.chip, op, own, copies, nbytes, ranks)
            volume = own * copies * nbytes
        else:
            limit = f.groups_per_token if f.groups > 1 else f.experts_per_token
            time_s = ep_net.normal_s(m.chip, op, own, copies, nbytes, ranks, limit)
            volume = own * ep_net.distinct(ranks, copies) * nbytes
        ops.append(link_op(f"moe_{op}", time_s, volume * np.where(ranks > 1, 1.0, 0.0), DEFAULT_RESIDUAL))
    share = m.collective("moe_token_gather", "all_gather", s.tokens * d * ACTIVATION_BYTES, Group(s.tp))
    return [ops[0]], [ops[1], share.scaled(1 * (s.cp == 1))]
