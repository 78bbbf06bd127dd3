"""Mixture of experts: router, the way of tokens to their experts, grouped GEMM, shared experts.

The w = tp x dp chips of a pipeline stage hold the experts as EP x MoE-TP. Tokens reach them in one of two ways:
  gathered     one attention-DP rank: the tokens are on every chip already, and an all-reduce sums the parts;
               several: an all-gather over the DP ranks before and a reduce-scatter after
  dispatched   each chip owns 1/tp of its rank's tokens, sends every copy to its expert and gets it back
Where the engine has both, the faster one is taken, decode and prefill each; or the one that its own rule takes
(`DispatchRule`), as vLLM-Ascend goes by ranks, experts of a rank and tokens of the step.

How many different experts the tokens touch: see `routing`.
Source: DeepSeek-V3, arXiv:2412.19437, sec. 3; vLLM and SGLang expert-parallel docs for the gathered way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import expert_parallel as ep_net
from mlaplan.costs.collectives import DEFAULT_RESIDUAL, Group
from mlaplan.costs.dense import reduce_ops
from mlaplan.costs.engine import Interval
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine, Op, link_op
from mlaplan.costs.params import routed_per_token
from mlaplan.costs.placement import DispatchRule
from mlaplan.costs.roofline import Numeric, ceil_div, pad_to
from mlaplan.costs.routing import Groups, busiest, touched, uneven
from mlaplan.costs.shared_experts import APART, Beside, fused_experts, own_rank_ops, routed_ranks, shared_ops

if TYPE_CHECKING:
    from mlaplan.specs.model import Model, MoEFFN


class MoeShape(NamedTuple):
    """One step on one pipeline stage; `tokens` per attention-DP rank.

    mean: tokens of a rank on average, where this one has more than others; None: all have as many.
    """

    tokens: Numeric
    tp: Numeric
    dp: Numeric
    ep: Numeric
    cp: Numeric = 1
    decode: bool = True
    mean: Numeric | None = None

    @property
    def everyone(self) -> Numeric:
        """Tokens of all ranks: what the experts and those who gather tokens see."""
        return (self.tokens if self.mean is None else self.mean) * self.dp


class MoeChoice(NamedTuple):
    """What the engine can do and what the user knows better."""

    dispatch: bool = True  # an all-to-all dispatch kernel
    dispatch_whole: bool = False  # dispatch only with the experts over all ranks (EP = TP x DP)
    gather: bool = True
    imbalance: float = 1.0  # tokens of the busiest EP rank over the mean; 1: all ranks have the same
    balanced: bool = True  # `imbalance` is known, or reached by a balancer; else the law of loads gives it
    redundant_experts: int = 0
    fp8_dispatch: bool = True
    beside: Beside = APART
    load_spread: float = 0.0  # of the experts, see `routing`
    rank_spread: float = 0.0  # the same where it makes ranks uneven, known as badly and the other way round
    rule: DispatchRule = DispatchRule()

    def apart(self, f: MoEFFN) -> int:
        """EP ranks that hold the shared experts and no routed ones."""
        return self.beside.ranks if f.shared_experts else 0

    def ranks(self, f: MoEFFN, ep: Numeric) -> Numeric:
        """EP ranks among which the routed experts are dealt out."""
        return routed_ranks(ep, self.apart(f))


def local_experts(f: MoEFFN, ep: Numeric, redundant: int = 0) -> Numeric:
    """Experts that one EP rank stores, copies of hot ones included: ceil((E + R) / ep)."""
    return ceil_div(f.experts + redundant, ep)


def ffn_ops(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> list[Op]:
    """One MoE block, from its norm to the reduction of its output."""
    t = s.tokens / s.cp
    ops = [
        m.norm("ffn_norm", t, s.tp // s.cp, s.dp),
        m.router("router", t, f.experts + f.zero_experts),
        m.elementwise("router_top_k", t * (f.experts + f.zero_experts) * 4.0),
    ]
    routed, dispatched = _routed(m, f, s, choice)
    routed_s: Numeric = sum(op.time_s for op in routed if not op.is_link)
    return [*ops, *routed, *_shared(m, f, s, choice, dispatched, routed_s)]


def _skew(f: MoEFFN, s: MoeShape, choice: MoeChoice) -> Numeric:
    """Copies of tokens on the busiest EP rank over the mean."""
    ranks = choice.ranks(f, s.ep)
    many = np.asarray(ranks) > 1
    if choice.balanced or not np.any(many):
        return np.where(many, choice.imbalance, 1.0)
    k, limit = routed_per_token(f), Groups(f.groups, f.groups_per_token)
    return np.where(many, uneven(f.experts, k, s.everyone, choice.rank_spread, ranks, limit), 1.0)


def uneven_ranks(model: Model, spread: Interval, ep: int) -> Interval:
    """Copies of many tokens on the busiest of `ep` ranks over the mean, where nothing balances them."""
    f = next(f for f in model.ffn.values() if f.kind == "moe")
    k, limit = routed_per_token(f), Groups(f.groups, f.groups_per_token)
    return Interval(*(float(uneven(f.experts, k, np.inf, s, ep, limit)) for s in spread))


def _rows(f: MoEFFN, s: MoeShape, choice: MoeChoice) -> Numeric:
    """Copies of tokens that the routed experts of the busiest rank work on."""
    return s.everyone * routed_per_token(f) / choice.ranks(f, s.ep) * _skew(f, s, choice)


class _Load(NamedTuple):
    """Routed experts of one chip and shared ones fused with them: copies of all tokens, as they are and in tiles."""

    rows: Numeric
    padded_rows: Numeric
    active: Numeric
    stored: Numeric
    inner: Numeric  # its part of their width


def _load(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> _Load:
    k, everyone = routed_per_token(f), s.everyone
    joined = fused_experts(f, s.ep, s.decode, choice.beside)
    rows = _rows(f, s, choice) + everyone * joined
    ranks = choice.ranks(f, s.ep)
    stored = local_experts(f, ranks, choice.redundant_experts)
    active = np.minimum(_touched(f, k, everyone, ranks, choice), stored) + joined
    # mean rows of an active expert, each padded to the tile
    each = pad_to(rows / active, m.tile.gemm_rows)
    return _Load(rows, active * each, active, stored + joined, f.intermediate_size / moe_tp(s))


def _touched(f: MoEFFN, k: float, tokens: Numeric, ep: Numeric, choice: MoeChoice) -> Numeric:
    """Experts that the busiest EP rank reads; the mean where its load is stated to be that of all (imbalance 1)."""
    if (choice.balanced and choice.imbalance == 1.0) or np.all(np.asarray(ep) == 1):
        return touched(f.experts, k, tokens, choice.load_spread) / ep
    return busiest(f.experts, k, tokens, choice.load_spread, ep, Groups(f.groups, f.groups_per_token))


def moe_tp(s: MoeShape) -> Numeric:
    """Ranks that share the width of each expert."""
    return s.tp * s.dp / s.ep


def _routed(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> tuple[list[Op], Numeric]:
    """The routed experts and the way of the tokens to them and back, by the faster of the ways the engine has.

    And 1 where that is the dispatch, else 0.
    """
    load = _load(m, f, s, choice)
    before, after = _gathered(m, s)
    gathered = [*before, m.experts("routed_experts", *load, dispatched=False), *after]
    possible = _may_dispatch(f, s, choice)
    if not np.any(possible):
        return gathered, 0.0
    before, after = _dispatched(m, f, s, choice)
    experts = m.experts("routed_experts", *load, dispatched=True)
    dispatched = [*before, experts, *_around_experts(m, f, s, choice), *after]
    slower = sum(op.time_s for op in gathered) > sum(op.time_s for op in dispatched)
    use = np.where(possible & (slower | choice.rule.fixed | (not choice.gather)), 1.0, 0.0)
    return [op.scaled(1.0 - use) for op in gathered] + [op.scaled(use) for op in dispatched], use


def _may_dispatch(f: MoEFFN, s: MoeShape, choice: MoeChoice) -> Numeric:
    """Where the engine can, or by its rule does, send the tokens of this step to their experts."""
    rule = choice.rule
    possible = np.asarray((s.ep > 1) & ((s.dp > 1) | (s.cp > 1) | rule.fixed)) & choice.dispatch
    if choice.dispatch_whole:
        possible = possible & np.asarray(s.ep == s.tp * s.dp)
    if rule.least_ranks > 1:
        possible = possible & np.asarray(s.ep >= rule.least_ranks)
    if rule.most_experts:
        possible = possible & np.asarray(f.experts // s.ep <= rule.most_experts)
    if rule.most_tokens and s.decode:
        possible = possible & np.asarray(s.tokens <= rule.most_tokens)
    return possible & (s.decode or rule.prefill)


def _shared(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice, dispatched: Numeric, routed_s: Numeric) -> list[Op]:
    """The shared experts over the TP ranks of a DP rank; or, where the engine places them so (see `placement`), over
    all chips that have gathered everyone's tokens, and behind a dispatch whole for the 1/tp that a chip owns; or on
    EP ranks of their own."""

    def over(tokens: Numeric, ranks: Numeric) -> list[Op]:
        return shared_ops(m, f, tokens, ranks, s.ep, s.decode, choice.beside, routed_s)

    if ranks := choice.apart(f):
        beside = own_rank_ops(m, f, s.everyone, moe_tp(s), ranks, routed_s)
        if np.all(np.asarray(s.ep) > ranks):
            return beside
        own = np.where(np.asarray(s.ep) > ranks, 1.0, 0.0)
        return [op.scaled(own) for op in beside] + [op.scaled(1.0 - own) for op in over(s.tokens, s.tp)]
    if not m.engine.placement.shared:
        return over(s.tokens, s.tp)
    ops = [op.scaled(1.0 - dispatched) for op in over(s.everyone, s.tp * s.dp)]
    if np.any(dispatched):
        ops += [op.scaled(dispatched) for op in over(s.tokens / s.tp, 1)]
    return ops


def _around_experts(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> list[Op]:
    """Kernels of their own beside the bare products behind a dispatch; elsewhere one fit covers the whole block.

    activation   rows x I (2 x 2 in, 1 out) B, quantised in the same pass; prefill writes 16 bit and quantises after:
                 rows x I (2 x 2 + 2 + 2 + 1) B
    layout       prefill only: copies to the order of their experts, w in and out, and 16 bit read to sum them up:
                 rows x d (2 w + 2) B. Low-latency kernels deliver and sum copies in that order.
    Source: SGLang layers/moe/ep_moe/kernels.py (ep_scatter, silu_and_mul_masked_post_quant_fwd, ep_gather).
    """
    rows, inner, width = _rows(f, s, choice), f.intermediate_size / moe_tp(s), 1.0 if choice.fp8_dispatch else 2.0
    ops = [m.elementwise("expert_activation", rows * inner * (4.0 + width if s.decode else 8.0 + width))]
    if not s.decode:
        ops.append(m.elementwise("expert_layout", rows * m.model.hidden_size * (2.0 * width + 2.0)))
    return ops


def _gathered(m: Machine, s: MoeShape) -> tuple[list[Op], list[Op]]:
    """All tokens on all chips: DP gather and scatter, and the sum over the TP ranks."""
    size = s.everyone * m.model.hidden_size * ACTIVATION_BYTES
    before = [m.collective("moe_dp_gather", "all_gather", size, Group(s.dp, s.tp))]
    after = [
        m.collective("moe_dp_scatter", "reduce_scatter", size, Group(s.dp, s.tp)),
        *reduce_ops(m, "moe", s.tokens, s.tp, s.cp, s.dp),
    ]
    return before, after


def _dispatched(m: Machine, f: MoEFFN, s: MoeShape, choice: MoeChoice) -> tuple[list[Op], list[Op]]:
    """All-to-all of the copies over the stage, then the TP ranks share what each of them owned.

    It ends when the busiest rank has its copies; the bytes are those of the mean.
    """
    d, k = m.model.hidden_size, routed_per_token(f)
    own = s.tokens / s.tp
    busiest = own * _skew(f, s, choice)
    ranks = s.tp * s.dp
    out_bytes, back_bytes = ep_net.copy_bytes(d, choice.fp8_dispatch), 2.0 * d
    # one more to a rank of the shared experts
    apart = choice.apart(f)
    copies = (k + 1.0 * (np.asarray(s.ep) > apart) if apart else k) * moe_tp(s)
    ops = []
    for op, nbytes in (("dispatch", out_bytes), ("combine", back_bytes)):
        if s.decode:
            time_s = ep_net.low_latency_s(m.chip, op, busiest, copies, nbytes, ranks)
            volume = own * copies * nbytes
        else:
            limit = f.groups_per_token if f.groups > 1 else f.experts_per_token
            time_s = ep_net.normal_s(m.chip, op, busiest, copies, nbytes, ranks, limit)
            volume = own * ep_net.distinct(ranks, copies) * nbytes
        ops.append(link_op(f"moe_{op}", time_s, volume * np.where(ranks > 1, 1.0, 0.0), DEFAULT_RESIDUAL))
    share = m.collective("moe_token_gather", "all_gather", s.tokens * d * ACTIVATION_BYTES, Group(s.tp))
    return [ops[0]], [ops[1], share.scaled(1 * (s.cp == 1))]
