"""Shared experts: products of their own, rows of the grouped kernel, on a second stream, or on ranks of their own.

    apart        gate and up, activation, down, one after the other with everything else
    fused        n_s further experts that every token visits: T n_s rows and n_s active experts in the grouped kernel
    overlapped   beside the routed experts: what these do not cover, and never less than the traffic of their own,
                 for both read the same memory

        t = max(t_shared - t_routed, bytes_shared / bandwidth)

    ranks        R of the EP ranks hold nothing else, and every token goes to one of them too: T dp / R rows on each,
                 while the others have the routed experts

        t = max(t_shared - t_routed, 0)

Source: SGLang models/deepseek_v2.py (num_fused_shared_experts), TensorRT-LLM _torch/models/modeling_deepseekv3.py
(maybe_execute_in_parallel); ranks: DeepSeek-V3 (arXiv:2412.19437, sec. 3.4.2), CloudMatrix384 (arXiv:2506.12708),
shared_expert_rank_num of CANN's MoeDistributeDispatch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs.dense import gated_ops
from mlaplan.costs.roofline import Numeric

if TYPE_CHECKING:
    from mlaplan.costs.machine import Machine, Op
    from mlaplan.specs.model import MoEFFN


class Beside(NamedTuple):
    """What an engine does with shared experts. experts: only models with that many routed ones, any if empty; ranks:
    EP ranks that hold the shared experts and no others."""

    how: str = "apart"
    experts: tuple[int, ...] = ()
    with_ep: bool = True
    prefill: bool = True
    ranks: int = 0

    def holds(self, f: MoEFFN, decode: bool) -> bool:
        known = not self.experts or f.experts in self.experts
        return self.how in ("fused", "overlapped") and known and f.shared_experts > 0 and (decode or self.prefill)


APART = Beside()


def routed_ranks(ep: Numeric, shared_ranks: int) -> Numeric:
    """EP ranks that hold routed experts; all of them where there are not more than those set apart."""
    return np.where(np.asarray(ep) > shared_ranks, ep - shared_ranks, ep) if shared_ranks else ep


def own_rank_ops(m: Machine, f: MoEFFN, tokens: Numeric, moe_tp: Numeric, ranks: int, routed_s: Numeric) -> list[Op]:
    """What the ranks of the shared experts need for the `tokens` of all beyond what the routed experts take."""
    ops = gated_ops(m, "shared_expert", "shared", tokens / ranks, f.shared_intermediate_size / moe_tp)
    whole = sum(op.time_s for op in ops)
    left = np.maximum(whole - routed_s, 0.0) / whole
    # the busiest chip does either: of what it does not do it has no work either
    return [op.scaled(left) for op in ops]


def fused_experts(f: MoEFFN, ep: Numeric, decode: bool, beside: Beside) -> Numeric:
    """n_s, the experts that join the routed ones in the grouped kernel; in their width."""
    if beside.how != "fused" or not beside.holds(f, decode):
        return 0.0
    width = f.shared_intermediate_size / f.intermediate_size
    return width if beside.with_ep else np.where(np.asarray(ep) == 1, width, 0.0)


def shared_ops(
    m: Machine, f: MoEFFN, tokens: Numeric, tp: Numeric, ep: Numeric, decode: bool, beside: Beside, routed_s: Numeric
) -> list[Op]:
    """What is left of the shared experts' own products beside routed experts that take `routed_s`."""
    if not f.shared_experts:
        return []
    ops = gated_ops(m, "shared_expert", "shared", tokens, f.shared_intermediate_size / tp)
    if not beside.holds(f, decode):
        return ops
    if beside.how == "fused":
        apart = np.asarray(fused_experts(f, ep, decode, beside)) == 0.0
        return [op.scaled(1.0 * apart) for op in ops] if np.any(apart) else []
    whole, traffic = sum(op.time_s for op in ops), sum(op.bytes for op in ops) / m.bandwidth
    left = np.maximum(whole - routed_s, traffic) / whole
    if not beside.with_ep:
        left = np.where(np.asarray(ep) == 1, left, 1.0)
    return [op._replace(time_s=op.time_s * left) for op in ops]
