"""What the engine in question cannot express, from the limits of its profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlaplan.engines.limits import limits
from mlaplan.engines.profile import attention_kind
from mlaplan.rules.rule import Cells, Question, Rule
from mlaplan.strategy import CODED


class _Row:
    """Columns as attributes, the form that engine limits read."""

    __slots__ = ("_cells",)

    def __init__(self, cells: Mapping[str, Any]) -> None:
        self._cells = cells

    def __getattr__(self, name: str) -> Any:
        return self._cells[name]


def _limits(q: Question) -> list[Any]:
    model, chip = q.setting.model, q.setting.chip
    heads = max(a.heads for a in model.attention.values())
    moe = any(f.kind == "moe" for f in model.ffn.values())
    kind = attention_kind(model)
    return list(
        limits(
            q.profile, kind, chip.efficiency_class, heads=heads, moe=moe, interleave=q.setting.engine.merge.interleave
        )
    )


def _violated(q: Question, c: Cells) -> Any:
    row, bad = _Row(c), np.zeros(np.shape(c["tp"]), dtype=bool)
    for limit in _limits(q):
        # a limit on the token budget is met by a smaller batch, which the batch grid already holds
        bad = bad | limit.breaks(row)
    return bad


def _detail(q: Question, c: Cells) -> str:
    words = {name: CODED[name][int(value)] if name in CODED and not isinstance(value, str) else value
             for name, value in c.items()}  # fmt: skip
    row = _Row(words)
    return "; ".join(limit.text(row) for limit in _limits(q) if np.any(limit.breaks(row)))


ENGINE = Rule(
    "MLA120", "engine-limit", "choice", "the engine cannot express the strategy",
    "Each engine version combines only some parallel degrees, KV layouts, dtypes and block sizes.",
    _violated, _detail,
)  # fmt: skip
