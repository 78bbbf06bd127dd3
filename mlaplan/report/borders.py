"""Where the best strategy changes in a sweep, and what drives each border.

Neighbours are rows that differ by one step along one axis. A border lies where their best plans have different
structures, copies of the whole model apart. What drives it: both structures are planned on both sides (their batch,
dtypes and chunks free), and their costs of a token (`report.why`) compared group by group. The group whose difference
changes most in favour of the winner is the driver; or it is the rule that forbids the old winner on the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.errors import MlaplanError
from mlaplan.report.why import group_of, token_cost

if TYPE_CHECKING:
    import pandas as pd

    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.sweep.points import Point, Points
    from mlaplan.sweep.study import Study

STRUCTURE = ("tp", "pp", "dp", "ep", "dcp", "cp", "kv_layout")
FIRST_TOKEN = "time to first token"
NOTHING = "no plan"


@dataclass(frozen=True, slots=True)
class Moved:
    """How often the best structure changes from one value of an axis to the next."""

    axis: str
    neighbours: int
    changes: int


@dataclass(frozen=True, slots=True)
class Border:
    """One structure gives way to another along an axis: how often, and at one place, that in the middle.

    below, above: the axis' values on either side there; rows: the two row numbers.
    """

    axis: str
    before: str
    after: str
    times: int
    below: Any
    above: Any
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Driver:
    """What drives a border: a rule that forbids a structure on one side, or a group of the cost of a token.

    gaps: how much more the old structure spends on the group than the new one, as part of all that the new one costs,
    below and above; None for a rule.
    """

    what: str
    gaps: tuple[float, float] | None = None


def moved(study: Study, frame: pd.DataFrame) -> list[Moved]:
    """For each axis with an order or several words, the neighbours whose best plans differ; most first."""
    codes = _codes(study, frame)
    out = []
    for k, axis in enumerate(study.axes):
        if len(axis.values) > 1:
            a, b = _sides(codes, k)
            both = (a >= 0) | (b >= 0)
            out.append(Moved(axis.name, int(both.sum()), int(((a != b) & both).sum())))
    return sorted(out, key=lambda one: -one.changes / max(one.neighbours, 1))


def borders(study: Study, frame: pd.DataFrame) -> list[Border]:
    """Every pair of structures that give way to each other along an ordered axis, the most frequent first."""
    labels, codes = _structures(frame).to_numpy(dtype=object), _codes(study, frame)
    index = np.arange(study.size).reshape(codes.shape)
    out = []
    for k, axis in enumerate(study.axes):
        if len(axis.values) < 2 or axis.kind == "text":
            continue
        a, b = (side.ravel() for side in _sides(index, k))
        changed = (codes.ravel()[a] != codes.ravel()[b]) & ~((codes.ravel()[a] < 0) & (codes.ravel()[b] < 0))
        pairs: dict[tuple[str, str], list[int]] = {}
        for i in np.flatnonzero(changed):
            pairs.setdefault((_name(labels[a[i]]), _name(labels[b[i]])), []).append(int(i))
        for (before, after), places in pairs.items():
            middle = places[len(places) // 2]
            below, above = int(a[middle]), int(b[middle])
            values = study.point(below)[axis.name], study.point(above)[axis.name]
            out.append(Border(axis.name, before, after, len(places), *values, (below, above)))
    return sorted(out, key=lambda one: -one.times)


def _codes(study: Study, frame: pd.DataFrame) -> Any:
    """A number for each structure in the shape of the axes; below 0 without a plan."""
    import pandas as pd

    codes, _ = pd.factorize(_structures(frame))
    return codes.reshape([len(axis.values) for axis in study.axes])


def _structures(frame: pd.DataFrame) -> pd.Series[str]:
    """Labels without the number of copies."""
    return frame["label"].str.replace(r" x\d+$", "", regex=True)


def _sides(array: Any, k: int) -> tuple[Any, Any]:
    """Values and their next neighbours along the k-th axis."""
    n = array.shape[k]
    return np.take(array, range(n - 1), axis=k), np.take(array, range(1, n), axis=k)


def _name(label: Any) -> str:
    return label if isinstance(label, str) else NOTHING


# ---- drivers ----


def driver(points: Points, frame: pd.DataFrame, border: Border) -> Driver | None:
    """What drives a border, or None where one side has no plan for a reason that no comparison tells."""
    here, there = (points[row] for row in border.rows)
    if here.q is None or there.q is None:
        return None
    if NOTHING in (border.before, border.after):
        lost = frame["reason"].iloc[border.rows[border.before != NOTHING]]
        code, slug = str(lost).split()[:2]
        return Driver(f"{code} {slug}".rstrip(",;"))
    pins = [{n: _plain(frame[n].iloc[row]) for n in STRUCTURE} for row in border.rows]
    plans = [[_plan(points, point, pin) for point in (here, there)] for pin in pins]
    (old_below, old_above), (new_below, new_above) = plans
    if isinstance(old_above, str):
        return Driver(f"{border.before} {_verb(old_above)}")
    if isinstance(new_below, str):
        return Driver(f"{border.after} {_verb(new_below)}")
    assert isinstance(old_below, tuple) and isinstance(new_above, tuple)
    return _compared(points.study.objective, ((old_below, old_above), (new_below, new_above)))


def _verb(why: str) -> str:
    return why if why.startswith("does") else f"breaks {why}"


Planned = tuple["Question", "Explanation"]


def _plan(points: Points, point: Point, pins: dict[str, Any]) -> Planned | str:
    """The best plan of a structure at a point, or the rule that removes most of it."""
    from mlaplan.pins import check_pins
    from mlaplan.plan import recommend

    assert point.q is not None
    try:
        check_pins(pins, point.devices)
    except MlaplanError:
        return f"does not divide {point.devices} chips"
    found = recommend(point.q, point.devices, objective=points.study.objective, fixed={**point.pins, **pins}, top=1,
                      given=points.study.given)  # fmt: skip
    if found.plans:
        return point.q, found.plans[0]
    return next(iter(found.rejected), "no structure on these chips")


def _compared(objective: str, plans: tuple[tuple[Planned, Planned], tuple[Planned, Planned]]) -> Driver | None:
    costs = [[_costs(objective, *planned) for planned in side] for side in plans]
    groups = {group for side in costs for one in side for group in one}
    totals = [[sum(one.values()) for one in side] for side in costs]
    if not groups or not all(total > 0 for side in totals for total in side):
        return None

    def gaps(group: str) -> tuple[float, float]:
        below, above = ((costs[0][i].get(group, 0.0) - costs[1][i].get(group, 0.0)) / totals[1][i] for i in (0, 1))
        return below, above

    def gain(group: str) -> float:
        below, above = gaps(group)
        return above - below

    group = max(sorted(groups), key=gain)
    return Driver(group, gaps(group)) if gain(group) > 0.0 else None


def _costs(objective: str, q: Question, e: Explanation) -> dict[str, float]:
    """What the objective weighs, in groups: chip-seconds of a token, or seconds of a request."""
    if objective != "latency":
        return token_cost(q, e)
    if e.served is None or e.decode is None:
        return {}
    rounds = (q.workload.osl - 1) / e.served.tokens_per_step.value
    out = {FIRST_TOKEN: e.served.ttft_s.value}
    for op in e.decode.ops:
        out[group_of(op)] = out.get(group_of(op), 0.0) + op.time_s * rounds
    return out


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)
