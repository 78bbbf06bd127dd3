"""The error band of an estimate: what follows from the residuals of its parts.

Errors of one fit are common to all operators it prices (they add), different fits are independent (they add in
squares). A mean absolute relative error r stands for a normal error of sigma = 1.25 r, and 80 % of a normal
distribution lie within 1.28 sigma: the half-width is 1.6 r of the time that the fit prices. Numbers given as an
interval (host time, imbalance, acceptance) enter with their own distance to each side.

A whole step has three more sources of doubt, in band.yaml with where they come from: its kernels are of another
release than those that were measured, a sum of parts is off by more than its parts (what runs between them), and
published steps scatter by more than their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.costs.engine import Interval

if TYPE_CHECKING:
    from mlaplan.costs.machine import Op

FILE = Path(__file__).with_name("band.yaml")
EIGHTY_PERCENT = 1.6  # half-width of the central 80 % over the mean absolute error of a normal distribution


class Spread(NamedTuple):
    """Distances from a value down and up, independent contributions added in squares."""

    down: float
    up: float

    def around(self, value: float) -> Interval:
        """The interval, never below a tenth of the value: a time has no negative tail."""
        return Interval(value, max(value - self.down, 0.1 * value), value + self.up)


def of_operators(ops: Iterable[Op]) -> Spread:
    """Spread of a sum of operators from the residuals of their fits."""
    by_group: dict[str, float] = {}
    for op in ops:
        by_group[op.group] = by_group.get(op.group, 0.0) + abs(float(op.time_s)) * float(op.residual)
    half = EIGHTY_PERCENT * math.sqrt(sum(t * t for t in by_group.values()))
    return Spread(half, half)


# class of operators in band.yaml by the first word of a fit's group
CLASSES = {
    "gemm": "gemm", "bmm": "gemm", "router": "gemm", "mla_decode": "attention", "mla_prefill": "attention",
    "gqa_decode": "attention", "gqa_prefill": "attention", "sparse_mla_decode": "attention", "indexer": "attention",
    "kv_dequantise": "attention", "grouped_gemm": "experts",
    "grouped_gemm_ep": "experts", "link": "collectives",
}  # fmt: skip


def of_releases(ops: Iterable[Op]) -> Spread:
    """Spread of a sum of operators because the engine that runs is of another release than the measured one.

    A release changes all operators of a class alike: they add, classes add in squares.
    """
    known, by_class = whole_step().releases, dict.fromkeys(CLASSES.values(), 0.0)
    for op in ops:
        of = CLASSES.get(op.group.partition(".")[0])
        if of is not None:
            by_class[of] += abs(float(op.time_s)) * known[of]
    half = EIGHTY_PERCENT * math.hypot(*by_class.values())
    return Spread(half, half)


def of_interval(known: Interval, weight: float = 1.0) -> Spread:
    """Spread that a number given as an interval brings, `weight` times."""
    return Spread(weight * (known.value - known.low), weight * (known.high - known.value))


def together(*spreads: Spread) -> Spread:
    """Independent contributions to one sum."""
    return Spread(math.hypot(*(s.down for s in spreads)), math.hypot(*(s.up for s in spreads)))


class Whole(NamedTuple):
    """Doubts of a whole step beside its kernels' residuals."""

    sum_of_parts: float
    releases: dict[str, float]  # mean change of a class of operators from release to release
    cold_start_s: Interval  # how much later the first burst of a benchmark comes out, the value of a cold server
    widening: float


@lru_cache(maxsize=1)
def whole_step() -> Whole:
    """The numbers of band.yaml."""
    from mlaplan import units
    from mlaplan.specs.source import read

    data = read(FILE).data
    releases = {of: float(data["releases"][of]) for of in sorted({*CLASSES.values()})}
    cold, latest = (units.parse(data["cold_start"][end], "s") for end in ("value", "high"))
    known = float(data["sum_of_parts"]["value"]), releases, Interval(cold, 0.0, latest)
    return Whole(*known, float(data["widening"]["value"]))


def of_step(step_s: float, *spreads: Spread) -> Spread:
    """Spread of a whole step from those of its parts: w hypot(parts, 1.6 r step)."""
    known = whole_step()
    half = EIGHTY_PERCENT * known.sum_of_parts * step_s
    return scaled(together(*spreads, Spread(half, half)), known.widening)


def relative(value: Interval) -> Spread:
    """Distances of an interval as fractions of its value."""
    if not value.value:
        return Spread(0.0, 0.0)
    return Spread((value.value - value.low) / value.value, (value.high - value.value) / value.value)


def scaled(spread: Spread, factor: float) -> Spread:
    return Spread(spread.down * factor, spread.up * factor)


def inverse(value: float, of: Interval) -> Interval:
    """Interval of a rate that falls as the time `of` rises."""
    if not of.value or math.isnan(of.value):
        return Interval(value, value, value)
    return Interval(value, value * of.value / of.high, value * of.value / of.low)
