"""Over which chips an engine divides what every token passes, where attention is data parallel.

Dense feed-forward blocks, the shared expert and the head belong to no expert. An engine divides them over the
tp chips of one attention-DP rank, which then works on its own tokens, or over all tp x dp of the stage, which work on
everyone's: an all-gather over the DP ranks before, a reduce-scatter after. Behind a dispatch (DeepEP) nobody sees
everyone's tokens: dense blocks and head stay with their DP rank (the engine's flags say so), the shared expert is
whole on every chip and takes that chip's 1/tp of the tokens.
Source: sgl-project/sglang, python/sglang/srt/layers/dp_attention.py, models/deepseek_v2.py (moe_dense_tp_size,
shared_experts), layers/logits_processor.py (enable_dp_lm_head).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs.roofline import Numeric

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts


class Ranks(NamedTuple):
    """Chips that share each part; 1: whole on every chip."""

    dense: Numeric
    shared: Numeric
    head: Numeric


def dispatches(e: EngineCosts, tp: Numeric, dp: Numeric, ep: Numeric) -> Numeric:
    """Where the engine runs a dispatch between attention-DP ranks, so that no rank gathers all tokens."""
    rule, whole = e.dispatch_rule, (np.asarray(ep) == np.asarray(tp) * dp) | (not e.dispatch_whole)
    return (np.asarray(ep) >= max(rule.least_ranks, 2)) & ((np.asarray(dp) > 1) | rule.fixed) & whole & e.dispatch


def gathers(e: EngineCosts, tp: Numeric, dp: Numeric, ep: Numeric) -> Numeric:
    """Where all DP ranks see everyone's tokens, of prompts at least."""
    return (np.asarray(dp) > 1) & ~(dispatches(e, tp, dp, ep) & e.dispatch_rule.prefill)


def ranks(e: EngineCosts, tp: Numeric, dp: Numeric, ep: Numeric) -> Ranks:
    """Chips that share a dense block, the shared expert and the head."""
    wide, all_chips, p = gathers(e, tp, dp, ep), np.asarray(tp) * dp, e.placement
    one = np.where(wide, all_chips, tp)
    shared = np.where(dispatches(e, tp, dp, ep), 1, one) if p.shared else tp
    return Ranks(one if p.dense else tp, shared, one if p.head else tp)
