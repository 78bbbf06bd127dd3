"""Where nothing fits: which chips, how many of them or how large, would hold the nearest miss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlaplan.units import format_bytes_both

if TYPE_CHECKING:
    from mlaplan.plan import Miss
    from mlaplan.rules.rule import Question

STEP = 1e9  # memories are told in whole GB
LARGEST = 16.0  # times the chip's own memory


def what_fits(q: Question, miss: Miss | None, change: str | None) -> list[str]:
    """One line per change that would admit the nearest miss; each was priced again, none is a guess."""
    out = [change] if change else []
    if miss is not None and miss.code.startswith("MLA2"):
        least = least_capacity(q, miss)
        if least is not None:
            own = float(q.setting.chip.memory.capacity)
            out.append(
                f"{format_bytes_both(least)} of memory on each chip, in place of {format_bytes_both(own)}, would hold "
                f"{miss.strategy.label()} with {miss.strategy.batch:,} in flight a rank"
            )
        if change is None:
            out.append(_no_more(q))
    return out


def _no_more(q: Question) -> str:
    from mlaplan.plan import MORE_CHIPS

    network = "" if q.setting.chip.scale_out is not None else ", for no network joins them"
    return f"more of these chips do not help{network}: up to {MORE_CHIPS[-1]} times as many were tried"


def least_capacity(q: Question, miss: Miss) -> float | None:
    """The least whole number of GB on each chip with which the strategy fits; None if no size within reach does. [B]"""
    own = float(q.setting.chip.memory.capacity)
    low, high = int(own // STEP), int(own * LARGEST // STEP)
    if not fits(q, miss, high * STEP):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(q, miss, middle * STEP) else (middle, high)
    return high * STEP


def fits(q: Question, miss: Miss, capacity: float) -> bool:
    """Whether the strategy fits chips of this memory and nothing else forbids it."""
    from mlaplan.explain import explain

    chip = q.setting.chip
    memory = chip.memory.model_copy(update={"capacity": chip.memory.capacity.model_copy(update={"value": capacity})})
    larger = chip.model_copy(update={"memory": memory})
    asked = replace(q, setting=replace(q.setting, chip=larger))
    return not any(code.startswith("MLA2") for code, _, _ in explain(asked, miss.strategy, served=False).reasons)
