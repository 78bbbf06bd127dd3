"""The decode attention of one DeepSeek-V3 layer as a sum of parts, to compare with whole modules that were timed.

Down-projections, norms and rotary embedding, query up-projection, absorbed products, core, output projection; no
all-reduce. The heads of a rank are what tensor parallelism leaves.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.calibration.rows import Array, Rows
from mlaplan.costs.engine import CoreMode, EngineCosts, exactly
from mlaplan.costs.machine import Machine
from mlaplan.costs.mla import DecodeShape, decode_ops

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

MODEL = "deepseek-v3"
HEADS = 128
# the layer's input norm belongs to the block before, the reduction over ranks to none
OUTSIDE = ("attention_norm", "attention_all_reduce")


@cache
def _model() -> Model:
    from mlaplan.specs.lookup import load_model

    return load_model(MODEL)


def _engine(kv_dtype: str) -> Any:
    """An engine of which only the core's mode matters here."""
    zero = exactly(0.0)
    return EngineCosts(
        name="module", step_overhead_s=zero, prefill_layer_host_s=zero, front_end_s=zero, front_end_per_token_s=zero,
        prefill_balance=exactly(1.0), overlap_fraction=zero, imbalance=exactly(1.0), memory_fraction=0.9, of_free=False,
        context_bytes=0.0, graph_bytes=0.0, comm_buffer_bytes=0.0, dispatch_buffer_bytes=0.0, hidden_copies=0.0,
        routed_copies=0.0, workspace=None, dispatch=False, dispatch_whole=False, gather=True, mixed_prefill=False,
        core_modes={kv_dtype: CoreMode()},
    )  # fmt: skip


def module_parts(spec: Chip, rows: Rows, kv_dtype: str, weights: str) -> dict[str, Array]:
    """Seconds of every part, by name, for each row."""
    target = "fp8" if weights == "fp8_block" else "bf16"
    machine = Machine(spec, _model(), _engine(kv_dtype), target, kv_dtype)
    c = rows.columns
    shape = DecodeShape(c["batch"], 1.0, c["context"], HEADS / c["heads"])
    attention = next(a for a in _model().attention.values() if a.kind == "mla")
    ops = [op for op in decode_ops(machine, attention, shape) if op.name not in OUTSIDE]
    return {op.name: np.broadcast_to(np.asarray(op.time_s, dtype=float), len(rows)) for op in ops}


def module_s(spec: Chip, rows: Rows, kv_dtype: str, weights: str) -> Array:
    """Seconds of the whole, for each row."""
    return np.sum(list(module_parts(spec, rows, kv_dtype, weights).values()), axis=0)
