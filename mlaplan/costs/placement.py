"""Over which chips an engine divides what every token passes, where attention is data parallel.

Dense feed-forward blocks, the shared expert and the head belong to no expert. An engine divides them over the
tp chips of one attention-DP rank, which then works on its own tokens, or over all tp x dp of the stage, which work on
everyone's: an all-gather over the DP ranks before, a reduce-scatter after. Behind a dispatch (DeepEP) nobody sees
everyone's tokens: dense blocks and head stay with their DP rank (the engine's flags say so), the shared expert is
whole on every chip and takes that chip's 1/tp of the tokens. Plain numbers take no numpy.
Source: sgl-project/sglang, python/sglang/srt/layers/dp_attention.py, models/deepseek_v2.py (moe_dense_tp_size,
shared_experts), layers/logits_processor.py (enable_dp_lm_head).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.costs.roofline import Numeric

HEAVY = "high_throughput"  # the all-to-all of prefill


class Placement(NamedTuple):
    """Parts that the engine divides over all TP x DP chips of a stage, not over those of one attention-DP rank."""

    dense: bool = False
    shared: bool = False
    head: bool = False


class DispatchRule(NamedTuple):
    """Which steps an engine with a dispatch sends through it."""

    fixed: bool = False  # all that allow it, without attention DP too; else those that get faster
    prefill: bool = True  # those of prompts too; else these gather
    least_ranks: int = 1  # expert-parallel ranks
    most_experts: int = 0  # of a rank, rounded down; 0: any number
    most_tokens: int = 0  # of an attention-DP rank in a decode step; 0: any number


class Division(NamedTuple):
    """The habits of an engine that decide who shares what. dispatch_whole: only with the experts over all ranks."""

    dispatch: bool
    dispatch_whole: bool
    dispatch_rule: DispatchRule
    placement: Placement


def division(profile: Any, chip_name: str) -> Division:
    """What an engine profile says of this chip."""
    # a server runs one all-to-all backend: dispatch pays only where one and the same serves decode and prefill
    ways = [row for row in profile.all_to_all if row.pattern == "dispatch" and row.serves(chip_name)]
    roles: dict[str, set[str]] = {}
    for row in ways:
        roles.setdefault(row.name, set()).update((row.role, HEAVY) if row.alone else (row.role,))
    both = {name for name, found in roles.items() if {"low_latency", HEAVY} <= found}
    rows, parts = [row for row in ways if row.name in both], profile.parallel
    return Division(
        bool(both),
        all(row.full_ep for row in rows),
        _rule(rows),
        Placement(*(part == "tp_dp" for part in (parts.dense_ffn, parts.shared_expert, parts.lm_head))),
    )


def _rule(rows: list[Any]) -> DispatchRule:
    """What the rows of one dispatch say together."""
    alone = any(row.alone for row in rows)
    return DispatchRule(
        any(row.fixed for row in rows),
        not alone,
        max((row.least_ranks or 1 for row in rows), default=1),
        min((row.most_experts for row in rows if row.most_experts), default=0),
        min((row.max_tokens for row in rows if row.max_tokens), default=0) if alone else 0,
    )


class Ranks(NamedTuple):
    """Chips that share each part; 1: whole on every chip."""

    dense: Numeric
    shared: Numeric
    head: Numeric


def dispatches(e: EngineCosts | Division, tp: Numeric, dp: Numeric, ep: Numeric) -> Numeric:
    """Where the engine runs a dispatch between attention-DP ranks, so that no rank gathers all tokens."""
    rule, whole = e.dispatch_rule, (ep == tp * dp) | (not e.dispatch_whole)
    return (ep >= max(rule.least_ranks, 2)) & ((dp > 1) | rule.fixed) & whole & e.dispatch


def gathers(e: EngineCosts | Division, tp: Numeric, dp: Numeric, ep: Numeric) -> Numeric:
    """Where all DP ranks see everyone's tokens, of prompts at least."""
    return (dp > 1) & (True ^ (dispatches(e, tp, dp, ep) & e.dispatch_rule.prefill))


def ranks(e: EngineCosts | Division, tp: Numeric, dp: Numeric, ep: Numeric) -> Ranks:
    """Chips that share a dense block, the shared expert and the head."""
    wide, p = gathers(e, tp, dp, ep), e.placement
    one = _where(wide, tp * dp, tp)
    shared = _where(dispatches(e, tp, dp, ep), 1, one) if p.shared else tp
    return Ranks(one if p.dense else tp, shared, one if p.head else tp)


def _where(true: Numeric, then: Numeric, otherwise: Numeric) -> Numeric:
    if isinstance(true, bool):
        return then if true else otherwise
    import numpy as np

    return np.where(true, then, otherwise)
