"""Pricing on distinct rows: a quantity that depends on a few columns is computed once per combination of them.

Strategies are flat integer columns. Of the 14 columns an attention operator depends on five or six, so a million
rows hold some thousand distinct attention problems. `factored` finds them by dense codes (no sorting), prices
them, and spreads the result: the same formulas, the same floats, a fraction of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Table = dict[str, NDArray[np.int64]]
Columns = dict[str, NDArray[np.float64]]


def size(table: Table) -> int:
    """Rows of the table."""
    return len(next(iter(table.values())))


def take(table: Table, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Table:
    """The given rows of every column."""
    return {name: column[rows] for name, column in table.items()}


def distinct(table: Table, names: Sequence[str]) -> tuple[Table, NDArray[np.intp]]:
    """(distinct combinations of the named columns, index of its combination for every row)."""
    key = np.zeros(size(table), dtype=np.int64)
    for name in names:
        code, count = _codes(table[name])
        key = key * count + code
        if count > 1:
            key, _ = _codes(key)
    code, count = _codes(key)
    first = np.zeros(count, dtype=np.intp)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    return {name: table[name][first] for name in names}, code


def _codes(column: NDArray[np.int64]) -> tuple[NDArray[np.intp], int]:
    """Dense codes 0..n-1 of a column in order of value, and n."""
    if len(column) == 0:
        return np.zeros(0, dtype=np.intp), 1
    low, high = int(column.min()), int(column.max())
    span = high - low + 1
    if span == 1:
        return np.zeros(len(column), dtype=np.intp), 1
    if span > 8 * len(column) + 65536:
        values, inverse = np.unique(column, return_inverse=True)
        return inverse.astype(np.intp), len(values)
    present = np.zeros(span, dtype=bool)
    shifted = column - low
    present[shifted] = True
    lookup = np.cumsum(present) - 1
    return lookup[shifted], int(lookup[-1]) + 1


def factored(table: Table, names: Sequence[str], price: Callable[[Table], Columns]) -> Columns:
    """`price` on the distinct rows of the named columns, spread back over all rows."""
    unique, inverse = distinct(table, names)
    return {name: np.asarray(column)[inverse] for name, column in price(unique).items()}


def by_values(
    table: Table, names: Sequence[str], price: Callable[..., Columns]
) -> Columns:
    """Call `price(values, sub_table)` for each combination of the named columns and join the results.

    For columns that choose constants rather than enter formulas (dtypes, KV layout).
    """
    unique, inverse = distinct(table, names)
    out: Columns = {}
    for i in range(size(unique)):
        rows = np.flatnonzero(inverse == i)
        for name, column in price({n: int(unique[n][i]) for n in names}, take(table, rows)).items():
            out.setdefault(name, np.zeros(len(inverse)))[rows] = column
    return out
