"""Measured times of one kernel: shapes, seconds, and what was cleaned away.

Published tables replay one buffer in a loop and keep the mean, so they hold stalls (single rows up to 225 times
too slow), repeated keys, calls bound by the host and calls served from the cache. Each is dropped with a count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]

# a call slower than this many times a larger one was disturbed; libraries of products and collectives switch
# kernels by size, which makes a smaller call up to twice as slow as a larger one for good
SPIKE = 1.5
SPIKE_OF_LIBRARIES = 3.0
HOST_BOUND_S = 30e-6  # a product whose fastest call takes this long was timed with its host
FEWEST_KNOWN_S = 100


@dataclass(frozen=True, slots=True)
class Rows:
    """Measurements of one kernel in one dtype; `columns` are its shapes, all of one length.

    `ids` number the rows, and `calls` says of every line of the table they come from which row it went into.
    """

    op: str
    dtype: str
    columns: dict[str, Array]
    seconds: Array
    source: str
    dropped: dict[str, int] = field(default_factory=dict)
    ids: NDArray[np.int64] | None = None
    calls: pd.Series | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def for_fit(self) -> NDArray[np.bool_]:
        """The half that fits may use; the other half scores them. Fixed by the order of the shapes."""
        return np.random.default_rng(0).random(len(self)) < 0.5

    def take(self, mask: NDArray[np.bool_], reason: str | None = None) -> Rows:
        """The rows of the mask; with a reason the others count as dropped."""
        dropped = dict(self.dropped)
        if reason is not None and not mask.all():
            dropped[reason] = dropped.get(reason, 0) + int((~mask).sum())
        columns = {n: c[mask] for n, c in self.columns.items()}
        ids = None if self.ids is None else self.ids[mask]
        return replace(self, columns=columns, seconds=self.seconds[mask], dropped=dropped, ids=ids)

    @property
    def dropped_count(self) -> int:
        return sum(self.dropped.values())


def gathered(op: str, dtype: str, frame: pd.DataFrame, seconds: pd.Series, source: str) -> Rows:
    """Rows from a table: sorted by shape, repeated shapes as their median."""
    names = list(frame.columns)
    grouped = frame.astype(float).assign(seconds=seconds.astype(float)).groupby(names, as_index=False)
    merged, calls = grouped.seconds.median(), grouped.ngroup()
    repeated = len(frame) - len(merged)
    columns = {name: merged[name].to_numpy(float) for name in names}
    dropped = {"repeated shapes": repeated} if repeated else {}
    ids = np.arange(len(merged), dtype=np.int64)
    return Rows(op, dtype, columns, merged["seconds"].to_numpy(float), source, dropped, ids, calls)


def without_spikes(rows: Rows, axes: tuple[str, ...], factor: float = SPIKE) -> Rows:
    """Without calls that took far longer than one of the same kernel that does more along one of the axes."""
    frame = pd.DataFrame({**rows.columns, "seconds": rows.seconds})
    good = np.ones(len(rows), dtype=bool)
    for axis in axes:
        others = [name for name in rows.columns if name != axis]
        ordered = frame.sort_values([*others, axis], ascending=False, kind="stable")
        group = ordered.groupby(others, sort=False).seconds if others else ordered.seconds
        least = group.cummin().reindex(frame.index).to_numpy()
        good &= rows.seconds <= factor * least
    return rows.take(good, "spikes")


def without_impossible(rows: Rows, nbytes: Array, bandwidth: float) -> Rows:
    """Without calls that moved their bytes faster than the memory can: they were served from the cache."""
    return rows.take(nbytes / rows.seconds <= bandwidth, "served from the cache")


def host_bound(rows: Rows) -> bool:
    """Whether even the smallest of many calls takes as long as launching from the host does."""
    return len(rows) >= FEWEST_KNOWN_S and float(rows.seconds.min()) > HOST_BOUND_S
