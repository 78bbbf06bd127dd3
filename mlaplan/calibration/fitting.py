"""Least squares of a kernel's constants to measured times: in log space, robust, deterministic, and honest.

The residual of a row is log(predicted / measured); a soft L1 loss keeps single bad rows from pulling. One half of
the rows is fitted, the other half gives the reported error. A constant that the rows do not identify (its standard
error exceeds half of it, or it can move against others without changing a row) is held at the chip's own value, one at
its bound stays there, and both are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.calibration.forms import Form, Free
from mlaplan.calibration.rows import Array, Rows
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.fit import KernelFit

SOFTNESS = 0.1  # relative error beyond which a row counts linearly
UNCERTAIN = 0.5  # standard error over value above which a constant is not identified
FEWEST = 4  # measurements of one kernel
ROWS_PER_CONSTANT = 3
F_LIMIT = 4.0
HALVES_FROM = 40  # rows; below this every row is fitted and each is predicted by a fit without it
MOST_ROWS = 12_000  # of the half that is fitted; more change nothing
STILL = 1e-9  # length of the column of a constant that changes no row
NO_DIRECTION = 1e-5  # of the largest singular value: numerical derivatives are no better
SHARE_OF_DIRECTION = 0.1  # of a direction that changes nothing, from where a constant moves along it
NOTHING = 1e-4  # of its start: a constant that small does nothing
DIGITS = 4  # of a constant as it is written


class Errors(NamedTuple):
    """Relative errors of predicted times."""

    n: int
    mape: float
    median: float
    p90: float
    worst: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The constants of one kernel, rounded as they are written, and what is known of them."""

    op: str
    dtype: str
    values: dict[str, float]
    held: tuple[str, ...]
    errors: Errors
    worst_where: str
    rows: int
    dropped: int
    source: str


def errors_of(predicted: Array, measured: Array) -> Errors:
    """Mean, median, 90th percentile and largest of |predicted / measured - 1|."""
    e = np.abs(predicted / measured - 1.0)
    return Errors(len(e), float(e.mean()), float(np.median(e)), float(np.quantile(e, 0.9)), float(e.max()))


def constants(values: dict[str, float]) -> Any:
    """Something with the attributes of a KernelFit: plain defaults, and these values."""
    from mlaplan.specs.fit import KernelFit

    plain = {name: f.default for name, f in KernelFit.model_fields.items() if not f.required}
    return SimpleNamespace(**{**plain, **values})


def fit(form: Form, rows: Rows, chip: Chip, known: KernelFit) -> Fitted:
    """Calibrate one kernel; `known` has the values to hold where the rows say nothing."""
    if len(rows) < FEWEST:
        raise MlaplanError(
            f"{form.op} {rows.dtype}: {len(rows)} usable measurement{'s' * (len(rows) != 1)}; "
            f"expected at least {FEWEST}, better {ROWS_PER_CONSTANT * len(form.free)}"
        )
    small = len(rows) < HALVES_FROM
    train = np.ones(len(rows), dtype=bool) if small else rows.for_fit
    count = max(len(rows) // ROWS_PER_CONSTANT, 1) if small else len(form.free)
    free, held = form.free[:count], [f.name for f in form.free[count:]]
    base = held_values(form, known, plain=small)
    values, more = _identified(form, rows.take(_thinned(train)), chip, base, free)
    if small:
        values, more = _needed(form, rows, chip, base, values, more, free)
        predicted = np.concatenate([_left_out(form, rows, i, chip, base, values, free) for i in range(len(rows))])
        scored = rows
    else:
        scored = rows.take(~train)
        predicted = form.seconds(constants(values), scored, chip)
    errors = errors_of(predicted, scored.seconds)
    return Fitted(
        form.op, rows.dtype, values, (*more, *held), errors, worst_regime(predicted, scored, form.columns),
        len(rows), rows.dropped_count, rows.source,
    )  # fmt: skip


def held_values(form: Form, known: KernelFit, plain: bool = False) -> dict[str, float]:
    """Values of all constants before the fit: the chip's own; `plain` keeps the chip's formula as it is, too."""
    base = {name: getattr(known, name) for name in (*form.names(), *form.fixed)}
    own = {"compute": known.compute, "memory": known.memory, "floor": known.floor, "norm": min(known.norm, 20.0)}
    return {**base, **own, **({} if plain else form.fixed)}


def _thinned(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """At most MOST_ROWS of the rows, evenly taken."""
    kept = np.flatnonzero(mask)
    step = int(np.ceil(len(kept) / MOST_ROWS))
    out = np.zeros(len(mask), dtype=bool)
    out[kept[:: max(step, 1)]] = True
    return out


def _identified(
    form: Form, rows: Rows, chip: Chip, base: dict[str, float], free: Sequence[Free]
) -> tuple[dict[str, float], list[str]]:
    """Solve, hold the last of the constants that are uncertain, and solve again until none is."""
    held: list[str] = []
    free = list(free)
    while True:
        values, spread = _solve(form, rows, chip, base, free)
        doubtful = [f for f in free if spread[f.name] > UNCERTAIN * _scale(f, values[f.name])]
        if not doubtful or len(free) == 1:
            break
        worst = doubtful[-1]  # the one that the form could best do without
        held.append(worst.name)
        free.remove(worst)
    at_bound = [f"{f.name} at its bound" for f in free if _is_bound(f, values[f.name])]
    solved = {f.name for f in free}
    return {n: _rounded(v) if n in solved else v for n, v in values.items()}, [*held, *at_bound]


def _needed(
    form: Form, rows: Rows, chip: Chip, base: dict[str, float], values: dict[str, float], held: list[str],
    free: Sequence[Free],
) -> tuple[dict[str, float], list[str]]:  # fmt: skip
    """Hold what few rows can do without: a constant that does not lower the squared error by a factor of
    1 + 4 / (rows - constants), an F test at about 5 %."""

    def squares(v: dict[str, float]) -> float:
        return float(np.sum(np.log(form.seconds(constants(v), rows, chip) / rows.seconds) ** 2))

    still = [f for f in free if f.name not in held]
    for f in reversed(still[1:]):
        fewer = [g for g in still if g is not f]
        simpler, _ = _solve(form, rows, chip, base, fewer)
        if squares(simpler) <= squares(values) * (1.0 + F_LIMIT / max(len(rows) - len(still), 1)):
            values = {**simpler, **{g.name: _rounded(simpler[g.name]) for g in fewer}}
            still, held = fewer, [f.name, *held]
    return values, held


def _scale(f: Free, value: float) -> float:
    return max(abs(value), 0.05 * f.start)


def _is_bound(f: Free, value: float) -> bool:
    near = 1e-3 * (f.high - f.low)
    return value >= f.high * (1 - 1e-3) or (f.low > 0 and value <= f.low + near)


def _solve(
    form: Form, rows: Rows, chip: Chip, base: dict[str, float], free: Sequence[Free]
) -> tuple[dict[str, float], dict[str, float]]:
    """(values, standard errors) of the free constants; the search is in units of their starts."""
    from scipy.optimize import least_squares

    unit = np.array([f.start for f in free])
    low, high = (np.array([getattr(f, side) for f in free]) / unit for side in ("low", "high"))
    log_measured = np.log(rows.seconds)

    def residuals(x: Array) -> Array:
        here = {**base, **{f.name: v for f, v in zip(free, x * unit, strict=True)}}
        return np.log(form.seconds(constants(here), rows, chip)) - log_measured

    start = np.clip(np.ones(len(free)), low, high)
    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=SOFTNESS, max_nfev=200)
    x = np.where(found.x < NOTHING, 0.0, found.x)
    values = {**base, **{f.name: float(v) for f, v in zip(free, x * unit, strict=True)}}
    return values, dict(zip([f.name for f in free], _standard_errors(found.jac, found.fun, low, high, found.x) * unit,
                            strict=True))  # fmt: skip


def _standard_errors(jacobian: Array, residual: Array, low: Array, high: Array, x: Array) -> Array:
    """Square roots of the diagonal of s^2 (J'J)^-1, without constants at their bounds, which are known."""
    out = np.zeros(len(x))
    inside = (x > low + 1e-6 * np.maximum(np.abs(low), 1.0)) & (x < high - 1e-6 * np.maximum(np.abs(high), 1.0))
    if not inside.any():
        return out
    j = jacobian[:, inside]
    left = max(len(residual) - j.shape[1], 1)
    covariance = np.linalg.pinv(j.T @ j) * float(residual @ residual) / left
    out[inside] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    out[inside] = np.where(_free_to_move(j), np.inf, out[inside])
    # one of two that move against each other may be at nothing, where a search left it by chance
    both = inside | ((low == 0.0) & (x < NOTHING) & (np.linalg.norm(jacobian, axis=0) > STILL))
    together = np.zeros(len(x), dtype=bool)
    together[both] = _free_to_move(jacobian[:, both])
    return np.where(together, np.inf, out)


def _free_to_move(jacobian: Array) -> NDArray[np.bool_]:
    """Constants that can change without changing any row, alone or against each other: no error bar says how far.

    Two that enter all rows in one proportion (a floor and a time for each of the same number of experts) are such.
    """
    lengths = np.linalg.norm(jacobian, axis=0)
    still = lengths <= STILL
    _, sizes, directions = np.linalg.svd(jacobian / np.where(still, 1.0, lengths), full_matrices=False)
    nothing = directions[sizes <= NO_DIRECTION * sizes.max(initial=0.0)]
    return still | (np.abs(nothing) > SHARE_OF_DIRECTION).any(axis=0)


def _left_out(
    form: Form, rows: Rows, i: int, chip: Chip, base: dict[str, float], values: dict[str, float], free: Sequence[Free]
) -> Array:
    """Row i as predicted by the constants that the other rows give."""
    others = np.arange(len(rows)) != i
    still_free = [f for f in free if values[f.name] != base[f.name]] or list(free[:1])
    found, _ = _solve(form, rows.take(others), chip, base, still_free)
    return form.seconds(constants(found), rows.take(~others), chip)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def worst_regime(predicted: Array, rows: Rows, names: Sequence[str]) -> str:
    """Where the mean error is largest: the octave of one shape that is worst, with its bias."""
    error = predicted / rows.seconds - 1.0
    worst: tuple[float, str] = (0.0, "")
    for name in names:
        column = rows.columns.get(name)
        if column is None:
            continue
        octave = np.floor(np.log2(np.maximum(column, 1.0)) / 2.0)
        for o in np.unique(octave):
            here = octave == o
            if here.sum() < max(3, 0.03 * len(rows)):
                continue
            mean = float(np.abs(error[here]).mean())
            if mean > worst[0]:
                side = "slow" if error[here].mean() > 0 else "fast"
                worst = (mean, f"{name} {4**o:.0f}..{4 ** (o + 1) - 1:.0f}: {100 * mean:.0f} %, predicted too {side}")
    return worst[1]
