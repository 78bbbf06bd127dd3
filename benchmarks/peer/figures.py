"""Errors of one tool on one group of rows, and groups as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DIGITS = 4  # of a fraction that is written down

MLAPLAN, SOL, DEFAULT, INFERSIM = "mlaplan", "aiconfigurator_sol", "aiconfigurator_default", "infersim"
TOOLS = (MLAPLAN, SOL, DEFAULT, INFERSIM)


def figures(predicted: Array, measured: Array) -> dict[str, float]:
    """MAPE, bias and median of predicted / measured - 1 over the rows that have a prediction (the others are NaN)."""
    known = np.isfinite(predicted)
    if not known.any():
        return {"rows": 0}
    errors = predicted[known] / measured[known] - 1.0
    values = {"mape": np.abs(errors).mean(), "bias": errors.mean(), "median": np.median(np.abs(errors))}
    return {"rows": int(known.sum()), **{name: round(float(value), DIGITS) for name, value in values.items()}}


@dataclass
class Group:
    """Rows of one kind, as measured, and the predictions of each tool; a string says why a tool has none."""

    id: str
    part: str
    title: str
    measured: list[Array] = field(default_factory=list)
    predicted: dict[str, list[Array] | str] = field(default_factory=dict)

    def add(self, measured: Array, **predicted: Array | str) -> None:
        """Further rows; a tool without predictions of these, but with some of others, has none here only."""
        for tool in TOOLS:
            found = predicted.get(tool, "not run")
            before = self.predicted.get(tool)
            if before is None:
                self.predicted[tool] = found if isinstance(found, str) else [found]
                if not isinstance(found, str) and self.measured:
                    raise ValueError(f"{self.id}: {tool} came late")
            elif isinstance(found, str) and isinstance(before, str):
                self.predicted[tool] = before
            else:
                blanks = [np.full(len(m), np.nan) for m in self.measured]
                rows = blanks if isinstance(before, str) else before
                self.predicted[tool] = [*rows, np.full(len(measured), np.nan) if isinstance(found, str) else found]
        self.measured.append(measured)

    def data(self) -> dict[str, Any]:
        """The group's errors by tool."""
        measured = np.concatenate(self.measured)
        out: dict[str, Any] = {}
        for tool, found in self.predicted.items():
            out[tool] = {"why_not": found} if isinstance(found, str) else figures(np.concatenate(found), measured)
        return {"id": self.id, "part": self.part, "title": self.title, "rows": len(measured), "figures": out}
