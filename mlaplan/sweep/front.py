"""The Pareto front among the best plans of a sweep: which rows no other of the same question beats.

Rows that ask the same but for devices and load are compared, by tok/s/chip and tok/s/user. Two numbers of each row are
kept, so that a file of millions of rows needs no more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlaplan import ranking
from mlaplan.sweep.formats import Form

LOAD = ("devices", "concurrency", "rate")
FIGURES = ("tok_s_chip", "tok_s_user")


def of_parts(form: Form, parts: Iterable[Path], asked: Sequence[str]) -> Iterator[bool]:
    """Whether each row lies on the front; asked: the columns of what is asked."""
    names = [name for name in asked if name not in LOAD]
    groups: dict[tuple[Any, ...], int] = {}
    group, x, y = array("q"), array("d"), array("d")
    for part in parts:
        for *same, chip, user in form.cells(part, (*names, *FIGURES)):
            group.append(groups.setdefault(tuple(same), len(groups)))
            x.append(_number(chip, -1.0))  # no plan
            y.append(_number(user, 0.0))  # a single token has no rate
    return iter(flags(np.asarray(group), np.asarray(x), np.asarray(y)).tolist())


def _number(value: Any, nothing: float) -> float:
    return nothing if value in (None, "") else float(value)


def flags(group: Any, x: Any, y: Any) -> Any:
    """On the front of its group, per row; rows without a plan (x below 0) never are."""
    out = np.zeros(len(group), dtype=bool)
    order = np.argsort(group, kind="stable")
    ends = np.flatnonzero(np.diff(group[order])) + 1
    for rows in np.split(order, ends):
        rows = rows[x[rows] >= 0]
        out[rows[ranking.pareto(x[rows], y[rows])]] = True
    return out
