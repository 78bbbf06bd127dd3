"""The kernels that can be calibrated: which constants are free, and the time they give for rows of a table.

Times come from the functions that the cost model itself uses, so a fit is a fit of the model. Every form lists its
constants in the order in which few measurements should free them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.calibration.rows import Array, Rows
from mlaplan.costs import kernels, mla
from mlaplan.costs import roofline as roof
from mlaplan.costs.kernels import Work
from mlaplan.costs.machine import expert_work
from mlaplan.costs.precision import attention_peak, sixteen_bit

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.fit import KernelFit

US = 1e-6
LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128  # DeepSeek-V2 and V3, Kimi-K2, LongCat: what the tables were taken with
CACHE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
OPERAND_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4.0 / 128**2, "int8": 1.0,
                 "int4": 0.5 + 2.0 / 32, "fp4": 0.5 + 1.0 / 16}  # fmt: skip
CAST_BYTES = 3.0  # one element read in 8 bit and written in 16


class Free(NamedTuple):
    """A constant, where its search starts, and what bounds it."""

    name: str
    start: float
    low: float
    high: float


COMPUTE = Free("compute", 0.6, 0.02, 1.0)
MEMORY = Free("memory", 0.8, 0.05, 0.95)
FLOOR = Free("floor", 8 * US, 0.0, 500 * US)
NORM = Free("norm", 3.0, 1.0, 20.0)
WAVE = Free("wave", 3 * US, 0.0, 100 * US)
SPLIT = Free("split", 2 * US, 0.0, 100 * US)
RAMP = Free("ramp", 1 * US, 0.0, 20 * US)
PASSES = Free("passes", 0.5, 0.0, 10.0)
EXPERT = Free("active", 0.2 * US, 0.0, 20 * US)
STORED = Free("stored", 0.2 * US, 0.0, 20 * US)
ROW = Free("row", 0.01 * US, 0.0, 10 * US)
FILL = Free("fill", 0.5, 0.0, 1.0)
SUPPLY = Free("supply", 25e12, 2e12, 1e15)
QUANTISE = Free("quantise", 1.0, 0.0, 10.0)
STORE = Free("store", 0.5, 0.0, 10.0)


@dataclass(frozen=True, slots=True)
class Form:
    """One operator: free constants, fixed ones, and the predicted seconds of rows on a chip."""

    op: str
    free: tuple[Free, ...]
    seconds: Callable[[Any, Rows, Chip], Array]
    columns: tuple[str, ...]
    fixed: dict[str, float] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.free)


def _rates(chip: Chip) -> tuple[float, float]:
    return float(chip.memory.bandwidth), float(chip.cores)


def matmul_peak(chip: Chip, dtype: str) -> float:
    """The dense peak of products with weights of this dtype; weight-only ones run at 16 bit."""
    peak = chip.peak.get(dtype.removesuffix("_block"))
    return float(peak if peak is not None else chip.peak[sixteen_bit(chip)])


def decode_work(rows: Rows, chip: Chip, kv_dtype: str) -> Work:
    c = rows.columns
    row_bytes = (LATENT + ROPE) * CACHE_BYTES[kv_dtype]
    q_len = c.get("q_len", np.ones(len(rows)))
    return mla.decode_work(c["batch"], q_len, c["context"], c["heads"], LATENT, ROPE, row_bytes, chip.padding)


def _mla_decode(fit: Any, rows: Rows, chip: Chip) -> Array:
    peak = attention_peak(chip, rows.dtype)
    return kernels.timing(fit, decode_work(rows, chip, rows.dtype), peak, *_rates(chip)).time_s


def prefill_work(rows: Rows, tile: int | None) -> Work:
    c = rows.columns
    queries = c["batch"] * c["tokens"]
    pairs = queries * c["tokens"] / 2.0
    return mla.prefill_work(c["batch"], queries, pairs, queries, c["heads"], (NOPE, ROPE, VALUE), tile)


def _mla_prefill(fit: Any, rows: Rows, chip: Chip) -> Array:
    # the products run in 16 bit whatever the cache holds
    peak = attention_peak(chip, rows.dtype)
    return kernels.timing(fit, prefill_work(rows, fit.tile), peak, *_rates(chip)).time_s


def _gemm(fit: Any, rows: Rows, chip: Chip) -> Array:
    m, k, n = (rows.columns[x] for x in "mkn")
    width, peak = OPERAND_BYTES[rows.dtype], matmul_peak(chip, rows.dtype)
    nbytes = roof.gemm_bytes(m, k, n, width)
    return kernels.product_timing(fit, m, k, n, nbytes, peak, *_rates(chip), width, chip.padding.gemm_rows).time_s


def _bmm(fit: Any, rows: Rows, chip: Chip) -> Array:
    """The tables replay one set of weights, which then stays in the cache: only activations count as bytes."""
    heads, m, k, n = (rows.columns[x] for x in ("heads", "m", "k", "n"))
    flops = roof.gemm_flops(m, k, n) * heads
    padded = roof.gemm_flops(roof.pad_to(m, chip.padding.gemm_rows), k, n) * heads
    nbytes = 2.0 * heads * m * (k + n)
    return kernels.timing(fit, Work(flops, padded, nbytes), matmul_peak(chip, rows.dtype), *_rates(chip)).time_s


def _grouped_gemm(fit: Any, rows: Rows, chip: Chip) -> Array:
    """As the cost model has it: mean rows of an active expert, each expert padded to the tile."""
    c = rows.columns
    padded = c["active"] * roof.pad_to(c["rows"] / c["active"], chip.padding.gemm_rows)
    width = OPERAND_BYTES[rows.dtype]
    work = expert_work(c["hidden"], c["inner"], c["rows"], padded, c["active"], c["stored"], width)
    return kernels.timing(fit, work, matmul_peak(chip, rows.dtype), *_rates(chip)).time_s


def cast_rows(rows: Rows, core: KernelFit, chip: Chip) -> Rows:
    """What a cast of the whole 8-bit cache adds to the 16-bit core: rows of `elements`, the core's time taken off."""
    wide = decode_work(rows, chip, "bf16")
    core_s = kernels.timing(core, wide, attention_peak(chip, "bf16"), *_rates(chip)).time_s
    elements = rows.columns["batch"] * rows.columns["context"] * (LATENT + ROPE)
    return replace(rows, op="kv_cast", columns={**rows.columns, "elements": elements, "core_s": core_s})


def _kv_cast(fit: Any, rows: Rows, chip: Chip) -> Array:
    """The cast and the core behind it, as one call."""
    work = Work(0.0, 0.0, rows.columns["elements"] * CAST_BYTES)
    return rows.columns["core_s"] + kernels.timing(fit, work, 1.0, *_rates(chip)).time_s


FORMS = {
    form.op: form
    for form in (
        Form("mla_decode", (FLOOR, MEMORY, COMPUTE, WAVE, RAMP, SPLIT, PASSES, NORM), _mla_decode,
             ("batch", "heads", "q_len", "context")),
        Form("mla_prefill", (COMPUTE, FLOOR, MEMORY, WAVE, NORM), _mla_prefill, ("batch", "heads", "tokens"),
             {"tile": 128, "longest": 1.0}),
        Form("gemm", (MEMORY, COMPUTE, FLOOR, SUPPLY, FILL, STORE, QUANTISE, NORM), _gemm, ("m", "k", "n"),
             {"tile": 128}),
        Form("bmm", (FLOOR, MEMORY, COMPUTE, NORM), _bmm, ("heads", "m", "k", "n")),
        Form("grouped_gemm", (MEMORY, FLOOR, ROW, COMPUTE, EXPERT, STORED, NORM), _grouped_gemm,
             ("rows", "active", "stored", "hidden", "inner")),
        Form("kv_cast", (MEMORY, FLOOR), _kv_cast, ("batch", "heads", "context"), {"compute": 1.0}),
    )
}  # fmt: skip


def form_of(op: str, dtype: str) -> Form:
    """The form of an operator; products in 16 bit quantise nothing, and L2 feeds them faster than they multiply."""
    form = FORMS[op]
    if op == "gemm" and dtype in ("bf16", "fp16"):
        free = tuple(f for f in form.free if f not in (QUANTISE, SUPPLY))
        return Form(form.op, free, form.seconds, form.columns, form.fixed)
    return form
