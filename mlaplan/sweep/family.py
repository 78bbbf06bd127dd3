"""A family of points: the same strategies and lengths, other loads and limits. Its steps are priced once.

What a step takes depends on lengths and batch; the load decides which batches there are and what is served with them,
the limits which of those will do. So the rows of all points are laid out and priced together, slice by slice, and each
point takes its own rows from a slice, serves them and keeps its best. The order of rows and the formulas are those of
`search`, and so are the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlaplan import pricing, ranking, search
from mlaplan.costs.factor import Memo
from mlaplan.costs.table import Columns, Table, size
from mlaplan.rules import of_stage
from mlaplan.rules.rule import Question
from mlaplan.search import BLOCK_ROWS, Misfit
from mlaplan.strategy import NAMES, from_row
from mlaplan.sweep import batches
from mlaplan.sweep.batches import Wanted
from mlaplan.sweep.ground import Ground, limits

CANDIDATES = 250  # best structures among which the simplest goes first, as many as `recommend` looks at


@dataclass(slots=True)
class Kept:
    """What is kept of one point: rows with their value, and what was removed."""

    rows: list[Table] = field(default_factory=list)
    values: list[Columns] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    nearest: dict[str, Misfit] = field(default_factory=dict)
    priced: int = 0
    considered: int = 0

    def miss(self, kind: str, distance: float, table: Table, row: int) -> None:
        if kind not in self.nearest or distance < self.nearest[kind].distance:
            self.nearest[kind] = Misfit(kind, distance, from_row(table, row))

    @property
    def found(self) -> bool:
        return bool(self.rows)


def price(
    ground: Ground, points: Sequence[Question], objective: str, plans: str, tokens: float | None, memo: Memo
) -> list[Kept]:
    """What is kept of each point: of `best` the candidates of each structure, of `pareto` a front, of `all` all."""
    q = points[0]
    kept = [Kept(rejected=Counter(ground.rejected), considered=ground.considered) for _ in points]
    for choices in ground.blocks(q):
        room, short = search.sequences_held(q, choices, memo)
        _count_misfits(choices, room, short, kept)
        rows = _laid_out(ground, points, choices, room)
        for start in range(0, size(rows.table), BLOCK_ROWS):
            block = rows.table.take(slice(start, start + BLOCK_ROWS))
            _keep_of_block(points, rows, block, objective, plans, tokens, memo, kept)
    return kept


def _count_misfits(choices: Table, room: NDArray[Any], short: NDArray[Any], kept: Sequence[Kept]) -> None:
    """Choices that hold no sequence: the same for all points."""
    weights, cache = of_stage("capacity")
    for rule, bad in ((weights, room < 0), (cache, room == 0)):
        if n := int(np.count_nonzero(bad)):
            for one in kept:
                one.rejected[rule.name] += n
    if np.any(room < 1):
        i = int(np.argmin(np.where(room < 1, short, np.inf)))
        for one in kept:
            one.miss("capacity", float(short[i]), choices, i)


def _laid_out(ground: Ground, points: Sequence[Question], choices: Table, room: NDArray[Any]) -> batches.Union:
    fixed = ground.pins.get("batch")
    if fixed is not None:
        return batches.union(choices, [Wanted(np.where(room >= 1, 1, 0), True)] * len(points), int(fixed))
    wanted = [
        # a closed loop with a limit on TTFT leaves no batch below what is offered: the rest would wait for a slot
        Wanted(limits(q, choices, room), q.workload.concurrency is not None and q.workload.ttft_s is not None)
        for q in points
    ]
    return batches.union(choices, wanted, None)


@dataclass(slots=True)
class _Slice:
    """Rows of a slice with the prices of their steps, and where the capacity rules break."""

    table: Table
    tokens: NDArray[np.float64]
    step_tokens: NDArray[np.int64]
    steps: Columns
    broken: list[tuple[str, NDArray[np.bool_]]]
    fits: NDArray[np.bool_] | None  # None where all do


def _slices(q: Question, block: Table, tokens_given: float | None, memo: Memo) -> Iterator[_Slice]:
    for part in pricing.primed(q, block, memo):
        tokens = pricing.tokens_per_step(q, part, tokens_given)
        columns, step_tokens = pricing.steps(q, part, tokens, memo)
        cells = part.having(**columns)
        fits, broken = np.ones(size(part), dtype=bool), []
        for rule in of_stage("capacity"):
            bad = np.broadcast_to(rule.violated(q, cells), fits.shape) & fits
            if bad.any():
                broken.append((rule.name, bad))
                fits &= ~bad
        yield _Slice(part, tokens, step_tokens, columns, broken, None if not broken else fits)


def _keep_of_block(
    points: Sequence[Question], rows: batches.Union, block: Table, objective: str, plans: str, tokens: float | None,
    memo: Memo, kept: Sequence[Kept],
) -> None:  # fmt: skip
    places: list[list[NDArray[np.intp]]] = [[] for _ in points]
    values: list[list[Columns]] = [[] for _ in points]
    start = 0
    for part in _slices(points[0], block, tokens, memo):
        for i, q in enumerate(points):
            chosen = rows.rows_of(i, part.table)
            place, value = _keep_of_slice(q, part, chosen, objective, plans, kept[i], memo)
            if len(place):
                places[i].append(place + start)
                values[i].append(value)
        start += size(part.table)
    for i, one in enumerate(kept):
        if places[i]:
            place, value = np.concatenate(places[i]), _joined(values[i])
            best = _reduced(block["structure"][place], value, plans)
            one.rows.append(block.take(place[best]))
            one.values.append({name: column[best] for name, column in value.items()})


def _keep_of_slice(
    q: Question, part: _Slice, chosen: NDArray[np.intp] | slice, objective: str, plans: str, kept: Kept, memo: Memo
) -> tuple[NDArray[np.intp], Columns]:
    """(rows of the slice that a point keeps, their values)."""
    n = size(part.table) if isinstance(chosen, slice) else len(chosen)
    kept.priced += n
    for name, bad in part.broken:
        if removed := int(np.count_nonzero(bad[chosen])):
            kept.rejected[name] += removed
    if part.fits is not None:
        chosen = np.flatnonzero(part.fits) if isinstance(chosen, slice) else chosen[part.fits[chosen]]
    nothing: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    if not isinstance(chosen, slice) and not len(chosen):
        return nothing, {}
    steps = {name: part.steps[name][chosen] for name in pricing.SERVED_OF}
    served = pricing.served(q, part.table.of(NAMES, chosen), part.tokens[chosen], steps, part.step_tokens[chosen], memo)
    good = _meets(q, served, kept)
    rows = np.arange(size(part.table)) if isinstance(chosen, slice) else chosen
    if good is not None and not len(good):
        _note_miss(q, part.table, rows, served, kept)
        return nothing, {}
    if good is not None:
        rows, served = rows[good], {name: column[good] for name, column in served.items()}
    value = {
        "value": ranking.score(served, objective, q.workload.osl), "tie": ranking.latency(served, q.workload.osl),
        "x": served["tok_s_chip"], "y": np.nan_to_num(served["tok_s_user"]),
    }  # fmt: skip
    best = _reduced(part.table["structure"][rows], value, plans)
    return rows[best], {name: column[best] for name, column in value.items()}


def _meets(q: Question, served: Columns, kept: Kept) -> NDArray[np.intp] | None:
    """Rows that keep the limits; None where all do."""
    good = np.ones(len(served["ttft_s"]), dtype=bool)
    w = q.workload
    if w.ttft_s is None and w.tpot_s is None and w.rate is None:
        return None
    for rule in of_stage("service"):
        bad = np.broadcast_to(rule.violated(q, served), good.shape) & good
        if removed := int(np.count_nonzero(bad)):
            kept.rejected[rule.name] += removed
            good &= ~bad
    return None if good.all() else np.flatnonzero(good)


def _note_miss(q: Question, table: Table, rows: NDArray[np.intp], served: Columns, kept: Kept) -> None:
    excess = search.excess(q, served)
    i = int(np.argmin(excess))
    kept.miss("service", float(excess[i]), table, int(rows[i]))


def _reduced(structure: NDArray[Any], value: Columns, plans: str) -> NDArray[np.intp]:
    """Rows that stay: the best of each structure, a front, or all."""
    if plans == "best":
        return ranking.best_of_each(structure, value["value"], value["tie"])
    return np.sort(ranking.pareto(value["x"], value["y"])) if plans == "pareto" else np.arange(len(structure))


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def foremost(rows: Mapping[str, NDArray[Any]], value: NDArray[np.float64], tie: NDArray[np.float64]) -> int:
    """The first plan of `recommend`: of those within `ranking.LIKENESS` of the best, the one with the fewest knobs.

    tie: of equal values the lowest first.
    """
    most = np.lexsort((tie, -value))[:CANDIDATES]
    near = most[value[most] >= value[most[0]] - ranking.LIKENESS * abs(value[most[0]])]
    knobs = [ranking.complexity({name: int(rows[name][i]) for name in ranking.KNOBS}) for i in near]
    return int(near[ranking.foremost(value[near], np.array(knobs))])
