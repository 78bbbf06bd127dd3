"""Which tables calibrate which constants of a chip and an engine, and all of them fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.calibration import fitting, forms, links, tables
from mlaplan.calibration.rows import Rows, host_bound, without_impossible

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.fit import KernelFit

KERNELS: tuple[tuple[str, Callable[..., Rows | None], tuple[str, ...]], ...] = (
    ("gemm", tables.gemm, ("bf16", "fp8", "fp8_block", "int8", "int4", "fp4")),
    ("bmm", tables.bmm, ("bf16",)),
    ("grouped_gemm", tables.grouped_gemm, ("bf16", "fp8", "fp8_block", "int4", "fp4")),
    ("mla_decode", tables.mla_decode, ("bf16", "fp8")),
    ("mla_prefill", tables.mla_prefill, ("bf16", "fp8")),
)
PRODUCTS = ("gemm", "bmm")
CORES = ("mla_decode", "mla_prefill")
CAST = "cast_pool"  # how a backend reads a cache: the whole pool is widened first, in the same timed call
FOR_KV_CAST = ("kv_cast", "fp8")
NODES = (2, 4, 8)
LIMIT = 0.30  # a held-out mean error above this says that the form does not hold, and nothing is written

Modes = Mapping[str, str]  # cache dtype -> how the engine's first MLA backend on the chip reads it; none: not at all


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Everything that the tables of one chip and engine gave, and what they could not give."""

    chip: str
    engine: str
    kernels: list[fitting.Fitted] = field(default_factory=list)
    scale_up: list[links.LinkFitted] = field(default_factory=list)
    scale_out: list[links.LinkFitted] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def kernel_rows(
    chip: Chip, engine: str, modes: Modes, by: tables.Source = tables.INSTALLED
) -> Iterator[tuple[str, str, Rows | None, str]]:
    """(op, dtype, usable rows or None, why none) of every kernel table of an engine."""
    for op, read, dtypes in KERNELS:
        for dtype in dtypes:
            rows = read(chip.name, engine, dtype, by=by)
            if rows is None:
                continue
            why = _unusable(op, dtype, rows, modes)
            if why:
                yield op, dtype, None, f"{op} {dtype}: {why}"
            elif op == "mla_decode" and modes[dtype] == CAST:
                yield FOR_KV_CAST[0], dtype, usable(op, rows, chip), ""
            else:
                yield op, dtype, usable(op, rows, chip), ""


def _unusable(op: str, dtype: str, rows: Rows, modes: Modes) -> str:
    """Why a table says nothing of an engine's kernels, if so."""
    if op in PRODUCTS and host_bound(rows):
        return f"bound by the host, its fastest call takes {1e6 * float(rows.seconds.min()):.0f} us"
    if op in CORES and dtype not in modes:
        return "the engine's profile has no MLA backend for such a cache on this chip"
    return ""


def usable(op: str, rows: Rows, chip: Chip) -> Rows:
    """Without expert calls that were served from the cache: the others' tables show no such thing."""
    if op != "grouped_gemm":
        return rows
    c = rows.columns
    weights = c["active"] * 3.0 * c["hidden"] * c["inner"] * forms.OPERAND_BYTES[rows.dtype]
    return without_impossible(rows, weights, float(chip.memory.bandwidth))


def collective_rows(chip: str, engine: str, by: tables.Source = tables.INSTALLED) -> Iterator[tuple[Rows, bool]]:
    """(rows, whether between nodes) of every collective that an engine uses."""
    for op in tables.COLLECTIVES.values():
        if (rows := tables.collective(chip, op)) is not None:
            yield rows, False
    for eager in (False, True):
        if (rows := tables.custom_all_reduce(chip, engine, eager, by)) is not None:
            yield rows, False
    if (rows := tables.fused_all_reduce(chip, engine)) is not None:
        yield rows, False
    if engine not in ("sglang", "vllm"):
        return  # TensorRT-LLM brings an all-to-all of its own
    for op in ("dispatch", "combine"):
        if (rows := tables.deepep_low_latency(chip, op, 1)) is not None:
            yield rows, False
        found = [rows for n in NODES if (rows := tables.deepep_low_latency(chip, op, n)) is not None]
        if found:
            yield joined(found), True


def joined(parts: list[Rows]) -> Rows:
    """Rows of several tables of one operation."""
    first = parts[0]
    columns = {name: np.concatenate([p.columns[name] for p in parts]) for name in first.columns}
    return Rows(first.op, first.dtype, columns, np.concatenate([p.seconds for p in parts]), first.source)


def from_tables(chip: Chip, engine: str, modes: Modes, by: tables.Source = tables.INSTALLED) -> Calibrated:
    """Calibrate a chip for an engine from the measured tables; collectives of NCCL and DeepEP from the installed."""
    out = Calibrated(chip.name, engine)
    core: fitting.Fitted | None = None
    for op, dtype, rows, why in kernel_rows(chip, engine, modes, by):
        if rows is None:
            out.skipped.append(why)
            continue
        if op == "kv_cast":
            if core is None:
                out.skipped.append(f"kv_cast {dtype}: there is no 16-bit core to tell it from")
                continue
            rows = forms.cast_rows(rows, fitting.constants(core.values), chip)
        if len(rows) < fitting.FEWEST:
            out.skipped.append(f"{op} {dtype}: {len(rows)} usable calls")
            continue
        fitted = fitting.fit(forms.form_of(op, dtype), rows, chip, known_of(chip, op, dtype))
        if within(out, f"{op} {dtype}", fitted.errors.mape):
            core = fitted if (op, dtype) == ("mla_decode", "bf16") else core
            out.kernels.append(fitted)
    for link_rows, wide in collective_rows(chip.name, engine, by):
        copies = link_rows.op in ("dispatch", "combine")
        bound = np.inf if wide else float(chip.scale_up.bandwidth)
        found = links.fit(link_rows, knee=not (wide or copies), bound=bound)
        if within(out, found.op, found.errors.mape):
            (out.scale_out if wide else out.scale_up).append(found)
    return out


def known_of(chip: Chip, op: str, dtype: str) -> KernelFit:
    """The chip's own constants of an operator, to hold where the rows say nothing."""
    return chip.kernel("elementwise", "bf16") if op == "kv_cast" else chip.kernel(op, dtype)


def within(out: Calibrated, name: str, error: float) -> bool:
    """Whether a fit is good enough to be written; told if not."""
    if error > LIMIT:
        out.skipped.append(f"{name}: held-out error {error:.0%}, more than {LIMIT:.0%}: the formula does not hold")
    return error <= LIMIT
