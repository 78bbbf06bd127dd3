"""Columns of strategies: integer columns with the values they can take, and keys that number their combinations.

Strategies are flat integer columns. A key is one integer per row for its combination of some columns, made of the
columns' codes; what depends on these columns alone is priced once per key (costs.factor).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[np.float64]]
Rows = NDArray[np.intp] | NDArray[np.bool_] | slice

DENSE = 8  # combinations a row up to which marking them is faster than sorting the rows


class Domain(NamedTuple):
    """The values that a column can take, rising, and the code of each."""

    values: NDArray[np.int64]
    low: int
    lookup: NDArray[np.int32]

    def codes(self, column: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
        places = column - self.low if self.low else column
        return places if len(self.lookup) == len(self.values) else self.lookup[places]


def sorted_distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, rising. `numpy.unique` would import numpy.ma, a fifth of a start."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def domain(values: Any) -> Domain:
    """The domain of these values."""
    distinct_values = sorted_distinct(np.asarray(values, dtype=np.int64))
    low = int(distinct_values[0]) if len(distinct_values) else 0
    lookup = np.zeros(int(distinct_values[-1]) - low + 1 if len(distinct_values) else 1, dtype=np.int32)
    lookup[distinct_values - low] = np.arange(len(distinct_values), dtype=np.int32)
    return Domain(distinct_values, low, lookup)


class Table(dict[str, NDArray[Any]]):
    """Columns of equal length. Integer ones have a domain: given from outside, or that of their own values.

    Tables that share a `Memo` must share the domains of all columns in its keys. A table remembers the keys it was
    asked for and hands them down to its parts, so what many rows have in common is worth a key before they are laid
    out. Columns and keys are never written to.
    """

    __slots__ = ("_codes", "_keys", "_kin", "_own", "domains")

    def __init__(self, columns: Mapping[str, Any], domains: Mapping[str, Domain] | None = None) -> None:
        super().__init__(columns)
        self.domains: Mapping[str, Domain] = {} if domains is None else domains
        self._own: dict[str, Domain] = {}
        self._codes: dict[str, NDArray[np.integer[Any]]] = {}
        self._keys: dict[tuple[str, ...], NDArray[np.intp]] = {}
        self._kin: dict[str, Table] = {}

    def domain(self, name: str) -> Domain:
        known = self.domains.get(name) or self._own.get(name)
        if known is None:
            known = self._own[name] = domain(self[name])
        return known

    def codes(self, name: str) -> NDArray[np.integer[Any]]:
        known = self._codes.get(name)
        if known is None:
            known = self._codes[name] = self.domain(name).codes(self[name])
        return known

    def key(self, names: tuple[str, ...]) -> tuple[NDArray[np.intp], tuple[int, ...]]:
        """(one integer per row for its combination of the named columns, sizes of their domains)."""
        radix = tuple(len(self.domain(name).values) for name in names)
        known = self._keys.get(names)
        if known is None:
            known = self._keys[names] = self._key(names, radix)
        return known, radix

    def _key(self, names: tuple[str, ...], radix: tuple[int, ...]) -> NDArray[np.intp]:
        """The key, continued from that of the most leading columns that is known."""
        start = next((n for n in range(len(names), 0, -1) if names[:n] in self._keys), 0)
        key: Any = self._keys[names[:start]] if start else None
        own = False
        for name, count in zip(names[start:], radix[start:], strict=True):
            if count == 1:
                continue
            if key is None:
                key, own = self.codes(name).astype(np.intp), True
                continue
            if own:
                key *= count
            else:
                key, own = key * count, True
            key += self.codes(name)
        return np.zeros(size(self), dtype=np.intp) if key is None else key

    def of_keys(self, names: Sequence[str], radix: tuple[int, ...], keys: NDArray[np.int64]) -> Table:
        """The combinations that keys of `key` stand for."""
        columns: dict[str, Any] = {}
        rest = keys
        for name, count in zip(reversed(names), reversed(radix), strict=True):
            values = self.domain(name).values
            columns[name] = values[rest % count] if count > 1 else np.full(len(keys), values[0])
            rest = rest // count
        return self._like({name: columns[name] for name in names})

    def having(self, **columns: Any) -> Table:
        """The table with more or other columns."""
        out = Table({**self, **columns}, self.domains)
        out._codes = {n: c for n, c in self._codes.items() if n not in columns}
        out._keys = {names: k for names, k in self._keys.items() if columns.keys().isdisjoint(names)}
        out._own = {n: d for n, d in self._own.items() if n not in columns}
        return out

    def with_values(self, **columns: Any) -> Table:
        """The table with other values of these columns, of the same domains."""
        out = self.having(**columns)
        out._own = dict(self._own)
        return out

    def kin(self, name: str, make: Callable[[], Table]) -> Table:
        """A table made of this one, when first asked for; later the same with the keys it knows by then."""
        if name not in self._kin:
            self._kin[name] = make()
        return self._kin[name]

    def under(self, **domains: Domain) -> Table:
        """The table with other domains for columns that it is still to get."""
        out = Table(self, {**self.domains, **domains})
        out._codes, out._keys, out._own = self._codes, self._keys, self._own
        return out

    def settled(self, names: Sequence[str], also: NDArray[np.int64] | None = None) -> Table:
        """The table with the domains of these columns fixed now, so that its parts share them.

        also: values that the columns will have besides.
        """
        for name in names:
            if also is not None and name not in self.domains:
                self._own[name] = domain(np.concatenate([self[name], also]))
            self.domain(name)
        return self

    def take(self, rows: Rows) -> Table:
        """The given rows."""
        out = self._like({name: column[rows] for name, column in self.items()})
        out._keys = {names: key[rows] for names, key in self._keys.items()}
        return out

    def of(self, names: Sequence[str], rows: Rows) -> Table:
        """Some columns of the given rows."""
        return self._like({name: self[name][rows] for name in names})

    def _like(self, columns: Mapping[str, Any]) -> Table:
        """Some of this table's values: its domains hold for them too."""
        out = Table(columns, self.domains)
        out._own = dict(self._own)
        return out


def size(table: Mapping[str, Any]) -> int:
    """Rows of the table."""
    return len(next(iter(table.values())))


def uniform(column: NDArray[Any]) -> Any:
    """The one value of a column, or the column where it has several."""
    first = column[:1]
    return first[0] if len(column) and (column == first).all() else column


def unique(table: Table, names: tuple[str, ...]) -> Table:
    """The distinct combinations of the named columns."""
    key, radix = table.key(names)
    return table.of_keys(
        names, radix, np.flatnonzero(_seen(key, radix)) if _dense(key, radix) else sorted_distinct(key)
    )


def distinct(table: Table, names: tuple[str, ...]) -> tuple[Table, NDArray[np.intp]]:
    """(distinct combinations of the named columns, index of its combination for every row)."""
    key, radix = table.key(names)
    if not _dense(key, radix):
        keys = sorted_distinct(key)
        return table.of_keys(names, radix, keys), np.searchsorted(keys, key)
    seen = _seen(key, radix)
    number = np.cumsum(seen) - 1
    return table.of_keys(names, radix, np.flatnonzero(seen)), number[key]


def _dense(key: NDArray[np.intp], radix: tuple[int, ...]) -> bool:
    return math.prod(radix) <= DENSE * len(key)


def _seen(key: NDArray[np.intp], radix: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which keys occur."""
    seen = np.zeros(math.prod(radix), dtype=bool)
    seen[key] = True
    return seen


def through(table: Table, name: str, formula: Callable[[NDArray[np.int64]], Any]) -> Any:
    """A formula of one column that has few values: evaluated once for each; one number where there is but one."""
    values = table.domain(name).values
    results = formula(values)
    return results[0] if len(values) == 1 else results[table.codes(name)]


def by_values(table: Table, names: tuple[str, ...], price: Callable[[dict[str, int], Table], Columns]) -> Columns:
    """Call `price(values, sub_table)` for each combination of the named columns and join the results.

    For columns that choose constants rather than enter formulas (dtypes, KV layout).
    """
    combined, index = distinct(table, names)
    if size(combined) == 1:
        return price({n: int(combined[n][0]) for n in names}, table)
    out: Columns = {}
    for i in range(size(combined)):
        rows = np.flatnonzero(index == i)
        for name, column in price({n: int(combined[n][i]) for n in names}, table.take(rows)).items():
            out.setdefault(name, np.zeros(len(index)))[rows] = column
    return out
