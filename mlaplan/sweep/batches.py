"""The batches of points that differ in load alone, laid out once for all of them.

A point takes of each choice the batches of a grid below its own limit, and the limit (`space.with_batches`). The union
over the points holds each row once, in the order in which every one of them has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlaplan import space
from mlaplan.costs.table import Table, size, sorted_distinct

BITS = 21  # of a batch


@dataclass(frozen=True, slots=True)
class Wanted:
    """Batches of one point: up to the limit of each choice, or the limit alone."""

    limit: NDArray[np.int64]
    only_limit: bool


@dataclass(slots=True)
class Union:
    """Rows (choice, batch) of several points. `table` has the columns `choice` and `on_grid` besides."""

    table: Table
    wanted: Sequence[Wanted]
    fixed: bool

    def rows_of(self, point: int, part: Table) -> NDArray[np.intp] | slice:
        """The rows of a part that a point has."""
        if self.fixed or len(self.wanted) == 1:
            return slice(None)
        one = self.wanted[point]
        limit, batch = one.limit[part["choice"]], part["batch"]
        has = batch == limit
        if not one.only_limit:
            has |= (batch < limit) & part["on_grid"]
        return slice(None) if has.all() else np.flatnonzero(has)


def union(table: Table, wanted: Sequence[Wanted], fixed: int | None) -> Union:
    """The rows of all points. fixed: this batch for every choice that holds a sequence."""
    if fixed is not None:
        some = np.maximum.reduce([one.limit for one in wanted])
        return Union(space.with_batches(table, some, fixed), wanted, True)
    if len(wanted) == 1:
        one = wanted[0]
        return Union(space.with_batches(table, np.maximum(one.limit, 0), only_limit=one.only_limit), wanted, False)
    keys = []
    grids = [one.limit for one in wanted if not one.only_limit]
    grid = np.zeros(0, dtype=np.int64)
    if grids:
        most = np.maximum(np.maximum.reduce(grids), 0)
        grid = space.batch_grid(int(most.max(initial=1)))
        count = np.where(most >= 1, np.searchsorted(grid, most), 0)
        choice = np.repeat(np.arange(size(table)), count)
        rank = np.arange(len(choice)) - np.repeat(np.cumsum(count) - count, count)
        keys.append((choice << BITS) + grid[rank])
    for one in wanted:
        holds = np.flatnonzero(one.limit >= 1)
        keys.append((holds << BITS) + one.limit[holds])
    every = sorted_distinct(np.concatenate(keys))
    choice, batch = every >> BITS, every & ((1 << BITS) - 1)
    on_grid = np.zeros(int(batch.max(initial=0)) + 1, dtype=bool)
    on_grid[grid] = True
    rows = table.take(choice).having(batch=batch.astype(np.int64), choice=choice, on_grid=on_grid[batch])
    return Union(rows, wanted, False)
