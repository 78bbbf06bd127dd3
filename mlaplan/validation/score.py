"""Predictions beside measurements: relative errors, how often the band holds, what a miss is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.validation.predict import Prediction, predict

if TYPE_CHECKING:
    from mlaplan.validation.points import Point

SHOWN_TERMS = 3


@dataclass(frozen=True, slots=True)
class Scored:
    """A point with its prediction; error = predicted / measured - 1."""

    point: Point
    prediction: Prediction

    @property
    def error(self) -> float:
        return self.prediction.value.value / self.point.value - 1.0

    @property
    def inside(self) -> bool:
        return self.prediction.value.low <= self.point.value <= self.prediction.value.high

    @property
    def fits(self) -> bool:
        """Whether the model lets the strategy hold a single request; if not, its times mean nothing."""
        return "does_not_fit" not in self.prediction.flags


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of a group of points, as fractions."""

    count: int
    held_out: int  # points on which no constant was fitted
    mape: float
    bias: float
    median: float
    p90: float
    worst: float
    worst_id: str
    coverage: float


def score(points: Iterable[Point]) -> list[Scored]:
    """Every point that has a prediction and is no rejected one."""
    found = []
    for point in points:
        if point.use == "reject":
            continue
        prediction = predict(point)
        if prediction is not None:
            found.append(Scored(point, prediction))
    return found


def summary(scored: Sequence[Scored]) -> Summary | None:
    """The errors of a group; None of an empty one."""
    usable = [s for s in scored if s.fits]
    if not usable:
        return None
    errors = np.array([s.error for s in usable])
    size = np.abs(errors)
    worst = int(size.argmax())
    return Summary(
        count=len(usable),
        held_out=sum(not s.point.fitted for s in usable),
        mape=float(size.mean()),
        bias=float(errors.mean()),
        median=float(np.median(size)),
        p90=float(np.percentile(size, 90)),
        worst=float(errors[worst]),
        worst_id=usable[worst].point.id,
        coverage=float(np.mean([s.inside for s in usable])),
    )


def grouped(scored: Sequence[Scored], key: Callable[[Point], str]) -> dict[str, list[Scored]]:
    """Points by a key, in order of appearance."""
    out: dict[str, list[Scored]] = {}
    for s in scored:
        out.setdefault(key(s.point), []).append(s)
    return out


def chip_of(point: Point) -> str:
    return point.chip or " or ".join(map(str, point.unknown.get("chip", ("not stated",))))


KEYS: dict[str, Callable[[Point], str]] = {
    "group": lambda p: p.group,
    "chip": chip_of,
    "engine": lambda p: p.engine,
}


def ratable(scored: Sequence[Scored]) -> list[Scored]:
    """Points whose own value is comparable: not those that count only in a ratio."""
    return [s for s in scored if s.point.use != "ratio"]


def cause(s: Scored) -> str:
    """What a miss may come from: the gap in time, and the terms with most of the model's own doubt."""
    p = s.prediction
    if not s.fits:
        return "the model finds no room for the weights"
    doubts = sorted(p.doubts.items(), key=lambda item: -item[1])[:SHOWN_TERMS]
    terms = [name for name, _ in doubts] or list(p.terms)[:SHOWN_TERMS]
    slow = (s.error > 0) != s.point.more_is_better
    return f"{'too slow' if slow else 'too fast'} by {_gap(s)}; least certain: {', '.join(terms)}"


def _gap(s: Scored) -> str:
    """By how much the predicted time is off, as a share of the measured one."""
    ratio = s.prediction.value.value / s.point.value
    off = (1 / ratio if s.point.more_is_better else ratio) - 1
    return f"{abs(off):.0%} of the measured time" if math.isfinite(off) else "any factor"
