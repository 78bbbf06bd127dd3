"""How well the fits of a chip and an engine predict the half of the measured rows that no fit has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.calibration import fitting, forms, links, tables
from mlaplan.calibration.rows import Array, Rows
from mlaplan.calibration.run import collective_rows, kernel_rows, usable

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


def score_kernels(chip: str, engine: str) -> list[Score]:
    """Every kernel and collective table of an engine, held-out rows under the fits that a plan would use.

    Sets: the operator's name; `mla_decode context >= 1024`; `mla_module`, a sum of parts that nothing was fitted to;
    `collectives`, the four operations of NCCL pooled.
    """
    from mlaplan.specs.lookup import load_chip

    spec = load_chip(chip, engine=engine)
    return [*_kernels(spec, engine), *_modules(spec, engine), *_collectives(spec, engine)]


def held_out(rows: Rows) -> Rows:
    """The half that fits do not see."""
    return rows.take(~rows.for_fit)


def _score(name: str, spec: Chip, engine: str, dtype: str, predicted: Array, measured: Array) -> Score:
    return Score(name, spec.name, engine, dtype, *fitting.errors_of(predicted, measured))


def _kernels(spec: Chip, engine: str) -> list[Score]:
    out = []
    for op, dtype, rows, _ in kernel_rows(spec.name, engine):
        if rows is None:
            continue
        if op == "kv_cast":
            if dtype not in spec.efficiency.get("kv_cast", {}):
                continue
            rows = forms.cast_rows(rows, spec.kernel("mla_decode", "bf16"), spec)
        rows = held_out(usable(op, rows, spec))
        predicted = forms.FORMS[op].seconds(spec.kernel(op, dtype), rows, spec)
        name = "mla_decode" if op == "kv_cast" else op
        out.append(_score(name, spec, engine, dtype, predicted, rows.seconds))
        if name == "mla_decode":
            long = rows.columns["context"] >= LONG
            label = f"mla_decode context >= {LONG}"
            out.append(_score(label, spec, engine, dtype, predicted[long], rows.seconds[long]))
    return out


def _modules(spec: Chip, engine: str) -> list[Score]:
    from mlaplan.calibration.module import module_s

    out = []
    for kv in ("bf16", "fp8"):
        for weights in ("bf16", "fp8_block"):
            rows = tables.mla_module(spec.name, engine, kv, weights)
            if rows is not None:
                predicted = module_s(spec, rows, kv, weights)
                out.append(_score("mla_module", spec, engine, rows.dtype, predicted, rows.seconds))
    return out


def _collectives(spec: Chip, engine: str) -> list[Score]:
    out, pooled = [], []
    for rows, wide in collective_rows(spec.name, engine):
        link = spec.scale_out if wide else spec.scale_up
        fit = link.collectives.get(rows.op) if link is not None else None
        if fit is None:
            continue
        train = links.for_fit(rows)
        rows = rows.take(~train) if (~train).any() else rows
        predicted = links.seconds(fit, rows)
        name = f"{rows.op} between nodes" if wide else rows.op
        out.append(_score(name, spec, engine, rows.dtype, predicted, rows.seconds))
        if rows.op in FOUR and not wide:
            pooled.append((predicted, rows.seconds))
    if pooled:
        predicted, measured = (np.concatenate(side) for side in zip(*pooled, strict=True))
        out.append(_score("collectives", spec, engine, "bf16", predicted, measured))
    return out
