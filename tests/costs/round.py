"""A chip, a model and an engine of round figures: every number of a test can be worked out by hand.

The chip multiplies 100 TFLOP/s in 16 bit and moves 1 TB/s; its kernels reach half of both, start in 1 us, and add
the two times up. In those units a kernel of F TFLOP and G GB takes 1 us + F / 50 s + G / 500 s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mlaplan.costs.engine import EngineCosts, exactly
from mlaplan.costs.machine import Machine
from mlaplan.costs.step import Setting
from mlaplan.specs.chip import Chip
from mlaplan.specs.lookup import load_chip
from mlaplan.specs.model import Model

CHIP_FILE = Path(__file__).parents[1] / "fixtures" / "round-chip.yaml"

MLA = {
    "kind": "mla", "heads": 8, "q_lora_rank": 200, "kv_lora_rank": 100, "qk_nope_head_dim": 60,
    "qk_rope_head_dim": 20, "v_head_dim": 50,
}  # fmt: skip
SPARSE = MLA | {"sparse": {"top_k": 100, "indexer": {"heads": 4, "head_dim": 20}}}
GQA = {"kind": "gqa", "heads": 8, "kv_heads": 2, "head_dim": 50}
DENSE = {"kind": "dense", "intermediate_size": 2000}
MOE = {
    "kind": "moe", "intermediate_size": 500, "experts": 20, "experts_per_token": 4, "shared_experts": 1,
    "shared_intermediate_size": 500,
}  # fmt: skip


def chip() -> Chip:
    return load_chip(str(CHIP_FILE))


def model(
    attention: dict[str, Any] = MLA, ffn: dict[str, Any] = DENSE, layers: int = 4, weights: dict[str, Any] | None = None
) -> Model:
    """Hidden size 1000, vocabulary 10,000, `layers` layers of one attention `a` and one feed-forward block `f`."""
    return Model.model_validate(
        {
            "kind": "model", "name": "round", "title": "Round model", "source": "made up",
            "hidden_size": 1000, "vocab_size": 10_000, "max_position": 100_000,
            "attention": {"a": attention}, "ffn": {"f": ffn},
            "layers": [{"count": layers, "attention": ["a"], "ffn": ["f"]}],
            "weights": weights or {"default": "bf16"},
        }
    )  # fmt: skip


def engine(**changes: Any) -> EngineCosts:
    """An engine without host time, overlap, imbalance, buffers or kernels of its own."""
    plain = {
        "name": "plain", "memory_fraction": 0.9, "of_free": False, "load_spread": exactly(0.0),
        "context_bytes": 0.0, "graph_bytes": 0.0, "comm_buffer_bytes": 0.0,
        "dispatch_buffer_bytes": 0.0, "hidden_copies": 1.0, "routed_copies": 1.0, "workspace": None, "dispatch": False,
        "dispatch_whole": False,
        "gather": True, "mixed_prefill": False, "step_overhead_s": exactly(0.0), "prefill_layer_host_s": exactly(0.0),
        "front_end_s": exactly(0.0), "front_end_per_token_s": exactly(0.0), "prefill_balance": exactly(1.0),
        "overlap_fraction": exactly(0.0), "imbalance": exactly(1.0),
    }  # fmt: skip
    return EngineCosts(**{**plain, **changes})


def machine(m: Model, weight_dtype: str = "bf16", kv_dtype: str = "bf16", **changes: Any) -> Machine:
    return Machine(chip(), m, engine(**changes), weight_dtype, kv_dtype)


def setting(m: Model, **changes: Any) -> Setting:
    return Setting(chip(), m, engine(**changes))


def kernel_s(flops: float, nbytes: float, peak: float = 100e12) -> float:
    """1 us + FLOP / half the peak + bytes / half the bandwidth."""
    return 1e-6 + flops / (0.5 * peak) + nbytes / 0.5e12


def named(ops: list[Any]) -> dict[str, Any]:
    """Operators by name; of alternatives that share one, that which takes time."""
    out: dict[str, Any] = {}
    for op in ops:
        if op.name not in out or np.any(op.time_s):
            out[op.name] = op
    return out
