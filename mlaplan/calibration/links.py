"""Collectives: alpha, bandwidth and knee of each operation and number of ranks, from times over message sizes.

    t = alpha + (V + sqrt(V K)) / B        V as the cost model counts it

Every other size is fitted, the sizes between give the error; a mean of the two tells nothing of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.calibration.fitting import DIGITS, SOFTNESS, Errors, errors_of
from mlaplan.calibration.rows import Array, Rows
from mlaplan.costs.collectives import fitted_s
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.specs.fit import CollectiveFit

FEWEST = 3  # sizes of one number of ranks
HALVES_FROM = 9
LARGEST_KNEE = 1e9


class LinkFitted(NamedTuple):
    """One operation's table, rounded as it is written, its error and how many rows it comes from."""

    op: str
    ranks: tuple[int, ...]
    alpha: tuple[float, ...]
    bandwidth: tuple[float, ...]
    knee: tuple[float, ...]
    errors: Errors
    rows: int
    dropped: int
    source: str


def volume_op(op: str) -> str:
    """The operation whose volume formula holds: copies of dispatch and combine are counted as they are."""
    return {"dispatch": "send", "combine": "send"}.get(op, "all_reduce" if op.startswith("all_reduce") else op)


def for_fit(rows: Rows) -> NDArray[np.bool_]:
    """Which rows are fitted: every other size of each number of ranks."""
    out = np.zeros(len(rows), dtype=bool)
    for n in np.unique(rows.columns["ranks"]):
        here = np.flatnonzero(rows.columns["ranks"] == n)
        here = here[np.argsort(rows.columns["bytes"][here], kind="stable")]
        out[here[:: 2 if len(here) >= HALVES_FROM else 1]] = True
    return out


def seconds(fit: CollectiveFit | LinkFitted, rows: Rows) -> Array:
    """The cost model's times of the rows."""
    size, ranks = rows.columns["bytes"], rows.columns["ranks"]
    return np.asarray(fitted_s(fit, volume_op(rows.op), size, ranks))  # type: ignore[arg-type]


def fit(rows: Rows, knee: bool = True, bound: float = np.inf) -> LinkFitted:
    """Calibrate one operation; `bound` is the link's own rate, which no bandwidth exceeds."""
    train = for_fit(rows)
    ranks = tuple(int(n) for n in np.unique(rows.columns["ranks"]))
    found = [_one(rows.take(train & (rows.columns["ranks"] == n)), knee, bound) for n in ranks]
    alpha, bandwidth, knees = (tuple(column) for column in zip(*found, strict=True))
    fitted = LinkFitted(
        rows.op, ranks, alpha, bandwidth, knees if any(knees) else (), Errors(0, 0.0, 0.0, 0.0, 0.0), len(rows),
        rows.dropped_count, rows.source,
    )  # fmt: skip
    scored = rows.take(~train) if (~train).any() else rows
    return fitted._replace(errors=errors_of(seconds(fitted, scored), scored.seconds))


def _one(rows: Rows, with_knee: bool, bound: float) -> tuple[float, float, float]:
    """(alpha, bandwidth, knee) of one number of ranks."""
    from scipy.optimize import least_squares

    if len(rows) < FEWEST:
        n = int(rows.columns["ranks"][0]) if len(rows) else 0
        raise MlaplanError(f"{rows.op} of {n} ranks: {len(rows)} message sizes; expected at least {FEWEST}")
    size, log_measured = rows.columns["bytes"], np.log(rows.seconds)
    count = float(rows.columns["ranks"][0])
    largest = int(np.argmax(size))
    rate = min(size[largest] / float(rows.seconds[largest]), 0.9 * bound)
    unit = np.array([float(rows.seconds.min()), rate, 1e6])
    with_knee = with_knee and len(rows) > FEWEST + 1

    def times(x: Array) -> Array:
        one = LinkFitted(rows.op, (int(count),), (x[0],), (x[1],), (x[2],) if with_knee else (), *[None] * 4)  # type: ignore[arg-type]
        return np.asarray(fitted_s(one, volume_op(rows.op), size, np.full(len(size), count)))  # type: ignore[arg-type]

    def residuals(x: Array) -> Array:
        return np.log(times(np.concatenate([x, np.zeros(3 - len(x))]) * unit)) - log_measured

    k = 3 if with_knee else 2
    high = np.array([100.0, min(bound / rate, 100.0), LARGEST_KNEE / unit[2]])[:k]
    start = np.minimum(np.ones(k), 0.999 * high)
    found = least_squares(residuals, start, bounds=(np.full(k, 1e-6), high), loss="soft_l1", f_scale=SOFTNESS)
    x = np.concatenate([found.x, np.zeros(3 - k)]) * unit
    alpha, bandwidth, knee = (float(f"{v:.{DIGITS}g}") for v in x)
    return alpha, bandwidth, knee if knee > 1e3 else 0.0
