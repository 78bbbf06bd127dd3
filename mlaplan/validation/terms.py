"""What a prediction is made of: seconds by operator, and how sure the model is of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlaplan.costs import band

if TYPE_CHECKING:
    from mlaplan.costs.machine import Op


def by_time(ops: Sequence[Op]) -> dict[str, float]:
    """Seconds by operator, largest first."""
    out: dict[str, float] = {}
    for op in ops:
        out[op.name] = out.get(op.name, 0.0) + float(op.time_s)
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def doubts_of(ops: Sequence[Op]) -> dict[str, float]:
    """Half-width of the 80 % band that each operator brings by its fit's residual. [s]"""
    out: dict[str, float] = {}
    for op in ops:
        out[op.name] = out.get(op.name, 0.0) + band.EIGHTY_PERCENT * op.residual * abs(float(op.time_s))
    return {name: value for name, value in out.items() if value}
