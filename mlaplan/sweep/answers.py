"""Answers of points: the plans kept of each, as columns of rows; and why, where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan import pricing, ranking
from mlaplan.costs.factor import Memo
from mlaplan.costs.table import Table, size
from mlaplan.explain import reasons
from mlaplan.plan import chip_counts, price_per_hour
from mlaplan.rules.rule import Question
from mlaplan.search import joined
from mlaplan.strategy import Strategy, to_table
from mlaplan.sweep import detail, family, ground
from mlaplan.sweep.detail import Ends
from mlaplan.sweep.family import Kept
from mlaplan.sweep.ground import Ground
from mlaplan.sweep.points import Point, Points
from mlaplan.sweep.study import Study

MOST_GROUNDS = 8
SLICE = 32_768  # rows whose columns are laid out at once


class Batch(NamedTuple):
    """Rows by column, the points that end with them, and how many strategies were priced for these points."""

    columns: dict[str, Any]
    rows: int
    points: int
    priced: int


class _Picked(NamedTuple):
    """Plans that a point shows: from which ground, its rows, and whether they lie on the front (None: open)."""

    ground: int
    table: Table
    front: NDArray[np.bool_] | None


@dataclass(slots=True)
class _Priced:
    """A family after its search: its points, what is kept of each on each ground, and the grounds' prices."""

    points: Sequence[Point]
    loads: list[Question]
    kept: list[list[Kept]]
    grounds: list[Ground]
    memos: list[Memo]


class Planner:
    """Answers points one family after the other; what neighbours have in common is kept between them."""

    def __init__(self, study: Study) -> None:
        self.study, self.points = study, Points(study)
        self._grounds: dict[tuple[Any, ...], Ground] = {}
        self._most = max((c for c in study.values("concurrency") if c is not None), default=None)
        self._names = [column.name for column in study.columns]

    def answers(self, first: int, last: int) -> Iterator[Batch]:
        """The rows of points from first to below last, in order."""
        for points in self.points.families(first, last):
            if points[0].q is None:
                yield self._batch(points, [0], {"feasible": [False], "reason": [points[0].problem]}, 1, 0)
            else:
                yield from self._family(points)

    def _family(self, points: Sequence[Point]) -> Iterator[Batch]:
        s, loads = self.study, [p.q for p in points if p.q is not None]
        counts = chip_counts(loads[0], points[0].devices, s.objective)
        grounds = [self._ground(loads[0], count, points[0]) for count in counts]
        memos = [one.memo() for one in grounds]
        tokens = s.given.tokens_per_step
        found = [
            family.price(one, loads, s.objective, s.plans, tokens, memo)
            for one, memo in zip(grounds, memos, strict=True)
        ]
        priced = _Priced(points, loads, [list(of) for of in zip(*found, strict=True)], grounds, memos)
        yield from self._best(priced) if s.plans == "best" else self._many(priced)
        for one, memo in zip(grounds, memos, strict=True):
            one.learn(memo)

    def _ground(self, q: Question, count: int, point: Point) -> Ground:
        key = (id(q.setting), count, *ground.of(q, point.pins))
        known = self._grounds.pop(key, None)
        if known is None or known.setting is not q.setting:
            known = Ground(q, count, point.pins, self._most)
            while len(self._grounds) >= MOST_GROUNDS:
                self._grounds.pop(next(iter(self._grounds)))
        self._grounds[key] = known
        return known

    # ---- the best plan of each point ----

    def _best(self, f: _Priced) -> Iterator[Batch]:
        """One row a point; the columns of all plans of one ground are laid out together."""
        picks = [_foremost(of) for of in f.kept]
        columns: dict[str, list[Any]] = {name: [None] * len(f.points) for name in self._names}
        for n in range(len(f.memos)):
            who = np.array([i for i, pick in enumerate(picks) if pick is not None and pick.ground == n], dtype=np.intp)
            if len(who):
                table = joined([pick.table for i in who if (pick := picks[i]) is not None])
                for name, column in self._columns(f, who, table, n).items():
                    for i, value in zip(who, column, strict=True):
                        columns[name][i] = value
        columns["feasible"] = [pick is not None for pick in picks]
        for i, reason in self._reasons(f, [i for i, pick in enumerate(picks) if pick is None]).items():
            columns["reason"][i] = reason
        priced = sum(kept.priced for of in f.kept for kept in of)
        yield self._batch(f.points, range(len(f.points)), columns, len(f.points), priced)

    # ---- fronts, and every feasible plan ----

    def _many(self, f: _Priced) -> Iterator[Batch]:
        for i, (point, kept) in enumerate(zip(f.points, f.kept, strict=True)):
            priced = sum(one.priced for one in kept)
            parts = list(self._slices(kept))
            if not parts:
                reason = self._reasons(f, [i])[i]
                yield self._batch([point], [0], {"feasible": [False], "reason": [reason], "front": [False]}, 1, priced)
            for k, part in enumerate(parts):
                n = size(part.table)
                who = np.full(n, i, dtype=np.intp)
                columns: dict[str, Any] = self._columns(f, who, part.table, part.ground)
                columns |= {"feasible": np.ones(n, dtype=bool), "front": part.front}
                end = k == len(parts) - 1
                yield self._batch([point], np.zeros(n, dtype=np.intp), columns, int(end), priced * end)

    def _slices(self, kept: Sequence[Kept]) -> Iterator[_Picked]:
        """Rows of one point in slices; of a front only those that no other ground beats."""
        x = [v["x"] for one in kept for v in one.values]
        if not x:
            return
        y = [v["y"] for one in kept for v in one.values]
        front = np.zeros(sum(map(len, x)), dtype=bool)
        front[ranking.pareto(np.concatenate(x), np.concatenate(y))] = True
        start = 0
        for n, one in enumerate(kept):
            for table in one.rows:
                own = front[start : start + size(table)]
                start += size(table)
                if self.study.plans == "pareto":
                    table, own = table.take(np.flatnonzero(own)), own[own]
                for first in range(0, size(table), SLICE):
                    rows = slice(first, first + SLICE)
                    yield _Picked(n, table.take(rows), own[rows])

    # ---- columns ----

    def _columns(self, f: _Priced, which: NDArray[np.intp], table: Table, n: int) -> dict[str, Any]:
        s, q = self.study, f.loads[0]
        cost, own = price_per_hour(q, s.given), f.grounds[n]
        own.ends = own.ends or Ends.of(q.setting)
        return detail.columns(f.loads, which, table, s.given.tokens_per_step, cost, f.memos[n], own.ends)

    def _batch(
        self, points: Sequence[Point], which: Sequence[int] | range | NDArray[np.intp], found: Mapping[str, Any],
        ended: int, priced: int,
    ) -> Batch:  # fmt: skip
        """Rows with what was asked: `which` names the point of each."""
        n = len(which)
        columns: dict[str, Any] = {}
        for name in self._names:
            if name in points[0].asked:
                values = [point.asked[name] for point in points]
                columns[name] = values if len(points) == n else [values[i] for i in which]
            else:
                columns[name] = found.get(name, [None] * n)
        return Batch(columns, n, ended, priced)

    def _reasons(self, f: _Priced, without: Sequence[int]) -> dict[int, str]:
        """Why these points have no plan: how many strategies each rule removed, and the nearest miss in words."""
        misses = {i: miss for i in without if (miss := _nearest(f.kept[i])) is not None}
        told = self._misses([f.loads[i] for i in misses], list(misses.values())) if misses else []
        near = dict(zip(misses, told, strict=True))
        return {i: _reason(f.kept[i]) + near.get(i, "") for i in without}

    def _misses(self, loads: Sequence[Question], strategies: Sequence[Strategy]) -> list[str]:
        """Each strategy and the first rule that it breaks under its load, in words."""
        q, table = loads[0], Table(to_table(strategies))
        tokens = pricing.tokens_per_step(q, table, self.study.given.tokens_per_step)
        memo = Memo()
        columns, step_tokens = pricing.steps(q, table, tokens, memo, detail=True)
        columns |= detail.served(loads, np.arange(len(loads)), table, tokens, columns, step_tokens, memo)
        cells: dict[str, Any] = {**table, **columns}
        out = []
        for i, (load, strategy) in enumerate(zip(loads, strategies, strict=True)):
            broken = reasons(load, {name: column[i : i + 1] for name, column in cells.items()})
            out.append(f"; nearest {strategy.label()}: {broken[0][2]}" if broken else "")
        return out


def _foremost(kept: Sequence[Kept]) -> _Picked | None:
    """The plan that `recommend` would put first."""
    parts = [(n, *part) for n, one in enumerate(kept) for part in zip(one.rows, one.values, strict=True)]
    if not parts:
        return None
    names = ranking.KNOBS
    knobs = {name: np.concatenate([table[name] for _, table, _ in parts]) for name in names}
    value, tie = (np.concatenate([of[name] for *_, of in parts]) for name in ("value", "tie"))
    i = family.foremost(knobs, value, tie)
    for n, table, _ in parts:
        if i < size(table):
            return _Picked(n, table.take(slice(i, i + 1)), None)
        i -= size(table)
    raise AssertionError("a row of none of the tables")


def _nearest(found: Sequence[Kept]) -> Strategy | None:
    """The strategy closest to feasible; a late answer beats no fit."""
    for kind in ("service", "capacity"):
        misses = [kept.nearest[kind] for kept in found if kind in kept.nearest]
        if misses:
            return min(misses, key=lambda miss: miss.distance).strategy
    return None


def _reason(found: Sequence[Kept]) -> str:
    counts: dict[str, int] = {}
    for kept in found:
        for name, n in kept.rejected.items():
            counts[name] = counts.get(name, 0) + n
    if not counts:
        return "no structure has all that is pinned"
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda item: -item[1]))
