"""Order of plans: by an objective, the Pareto front, and the best row of each shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

KNOBS = ("pp", "dp", "dcp", "cp", "kv_layout", "two_batch_overlap", "tp", "ep")
LIKENESS = 0.01  # scores closer than this are alike, and the simpler plan goes first


def score(columns: Mapping[str, NDArray[Any]], objective: str, osl: int) -> NDArray[np.float64]:
    """Higher is better. latency: -(TTFT + (OSL - 1) TPOT); throughput, cost and pareto: tok/s per chip used.

    With one price per chip, dollars per token are the inverse of tok/s/chip; cost may use fewer chips.
    """
    if objective == "latency":
        return -latency(columns, osl)
    return np.asarray(columns["tok_s_chip"], dtype=np.float64)


def latency(columns: Mapping[str, NDArray[Any]], osl: int) -> NDArray[np.float64]:
    """TTFT + (OSL - 1) TPOT, which decides where scores are equal: at a request rate those of all that keep it. [s]"""
    return np.asarray(columns["ttft_s"] + (osl - 1) * np.nan_to_num(columns["tpot_s"]))


def best_of_each(group: NDArray[np.intp], value: NDArray[np.float64], tie: NDArray[np.float64]) -> NDArray[np.intp]:
    """Row numbers with the highest value of each group, groups rising; of equal values the lowest tie, then row.

    Only the rows that hold their group's highest value are sorted.
    """
    highest = np.full(int(group.max(initial=-1)) + 1, -np.inf)
    np.fmax.at(highest, group, value)
    rows = np.flatnonzero(value == highest[group])
    rows = rows[np.lexsort((tie[rows], group[rows]))]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = group[rows][1:] != group[rows][:-1]
    return rows[first]


def pareto(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows that no other row beats in both x and y (more is better), by falling x; of exact ties the first."""
    order = np.lexsort((np.arange(len(x)), -y, -x))
    best = np.maximum.accumulate(y[order])
    rising = np.ones(len(order), dtype=bool)
    rising[1:] = best[1:] > best[:-1]
    return order[rising]


def complexity(row: dict[str, int]) -> int:
    """How many knobs a strategy turns: degrees above 1 count once, a partial expert split twice."""
    knobs = ("pp", "dp", "dcp", "cp")
    n = sum(row[k] > 1 for k in knobs) + (row["kv_layout"] == 1) + row["two_batch_overlap"]
    width = row["tp"] * row["dp"]
    return n + (2 if 1 < row["ep"] < width else 1 if row["ep"] > 1 else 0)


def foremost(values: NDArray[np.float64], knobs: NDArray[np.int64]) -> int:
    """The first of `in_order`."""
    top = values.max()
    near = np.flatnonzero(values >= top - LIKENESS * abs(top))
    return int(near[np.lexsort((near, -values[near], knobs[near]))[0]])


def in_order(values: NDArray[np.float64], knobs: NDArray[np.int64]) -> NDArray[np.intp]:
    """Best first; among plans within `LIKENESS` of the best of their run, the simpler first."""
    order = np.argsort(-values, kind="stable")
    out: list[int] = []
    rest = list(order)
    while rest:
        top = values[rest[0]]
        near = [i for i in rest if values[i] >= top - LIKENESS * abs(top)]
        near.sort(key=lambda i: (knobs[i], -values[i]))
        out.append(near[0])
        rest.remove(near[0])
    return np.array(out, dtype=np.intp)
