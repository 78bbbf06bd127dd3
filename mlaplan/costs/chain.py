"""Items that pass through serial resources one after the other, held in a limited number of slots.

Item i takes t[s] seconds of resource s, in order of s; `wait[s]` seconds of latency follow that occupy nothing. A
span is memory: an item holds one of its `slots` from the start of resource `first` to the end of `last`.

    start[i,s] = max( end[i,s-1] + wait[s-1],  end[i-1,s],  end[i-slots,last] for spans that begin at s )
    end[i,s]   = start[i,s] + t[i,s]

For equal items and one span of d slots over the whole chain the last item ends, exactly, at

    T = L + max( (n-1) m,  K L + (n-1-K d) m ),    L = sum t + sum wait,  m = max t,  K = floor((n-1)/d)

which for two resources a, b without latency and d >= 2 is a + b + (n-1) max(a, b): the path of n-1 steps through
the slowest resource, or through freed slots. Source: max-plus algebra, Baccelli et al., Synchronization and
Linearity, ch. 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.roofline import Numeric

RUN = 1024  # items of a long schedule that are run


class Span(NamedTuple):
    """Memory held from the start of resource `first` to the end of `last`."""

    first: int
    last: int
    slots: int


def two_stage_s(a: Numeric, b: Numeric, n: Numeric) -> Numeric:
    """a + b + (n-1) max(a, b): n equal items through two resources, two slots or more. [s]"""
    return a + b + (n - 1) * np.maximum(a, b)


def equal_items_s(times: Sequence[Numeric], wait_s: Numeric, n: Numeric, slots: Numeric) -> Numeric:
    """End of the last of n equal items; scalars or arrays of one shape. [s]"""
    whole: Numeric = wait_s
    slowest: Numeric = 0.0
    for one in times:
        whole = whole + one
        slowest = np.maximum(slowest, one)
    turns = (n - 1) // slots
    return whole + np.maximum((n - 1) * slowest, turns * whole + (n - 1 - turns * slots) * slowest)


class Schedule(NamedTuple):
    """start, end [items, resources]. [s]"""

    start: NDArray[np.float64]
    end: NDArray[np.float64]

    @property
    def total_s(self) -> float:
        return float(self.end[-1, -1])


def long_schedule_s(times: NDArray[np.float64], wait: Sequence[float], spans: Sequence[Span]) -> float:
    """End of the last item, where all items after the first few are equal.

    Of many items the first are run; once turns of the slots repeat to the last digits, the rest is so many turns.
    """
    n, turn = len(times), math.lcm(*(span.slots for span in spans), 1)
    run = RUN - (RUN - n) % turn  # a whole number of turns short of n
    if n <= RUN or turn > RUN // 4 or bool((times[RUN // 4 :] != times[-1]).any()):
        return schedule(times, wait, spans).total_s
    ends = schedule(times[:run], wait, spans).end[:, -1]
    step, before = ends[-1] - ends[-1 - turn], ends[-1 - turn] - ends[-1 - 2 * turn]
    if abs(step - before) > 1e-9 * step or abs(step - _pace(times[-1], wait, spans) * turn) > 1e-9 * step:
        return schedule(times, wait, spans).total_s  # a long start is not over yet
    return float(ends[-1] + (n - run) // turn * step)


def _pace(times: NDArray[np.float64], wait: Sequence[float], spans: Sequence[Span]) -> float:
    """Time per item of the steady state: the slowest resource, or the slowest span over its slots. [s]"""
    held = [(times[s.first : s.last + 1].sum() + sum(wait[s.first : s.last])) / s.slots for s in spans]
    return float(max(*times, *held))


def schedule(times: NDArray[np.float64], wait: Sequence[float], spans: Sequence[Span]) -> Schedule:
    """The recurrence above for times [items, resources]."""
    n, resources = times.shape
    start, end = np.zeros((n, resources)), np.zeros((n, resources))
    for i in range(n):
        for s in range(resources):
            at = end[i - 1, s] if i else 0.0
            if s:
                at = max(at, end[i, s - 1] + wait[s - 1])
            for span in spans:
                if span.first == s and i >= span.slots:
                    at = max(at, end[i - span.slots, span.last])
            start[i, s], end[i, s] = at, at + times[i, s]
    return Schedule(start, end)
