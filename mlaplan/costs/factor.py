"""Pricing on distinct rows: a quantity that depends on a few columns is computed once per combination of them.

Strategies are flat integer columns. Of the 14 columns an attention operator depends on five or six, so a million
rows hold some thousand distinct attention problems. A `Memo` numbers the combinations by the columns' codes,
prices those it has not seen, and spreads the result over the rows: the same formulas, the same floats, a fraction
of the work, and blocks of rows small enough for the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.table import Columns, Rows, Table, sorted_distinct

LARGEST_KEY = 1 << 24  # combinations that a memo numbers directly; beyond it each call finds its own


class Spread(Mapping[str, NDArray[Any]]):
    """Prices of distinct combinations, each column spread over the rows when it is first asked for."""

    __slots__ = ("_done", "_sources")

    def __init__(self, sources: dict[str, tuple[NDArray[Any], NDArray[np.intp]]]) -> None:
        self._sources = sources
        self._done: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        known = self._done.get(name)
        if known is None:
            column, slot = self._sources[name]
            known = self._done[name] = column[slot]
        return known

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, rows: Rows) -> Spread:
        """The prices of the given rows, each column spread over them when it is first asked for."""
        slots: dict[int, NDArray[np.intp]] = {}  # columns of one kind share theirs
        taken = {}
        for name, (column, slot) in self._sources.items():
            if id(slot) not in slots:
                slots[id(slot)] = slot[rows]
            taken[name] = column, slots[id(slot)]
        return Spread(taken)

    def renamed(self, beginnings: Mapping[str, str]) -> Spread:
        """The columns whose name has one of these beginnings, with another one in its place."""
        return Spread(
            {
                new + name.removeprefix(old): source
                for old, new in beginnings.items()
                for name, source in self._sources.items()
                if name.startswith(old)
            }
        )

    def __or__(self, other: Spread) -> Spread:
        """Both; of a column in both, that of the other."""
        return Spread(self._sources | other._sources)


class _Known:
    """Priced combinations of one kind: the slot of each key, 0 where it is not priced yet, and the prices."""

    __slots__ = ("columns", "count", "slots")

    def __init__(self, keys: int) -> None:
        self.slots = np.zeros(keys, dtype=np.int32)  # of many keys, few are ever touched
        self.columns: Columns = {}
        self.count = 1

    def learn(
        self, wanted: NDArray[np.bool_], table: Table, names: tuple[str, ...], price: Callable[[Table], Any]
    ) -> None:
        """Prices the wanted combinations that are not priced yet. table: one that has their domains."""
        keys = np.flatnonzero(wanted)
        keys = keys[self.slots[keys] == 0]
        if not len(keys):
            return
        priced = price(table.of_keys(names, table.key(names)[1], keys))
        self.slots[keys] = np.arange(self.count, self.count + len(keys), dtype=np.int32)
        self.count += len(keys)
        nothing = np.full(1, np.nan)  # in slot 0
        for name, column in priced.items():
            self.columns[name] = np.concatenate([self.columns.get(name, nothing), column])


class Memo:
    """Prices of combinations seen so far, for tables that share their domains."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def without(self, kind: str) -> Memo:
        """A memo of the same prices but the kinds whose names begin so, which it learns anew."""
        other = Memo()
        other._known = {name: known for name, known in self._known.items() if not name.startswith(kind)}
        return other

    def only(self, kinds: tuple[str, ...]) -> Memo:
        """A memo of the prices of the kinds whose names begin with one of these."""
        other = Memo()
        other._known = {name: known for name, known in self._known.items() if name.startswith(kinds)}
        return other

    def beside(self, other: Memo) -> Memo:
        """A memo of the prices of both; where both know a kind, those of the other."""
        both = Memo()
        both._known = {**self._known, **other._known}
        return both

    def factored(
        self, kind: str, table: Table, names: tuple[str, ...], price: Callable[[Table], Mapping[str, Any]]
    ) -> Spread:
        """`price` of the distinct combinations of the named columns, spread over all rows.

        `kind` names what is priced; one kind always has the same columns and the same formula.
        """
        key, radix = table.key(names)
        combinations = math.prod(radix)
        if combinations > LARGEST_KEY:
            return self._unkept(table, names, key, radix, price)
        known = self._of(kind, combinations)
        slot = known.slots[key]
        if not slot.all():
            self._learn(known, table, names, key[slot == 0], price)
            slot = known.slots[key]
        at = slot.astype(np.intp)  # once, not at every column
        return Spread({name: (column, at) for name, column in known.columns.items()})

    def _of(self, kind: str, combinations: int) -> _Known:
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = _Known(combinations)
        return known

    @staticmethod
    def _learn(
        known: _Known, table: Table, names: tuple[str, ...], key: NDArray[np.intp], price: Callable[[Table], Any]
    ) -> None:
        """Prices those of the keys that are not known yet."""
        wanted = np.zeros(len(known.slots), dtype=bool)
        wanted[key] = True
        known.learn(wanted, table, names, price)

    @staticmethod
    def _unkept(
        table: Table, names: tuple[str, ...], key: NDArray[np.intp], radix: tuple[int, ...],
        price: Callable[[Table], Any],
    ) -> Spread:  # fmt: skip
        """Prices of more combinations than are worth a slot each."""
        keys = sorted_distinct(key)
        index = np.searchsorted(keys, key)
        priced = price(table.of_keys(names, radix, keys))
        return Spread({name: (np.asarray(column), index) for name, column in priced.items()})


class Primer(Memo):
    """Collects what tables are made of, spreads nothing over their rows, and prices each kind once at its end."""

    def __init__(self, memo: Memo) -> None:
        self._known = memo._known
        self._wanted: dict[str, tuple[NDArray[np.bool_], Callable[[NDArray[np.bool_]], None]]] = {}

    def factored(
        self, kind: str, table: Table, names: tuple[str, ...], price: Callable[[Table], Mapping[str, Any]]
    ) -> Spread:
        """Nothing; the memo knows the prices afterwards, of no more combinations than it has slots for."""
        key, radix = table.key(names)
        combinations = math.prod(radix)
        if combinations <= LARGEST_KEY:
            if kind not in self._wanted:
                known = self._of(kind, combinations)
                self._wanted[kind] = (
                    np.zeros(combinations, dtype=bool), lambda wanted: known.learn(wanted, table, names, price)
                )  # fmt: skip
            self._wanted[kind][0][key] = True
        return Spread({})

    def __enter__(self) -> Primer:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None:
            for wanted, learn in self._wanted.values():
                learn(wanted)
