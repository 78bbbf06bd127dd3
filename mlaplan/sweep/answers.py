"""Answers of points: the plans kept of each, in the columns of a row; and why, where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaplan.costs.factor import Memo, Table, size
from mlaplan.explain import explain_all
from mlaplan.plan import chip_counts, price_per_hour
from mlaplan.rules.rule import Question
from mlaplan.search import joined
from mlaplan.search import price as price_rows
from mlaplan.strategy import Strategy, from_row
from mlaplan.sweep import family, ground, rows
from mlaplan.sweep.family import Kept
from mlaplan.sweep.ground import Ground
from mlaplan.sweep.points import Point, Points
from mlaplan.sweep.study import Study

MOST_GROUNDS = 8


@dataclass(slots=True)
class Answer:
    """Rows of one point, and how many strategies were priced for them."""

    rows: list[rows.Row]
    priced: int


class Planner:
    """Answers points one family after the other; what neighbours have in common is kept between them."""

    def __init__(self, study: Study) -> None:
        self.study, self.points = study, Points(study)
        self._grounds: dict[tuple[Any, ...], Ground] = {}
        self._most = max((c for c in study.values("concurrency") if c is not None), default=None)

    def answers(self, first: int, last: int) -> Iterator[Answer]:
        """The answers of points from first to below last, in order."""
        for points in self.points.families(first, last):
            if points[0].q is None:
                yield Answer([self._row(points[0], feasible=False, reason=points[0].problem)], 0)
            else:
                yield from self._family(points)

    def _family(self, points: Sequence[Point]) -> Iterator[Answer]:
        s, asked = self.study, [p.q for p in points if p.q is not None]
        found: list[list[tuple[Kept, int]]] = [[] for _ in points]  # of each number of chips
        grounds = [
            self._ground(asked[0], count, points[0]) for count in chip_counts(asked[0], points[0].devices, s.objective)
        ]
        memos = []
        for n, one in enumerate(grounds):
            memo = one.memo()
            for i, kept in enumerate(family.price(one, asked, s.objective, s.plans, s.given.tokens_per_step, memo)):
                found[i].append((kept, n))
            memos.append(memo)
        picked = [self._picked([kept for kept, _ in of]) for of in found]
        yield from self._told(points, [[kept for kept, _ in of] for of in found], picked, memos)
        for one, memo in zip(grounds, memos, strict=True):
            one.learn(memo)

    def _ground(self, q: Question, count: int, point: Point) -> Ground:
        key = (id(q.setting), count, *ground.of(q, point.pins))
        known = self._grounds.get(key)
        if known is None:
            known = Ground(q, count, point.pins, self._most)
            while len(self._grounds) >= MOST_GROUNDS:
                self._grounds.pop(next(iter(self._grounds)))
            self._grounds[key] = known
        return known

    def _picked(self, kept: Sequence[Kept]) -> list[tuple[int, Table]]:
        """(which number of chips, its row) of the plans that a point shows, in order."""
        if self.study.plans == "best":
            candidates = [
                (n, rows_, v) for n, one in enumerate(kept) for rows_, v in zip(one.rows, one.values, strict=True)
            ]
            if not candidates:
                return []
            table = Table({name: np.concatenate([c[1][name] for c in candidates]) for name in candidates[0][1]})
            values = np.concatenate([c[2]["value"] for c in candidates])
            owner = np.repeat(np.arange(len(candidates)), [size(c[1]) for c in candidates])
            first = np.concatenate([np.arange(size(c[1])) for c in candidates])
            i = family.foremost(table, values)
            n, block, _ = candidates[int(owner[i])]
            return [(n, block.take(slice(int(first[i]), int(first[i]) + 1)))]
        raise NotImplementedError

    def _told(
        self, points: Sequence[Point], found: Sequence[Sequence[Kept]], picked: Sequence[list[tuple[int, Table]]],
        memos: Sequence[Memo],
    ) -> Iterator[Answer]:  # fmt: skip
        plans: list[tuple[Question, Strategy]] = []
        misses = [None if picked[i] else _nearest(of) for i, of in enumerate(found)]
        for point, pick, miss in zip(points, picked, misses, strict=True):
            assert point.q is not None
            strategies = [from_row(row, 0) for _, row in pick] if pick else ([miss] if miss else [])
            plans += [(point.q, strategy) for strategy in strategies]
        told = iter(_explained(plans, self.study) if plans else [])
        for point, of, pick, miss in zip(points, found, picked, misses, strict=True):
            priced = sum(kept.priced for kept in of)
            if pick:
                out = [self._row(point, feasible=True, reason=None, **rows.of_plan(next(told))) for _ in pick]
            else:
                near = next(told) if miss else None
                out = [self._row(point, feasible=False, reason=_reason(of, near))]
            yield Answer(out, priced)

    def _row(self, point: Point, **found: Any) -> rows.Row:
        return rows.complete({**point.asked, **found}, self.study.columns)


def _nearest(found: Sequence[Kept]) -> Strategy | None:
    """The strategy closest to feasible; a late answer beats no fit."""
    for kind in ("service", "capacity"):
        misses = [kept.nearest[kind] for kept in found if kind in kept.nearest]
        if misses:
            return min(misses, key=lambda m: m.distance).strategy
    return None


def _reason(found: Sequence[Kept], near: Any) -> str:
    """How many strategies each rule removed, and the nearest miss in words."""
    counts: dict[str, int] = {}
    for kept in found:
        for name, n in kept.rejected.items():
            counts[name] = counts.get(name, 0) + n
    if not counts:
        return "no structure has all that is pinned"
    text = ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda item: -item[1]))
    if near is None or not near.reasons:
        return text
    return f"{text}; nearest {near.strategy.label()}: {near.reasons[0][2]}"


def _explained(plans: Sequence[tuple[Question, Strategy]], study: Study) -> list[Any]:
    q = plans[0][0]
    strategies, loads = [strategy for _, strategy in plans], [one for one, _ in plans]
    from mlaplan.strategy import to_table

    parts = [price_rows(one, to_table([strategy]), study.given.tokens_per_step, detail=True) for one, strategy in plans]
    return explain_all(
        q, strategies, tokens_given=study.given.tokens_per_step, price=price_per_hour(q, study.given),
        columns=joined(parts), loads=loads,
    )  # fmt: skip
