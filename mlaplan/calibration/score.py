"""How well the fits of a chip and an engine predict the half of the measured rows that no fit has seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.calibration import fitting, forms, links, tables
from mlaplan.calibration.rows import Array, Rows
from mlaplan.calibration.run import Modes, collective_rows, kernel_rows

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip

LONG = 1024  # tokens of context from which decode is scored apart
FOUR = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


class Score(NamedTuple):
    """Errors of one table; fractions of the measured time."""

    set: str
    chip: str
    engine: str
    dtype: str
    n: int
    mape: float
    median: float
    p90: float
    worst: float


def score_kernels(chip: str, engine: str, modes: Modes) -> list[Score]:
    """Every kernel and collective table of an engine, held-out rows under the fits that a plan would use.

    Sets: the operator's name; `mla_decode context >= 1024`; `mla_module`, a sum of parts that nothing was fitted to;
    `collectives`, the four operations of NCCL pooled.
    """
    from mlaplan.specs.lookup import load_chip

    spec = load_chip(chip, engine=engine)
    return [*_kernel_scores(spec, engine, modes), *_module_scores(spec, engine), *_collective_scores(spec, engine)]


def held_out(rows: Rows) -> Rows:
    """The half that fits do not see."""
    return rows.take(~rows.for_fit)


class Predicted(NamedTuple):
    """Held-out rows of one table beside the times that a plan would use; `kind` is the rows' operator or a whole."""

    kind: str
    dtype: str
    rows: Rows
    seconds: Array


def predictions(spec: Chip, engine: str, modes: Modes) -> Iterator[Predicted]:
    """Every kernel, module and collective table of an engine, on the rows that no fit has seen.

    A module was fitted to nothing: all its rows are held out.
    """
    yield from _kernels(spec, engine, modes)
    yield from _modules(spec, engine)
    for rows, _, seconds in _collectives(spec, engine):
        yield Predicted(rows.op, rows.dtype, rows, seconds)


def _score(name: str, spec: Chip, engine: str, dtype: str, predicted: Array, measured: Array) -> Score:
    return Score(name, spec.name, engine, dtype, *fitting.errors_of(predicted, measured))


def _kernels(spec: Chip, engine: str, modes: Modes) -> Iterator[Predicted]:
    for op, dtype, rows, _ in kernel_rows(spec, engine, modes):
        if rows is None:
            continue
        if op == "kv_cast":
            if dtype not in spec.efficiency.get("kv_cast", {}):
                continue
            rows = forms.cast_rows(rows, spec.kernel("mla_decode", "bf16"), spec)
        rows = held_out(rows)
        predicted = forms.FORMS[op].seconds(spec.kernel(op, dtype), rows, spec)
        yield Predicted("mla_decode" if op == "kv_cast" else op, dtype, rows, predicted)


def _kernel_scores(spec: Chip, engine: str, modes: Modes) -> Iterator[Score]:
    for kind, dtype, rows, predicted in _kernels(spec, engine, modes):
        yield _score(kind, spec, engine, dtype, predicted, rows.seconds)
        if kind == "mla_decode":
            long = rows.columns["context"] >= LONG
            label = f"mla_decode context >= {LONG}"
            yield _score(label, spec, engine, dtype, predicted[long], rows.seconds[long])


def _modules(spec: Chip, engine: str) -> Iterator[Predicted]:
    from mlaplan.calibration.module import module_s

    for kv in ("bf16", "fp8"):
        for weights in ("bf16", "fp8_block"):
            rows = tables.mla_module(spec.name, engine, kv, weights)
            if rows is not None:
                yield Predicted("mla_module", rows.dtype, rows, module_s(spec, rows, kv, weights))


def _module_scores(spec: Chip, engine: str) -> Iterator[Score]:
    for kind, dtype, rows, predicted in _modules(spec, engine):
        yield _score(kind, spec, engine, dtype, predicted, rows.seconds)


def _collectives(spec: Chip, engine: str) -> Iterator[tuple[Rows, bool, Array]]:
    """(held-out rows, whether between nodes, predicted seconds)."""
    for rows, wide in collective_rows(spec.name, engine):
        link = spec.scale_out if wide else spec.scale_up
        fit = link.collectives.get(rows.op) if link is not None else None
        if fit is None:
            continue
        train = links.for_fit(rows)
        rows = rows.take(~train) if (~train).any() else rows
        yield rows, wide, links.seconds(fit, rows)


def _collective_scores(spec: Chip, engine: str) -> Iterator[Score]:
    pooled = []
    for rows, wide, predicted in _collectives(spec, engine):
        name = f"{rows.op} between nodes" if wide else rows.op
        yield _score(name, spec, engine, rows.dtype, predicted, rows.seconds)
        if rows.op in FOUR and not wide:
            pooled.append((predicted, rows.seconds))
    if pooled:
        predicted, measured = (np.concatenate(side) for side in zip(*pooled, strict=True))
        yield _score("collectives", spec, engine, "bf16", predicted, measured)
