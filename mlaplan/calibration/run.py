"""Which tables calibrate which constants of a chip and an engine, and all of them fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mlaplan.calibration import fitting, forms, links, tables
from mlaplan.calibration.rows import Rows, host_bound, without_impossible
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip

KERNELS: tuple[tuple[str, Callable[[str, str, str], Rows | None], tuple[str, ...]], ...] = (
    ("gemm", tables.gemm, ("bf16", "fp8", "fp8_block")),
    ("bmm", tables.bmm, ("bf16",)),
    ("grouped_gemm", tables.grouped_gemm, ("bf16", "fp8", "fp8_block", "int4")),
    ("mla_decode", tables.mla_decode, ("bf16", "fp8")),
    ("mla_prefill", tables.mla_prefill, ("bf16", "fp8")),
)
PRODUCTS = ("gemm", "bmm")
CASTING = ("sglang",)  # on Hopper its 8-bit decode table is a cast of the whole cache and the 16-bit kernel
FOR_KV_CAST = ("kv_cast", "fp8")
NODES = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Everything that the tables of one chip and engine gave, and what they could not give."""

    chip: str
    engine: str
    kernels: list[fitting.Fitted] = field(default_factory=list)
    scale_up: list[links.LinkFitted] = field(default_factory=list)
    scale_out: list[links.LinkFitted] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def kernel_rows(chip: str, engine: str) -> Iterator[tuple[str, str, Rows | None, str]]:
    """(op, dtype, clean rows or None, why none) of every kernel table of an engine."""
    for op, read, dtypes in KERNELS:
        for dtype in dtypes:
            rows = read(chip, engine, dtype)
            if rows is None:
                continue
            if op in PRODUCTS and host_bound(rows):
                fastest = 1e6 * float(rows.seconds.min())
                yield op, dtype, None, f"{op} {dtype}: bound by the host, its fastest call takes {fastest:.0f} us"
            elif op == "mla_decode" and dtype == "fp8" and engine in CASTING:
                yield *FOR_KV_CAST, rows, ""
            else:
                yield op, dtype, rows, ""


def usable(op: str, rows: Rows, chip: Chip) -> Rows:
    """Without expert calls that were served from the cache: the others' tables show no such thing."""
    if op != "grouped_gemm":
        return rows
    c = rows.columns
    weights = c["active"] * 3.0 * c["hidden"] * c["inner"] * forms.OPERAND_BYTES[rows.dtype]
    return without_impossible(rows, weights, float(chip.memory.bandwidth))


def collective_rows(chip: str, engine: str) -> Iterator[tuple[Rows, bool]]:
    """(rows, whether between nodes) of every collective that an engine uses."""
    for op in tables.COLLECTIVES.values():
        if (rows := tables.collective(chip, op)) is not None:
            yield rows, False
    for eager in (False, True):
        if (rows := tables.custom_all_reduce(chip, engine, eager)) is not None:
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
    import numpy as np

    first = parts[0]
    columns = {name: np.concatenate([p.columns[name] for p in parts]) for name in first.columns}
    return Rows(first.op, first.dtype, columns, np.concatenate([p.seconds for p in parts]), first.source)


def from_tables(chip: Chip, engine: str) -> Calibrated:
    """Calibrate a chip for an engine from the measured tables."""
    if engine not in tables.VERSIONS:
        raise MlaplanError(f"no measured tables of engine '{engine}'; expected one of {', '.join(tables.VERSIONS)}")
    out = Calibrated(chip.name, engine)
    core: fitting.Fitted | None = None
    for op, dtype, rows, why in kernel_rows(chip.name, engine):
        if rows is None:
            out.skipped.append(why)
            continue
        known = chip.kernel(op, dtype) if op != "kv_cast" else chip.kernel("elementwise", "bf16")
        if op == "kv_cast":
            if core is None:
                continue
            rows = forms.cast_rows(rows, fitting.constants(core.values), chip)
        fitted = fitting.fit(forms.form_of(op, dtype), usable(op, rows, chip), chip, known)
        core = fitted if op == "mla_decode" else core
        out.kernels.append(fitted)
    for link_rows, wide in collective_rows(chip.name, engine):
        if wide:
            out.scale_out.append(links.fit(link_rows, knee=False))
        else:
            copies = link_rows.op in ("dispatch", "combine")
            out.scale_up.append(links.fit(link_rows, not copies, float(chip.scale_up.bandwidth)))
    return out
