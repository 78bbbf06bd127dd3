"""Ratios of two points, and decisions between published alternatives.

Both sides of a ratio share what is unknown of both, so the ratio is taken at each of its values, and at each of what
is unknown of one side only; the extremes bound it. Errors of one fit are common to both sides and cancel: the band of
a ratio holds no residuals.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlaplan.costs.engine import Interval
from mlaplan.validation.points import comparisons, published
from mlaplan.validation.predict import predict, with_known

if TYPE_CHECKING:
    from mlaplan.validation.points import Point
    from mlaplan.validation.schema import Decision, Ratio

SAME = 0.02  # a ratio this close to 1 has no direction


@dataclass(frozen=True, slots=True)
class ScoredRatio:
    """A ratio as measured and as predicted."""

    ratio: Ratio
    measured: float
    predicted: Interval

    @property
    def error(self) -> float:
        return self.predicted.value / self.measured - 1.0

    @property
    def sign_right(self) -> bool:
        """Whether both are on the same side of 1, where the measured one has a side."""
        return abs(self.measured - 1) < SAME or (self.measured > 1) == (self.predicted.value > 1)

    @property
    def contained(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True)
class ScoredDecision:
    """Which alternative the model ranks first, and what that one measured over the best measured."""

    decision: Decision
    chosen: str
    best: str
    share: float


def by_id() -> dict[str, Point]:
    return {point.id: point for point in published()}


def ratios() -> list[ScoredRatio]:
    """Every ratio that can be predicted."""
    known, out = by_id(), []
    for ratio in comparisons().ratios:
        of, to = known[ratio.of], known[ratio.to]
        found = predicted_ratio(of, to)
        if found is not None:
            out.append(ScoredRatio(ratio, of.value / to.value, found))
    return out


def predicted_ratio(of: Point, to: Point) -> Interval | None:
    """The ratio at every value of what is unknown, one and the same on both sides; its middle and extremes."""
    if of.not_priced or to.not_priced:
        return None
    values = []
    unknown = {**of.unknown, **to.unknown}
    for chosen in itertools.product(*unknown.values()):
        at = dict(zip(unknown, chosen, strict=True))
        a, b = (predict(with_known(p, {name: at[name] for name in p.unknown})) for p in (of, to))
        assert a is not None and b is not None
        values.append(a.value.value / b.value.value)
    low, high = min(values), max(values)
    return Interval(math.sqrt(low * high), low, high)


def decisions() -> list[ScoredDecision]:
    """Every group of alternatives: what is ranked first, and what that cost."""
    known, out = by_id(), []
    for decision in comparisons().decisions:
        points = [known[name] for name in decision.alternatives]
        chosen = max(points, key=_merit)
        best = max(points, key=_measured_merit)
        share = chosen.value / best.value if chosen.more_is_better else best.value / chosen.value
        out.append(ScoredDecision(decision, chosen.id, best.id, share))
    return out


def _merit(point: Point) -> float:
    """How good the model finds an alternative; nothing is worse than not fitting."""
    found = predict(point)
    if found is None or "does_not_fit" in found.flags:
        return -math.inf
    value = found.value.value
    return value if point.more_is_better else -value


def _measured_merit(point: Point) -> float:
    return point.value if point.more_is_better else -point.value
