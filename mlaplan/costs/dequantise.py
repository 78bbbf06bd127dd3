"""Widening a cache that has one scale per group of numbers: work of the vector units, in a core or a pass of its own.

A matrix unit takes one scale for a whole operand, not one per group. A kernel therefore turns every number that it
reads into 16 bit and multiplies it with its scale first, on the vector units. E numbers take

    v = 2 E / (s R)           R: rate of the vector units [FLOP/s], s: the share of it that conversions reach

2 FLOP are what the arithmetic needs; conversions have rates of their own, so s is far below 1 (6 % of Hopper's fp32
rate from fp8, which that chip converts in three instructions). s is `compute` of the fit kv_dequantise.

In a core (decode) the vector units work beside the matrix units, joined as the core's own parts c and m are:

    kv_dequantise = (c^n + m^n + v^n)^(1/n) - (c^n + m^n)^(1/n)                     what widening adds to the core

Each block of 64 query rows widens what it reads, so below 64 heads on a chip tensor parallelism divides v no further.
A prompt's kernel takes rows of 16 bit: its cached rows are widened once, in a pass of its own that reads them and
writes them wide:

    kv_dequantise = t0 + (m^n + v^n)^(1/n),  m = keys (row + wide row) / (a BW)

Where an engine has prompts with few heads on a chip go through its decode kernel, they are widened in the core
(`prefill_pass_heads` of the profile's kernel). Nothing of this applies to 16 bit, or to fp8 with one scale a layer,
which the matrix units take or a softmax scale absorbs.
Source: deepseek-ai/FlashMLA, docs/20250929-hopper-fp8-sparse-deep-dive.md, for the instructions and the block of 64
heads; ai-dynamo/aiconfigurator, sparse_attention/sglang 0.5.14 on H100, whose times with 16 to 128 heads grow by such
blocks; vllm-project/vllm, vllm/v1/attention/backends/mla/flashmla_sparse.py, for the pass before a prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs import kv
from mlaplan.costs.kv_formats import DEQUANTISE, WIDENING_FLOPS, vector_rate
from mlaplan.costs.machine import ACTIVATION_BYTES, Op
from mlaplan.costs.roofline import Numeric, ceil_div, smooth_max

if TYPE_CHECKING:
    from mlaplan.costs.machine import Machine


BLOCK_ROWS = 64  # query rows that share a widened tile


def widens(m: Machine) -> bool:
    """Whether the engine's kernel widens a cache of this dtype that has scales per group."""
    return m.kv_dtype in kv.GROUPED and m.engine.core_mode(m.kv_dtype).compute == "upcast"


def in_core(m: Machine, core: Op, numbers: Numeric, rows: Numeric) -> list[Op]:
    """What widening `numbers` for `rows` query rows each beside the products of a core adds to it, if they need it."""
    return [_beside(m, core, numbers * ceil_div(rows, BLOCK_ROWS))] if widens(m) else []


def before_prefill(
    m: Machine, a: Any, core: Op, keys: Numeric, pairs: Numeric, heads: Numeric, share: Numeric = 1.0
) -> list[Op]:
    """Widening of what a prefill step reads of the cache.

    keys: cached tokens read once; pairs: query-key pairs, each widened anew where the decode kernel serves prompts;
    heads: of this chip; share: the part of a row that it holds.
    """
    if not widens(m):
        return []
    scaled, row = kv.scaled_numbers(a, m.kv_dtype) * share, kv.row_bytes(a, m.kv_dtype) * share
    whole = _alone(m, keys * scaled, keys * (row + kv.numbers(a) * share * ACTIVATION_BYTES))
    few = np.asarray(heads) < m.engine.core_mode(m.kv_dtype).pass_heads
    if not np.any(few):
        return [whole]
    inside = _beside(m, core, pairs * scaled * ceil_div(heads, BLOCK_ROWS))
    parts = {f: np.where(few, getattr(inside, f), getattr(whole, f)) for f in ("time_s", "bytes", *_TIMES)}
    return [whole._replace(**parts)]


def prefill_row_bytes(m: Machine, a: Any, heads: Numeric) -> Numeric:
    """Bytes of a cached row as the core of a prefill step reads it: 16 bit where a pass has widened it before. [B]"""
    row = kv.row_bytes(a, m.kv_dtype)
    if not widens(m):
        return row
    few = np.asarray(heads) < m.engine.core_mode(m.kv_dtype).pass_heads
    return np.where(few, row, kv.numbers(a) * ACTIVATION_BYTES)


_TIMES = ("compute_s", "memory_s", "floor_s")


def vector_s(m: Machine, numbers: Numeric) -> Numeric:
    """v = 2 E / (s R). [s]"""
    return WIDENING_FLOPS * numbers / (m.chip.kernel(DEQUANTISE, m.kv_dtype).compute * vector_rate(m.chip))


def _beside(m: Machine, core: Op, numbers: Numeric) -> Op:
    fit, own = m.chip.kernel(DEQUANTISE, m.kv_dtype), m.chip.kernel(*core.group.split("."))
    v, busy = vector_s(m, numbers), core.time_s - core.floor_s
    added = smooth_max(busy, v, own.norm) - busy
    return Op(DEQUANTISE, f"{DEQUANTISE}.{m.kv_dtype}", added, compute_s=v, residual=fit.residual)


def _alone(m: Machine, numbers: Numeric, nbytes: Numeric) -> Op:
    fit, v = m.chip.kernel(DEQUANTISE, m.kv_dtype), vector_s(m, numbers)
    memory_s = nbytes / (fit.memory * m.bandwidth)
    time_s = np.where(np.asarray(numbers) > 0, fit.floor + smooth_max(memory_s, v, fit.norm), 0.0)
    return Op(DEQUANTISE, f"{DEQUANTISE}.{m.kv_dtype}", time_s, 0.0, nbytes, 0.0, v, memory_s, fit.floor, fit.residual)
