"""What does not fit in memory: weights, then the cache of the sequences asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaplan.costs import capacity as cap
from mlaplan.costs import prefix
from mlaplan.rules.rule import Cells, Question, Rule


def _weights(_q: Question, c: Cells) -> Any:
    return np.asarray(c["kv_tokens"]) < 0


def _weights_detail(q: Question, c: Cells) -> str:
    usable = cap.usable_bytes(q.setting, q.budget)
    need = float(c["weight_bytes"]) + float(c["other_bytes"])
    return (
        f"weights {c['weight_bytes'] / 1e9:.1f} GB and {c['other_bytes'] / 1e9:.1f} GB of activations, workspaces and "
        f"buffers need {need / 1e9:.1f} GB a chip, {usable / 1e9:.1f} GB may be used "
        f"({(need - usable) / 1e9:.1f} GB short; {(float(c['weight_bytes']) - usable) / 1e9:+.1f} GB by weights alone)"
    )


WEIGHTS = Rule(
    "MLA201", "weights-do-not-fit", "capacity", "weights and buffers exceed the memory",
    "Weights, activations, workspaces and buffers of the fullest stage must leave room for a cache.",
    _weights, _weights_detail,
)  # fmt: skip


def _kv(q: Question, c: Cells) -> Any:
    need = prefix.need_tokens(c, q.budget.max_context, q.budget.shared)
    return (np.asarray(c["kv_tokens"]) >= 0) & (c["kv_tokens"] < need)


def _kv_detail(q: Question, c: Cells) -> str:
    shared, longest = q.budget.shared, q.budget.max_context
    one, stored = int(prefix.own_tokens(c, longest, shared)), int(prefix.stored_tokens(c, shared))
    beside = f" beside {stored:,} of shared prefixes" if stored else ""
    return (
        f"{int(c['batch'])} sequences of {one:,} tokens{beside} need {int(c['batch']) * one + stored:,} cache tokens "
        f"a rank, {int(c['kv_tokens']):,} fit"
    )


KV = Rule(
    "MLA202", "cache-too-small", "capacity", "the cache cannot hold the sequences in flight",
    "Every sequence in flight keeps its cache to its last token, in whole blocks.", _kv, _kv_detail,
)  # fmt: skip

CAPACITY = (WEIGHTS, KV)
