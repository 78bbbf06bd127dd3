"""What a token and a sequence take of the cache, as reports show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs import memory, pipeline, prefix

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy


def bytes_per_token(q: Question, s: Strategy) -> float:
    """Bytes of one distinct token on one chip, the mean over the pipeline stages. [B]

    The sum over all layers, MTP layers included where they draft, by stage: what uneven cuts do not change.
    """
    model, shards = q.setting.model, memory.Shards(s.tp, s.dp, s.ep, s.dcp, s.cp)
    kinds = [*zip(pipeline.layer_kinds(model), pipeline.layer_counts(model), strict=True)]
    if s.mtp and model.mtp is not None:
        kinds.append((pipeline.LayerKind((model.mtp.attention,), ()), model.mtp.layers))
    layers = (n * memory.layer_kv_bytes(model, kind, shards, s.kv_layout, s.kv_dtype) for kind, n in kinds)
    return float(sum(layers)) / s.pp


def sequence_tokens(q: Question, s: Strategy) -> int:
    """Cache tokens of a sequence at its end, in whole blocks, without a prefix that it shares."""
    return int(prefix.own_tokens(s.to_dict(), q.budget.max_context, q.budget.shared))


def stored_tokens(q: Question, s: Strategy) -> int:
    """Cache tokens of all shared prefixes in the cache of one attention-DP rank."""
    return int(prefix.stored_tokens(s.to_dict(), q.budget.shared))


def sequences(q: Question, s: Strategy, kv_tokens: int) -> int:
    """Whole sequences that so many tokens of one rank hold beside the shared prefixes."""
    return max(kv_tokens - stored_tokens(q, s), 0) // sequence_tokens(q, s)
