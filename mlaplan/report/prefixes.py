"""Shared prefixes of a plan: what is stored, where, and what of each prompt is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan import units
from mlaplan.report import cache, words

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question


def told(q: Question, e: Explanation) -> str:
    """One sentence, or nothing where no prefix is shared."""
    w, s = q.workload, e.strategy
    if w.prefix_groups is None:
        return ""
    stored, caches = cache.stored_tokens(q, s), s.dp * s.replicas
    each = f"{stored:,} tokens ({units.format_bytes(stored * e.memory.kv_bytes_per_token)} a chip)"
    where = "the cache" if caches == 1 else f"each of {words.times(caches, 'cache')}, one per attention-DP rank"
    return (
        f"{w.prefix_groups:,} prefixes of {w.prefix_tokens:,} tokens take {each} of {where}; {w.prefix_tokens:,} of "
        f"{w.isl:,} prompt tokens ({words.percent(w.prefix_tokens / w.isl)}) are not computed, and a sequence adds "
        f"{cache.sequence_tokens(q, s):,} tokens of its own."
    )
