"""What a token and a sequence take of the cache, as reports show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs import memory, pipeline

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
    """Cache tokens of a sequence at its end, in whole blocks on every decode-context-parallel rank."""
    block = s.block_size * s.dcp
    return -(-q.budget.max_context // block) * block
