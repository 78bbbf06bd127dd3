"""What the cost model says of a published point: the same pricing as `explain`, no constant of its own.

What the source does not state has several values: the prediction is made at each of them, the middle of the
extremes stands for the point and the band covers all their bands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlaplan.costs.engine import Interval
from mlaplan.validation.schema import Given, Load, Placement
from mlaplan.validation.terms import by_time, doubts_of

if TYPE_CHECKING:
    from mlaplan.validation.points import Point

WHERE = {
    **dict.fromkeys(Placement.model_fields, "strategy"),
    **dict.fromkeys(Load.model_fields, "workload"),
    **dict.fromkeys(Given.model_fields, "given"),
}


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted value in the point's metric with its 80 % band, and the times it is made of."""

    value: Interval
    terms: dict[str, float] = field(default_factory=dict)  # seconds by operator, largest first
    flags: tuple[str, ...] = ()  # what the model holds against the point
    doubts: dict[str, float] = field(default_factory=dict)  # half-widths of the terms' own bands, seconds


def corners(point: Point) -> Iterator[Point]:
    """The point at every combination of what is unknown of it."""
    for values in itertools.product(*point.unknown.values()):
        yield with_known(point, dict(zip(point.unknown, values, strict=True)))


def with_known(point: Point, values: Mapping[str, Any]) -> Point:
    """The point with these values in place of what is unknown of it."""
    one = replace(point, unknown={})
    for name, value in values.items():
        changed: dict[str, Any] = {name: value}
        if name not in ("chip", "model", "engine"):
            part = WHERE[name]
            changed = {part: {**getattr(one, part), name: value}}
        one = replace(one, **changed)
    return one


def predict(point: Point) -> Prediction | None:
    """The prediction for a point, None where the model makes none."""
    if point.not_priced is not None:
        return None
    found = [_at(corner) for corner in corners(point)]
    if len(found) == 1:
        return found[0]
    values = [p.value for p in found]
    low, high = min(v.value for v in values), max(v.value for v in values)
    middle = math.sqrt(low * high)
    nearest = min(found, key=lambda p: abs(math.log(p.value.value / middle)))
    flags = tuple(dict.fromkeys(flag for p in found for flag in p.flags))
    if not all("does_not_fit" in p.flags for p in found):
        flags = tuple(flag for flag in flags if flag != "does_not_fit")
    whole = Interval(middle, min(v.low for v in values), max(v.high for v in values))
    return Prediction(whole, nearest.terms, flags, nearest.doubts)


def _at(point: Point) -> Prediction:
    key = repr(replace(point, value=0.0, note=None, id="", source=""))
    return _cached(key, _Holder(point))


class _Holder:
    """Carries a point past a cache that goes by its text."""

    def __init__(self, point: Point) -> None:
        self.point = point

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder)


@lru_cache(maxsize=4096)
def _cached(_key: str, holder: _Holder) -> Prediction:
    point = holder.point
    if point.measure == "operator":
        from mlaplan.validation.operators import operator_value

        value, ops = operator_value(point)
        return Prediction(value, by_time(ops), (), doubts_of(ops))
    if point.measure == "served":
        from mlaplan.validation.served import served_value

        return Prediction(*served_value(point))
    from mlaplan.validation.steps import step_value

    return Prediction(*step_value(point))
