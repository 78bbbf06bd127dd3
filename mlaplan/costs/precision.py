"""What a weight or cache dtype means on a chip: bytes stored, and the rate at which its products run.

A dtype that the chip multiplies natively runs at its own dense peak. int4 and fp4 are stored and streamed as
they are where the chip lacks them, and multiplied at the 16-bit rate (weight-only kernels). fp8 has no such
fallback here: it must be converted to int8 (where the chip multiplies int8) or to 16 bit, and the plan says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

WEIGHT_ONLY = ("int4", "fp4")
SIXTEEN_BIT = ("bf16", "fp16")


class Matmul(NamedTuple):
    """How products with one weight dtype run: the efficiency key, the dense peak, bytes per stored weight."""

    dtype: str
    key: str
    peak_flops: float
    weight_bytes: float


def sixteen_bit(chip: Chip) -> str:
    """The chip's 16-bit matmul dtype: bf16, or fp16 where it has no bf16 (Ascend 910A)."""
    return "bf16" if "bf16" in chip.peak else "fp16"


def can_multiply(chip: Chip, dtype: str) -> bool:
    """Whether weights of this dtype can be used on the chip without converting the checkpoint."""
    return dtype in chip.peak or dtype in WEIGHT_ONLY


def weight_targets(chip: Chip, model: Model) -> tuple[str, ...]:
    """Weight dtypes to consider: the checkpoint's own where the chip has it, else what it can be converted to."""
    own = quantised(model)
    if can_multiply(chip, own):
        return (own,)
    if own in SIXTEEN_BIT or "int8" not in chip.peak:
        return (sixteen_bit(chip),)
    return ("int8", sixteen_bit(chip))


def quantised(model: Model) -> str:
    """The dtype that makes the checkpoint small: that of its routed experts or dense blocks, else the default."""
    parts = (model.weight_dtype(part) for part in ("routed", "dense", "attention", "shared"))
    return next((dtype for dtype in parts if dtype not in SIXTEEN_BIT), model.weights.default)


def part_dtype(model: Model, part: str, target: str) -> str:
    """The dtype of a part of the model when its quantised parts are kept as, or converted to, `target`.

    Parts that the checkpoint leaves in 16 bit stay there; a target of 16 bit up-casts the quantised ones.
    """
    if part == "norm":
        return "bf16"
    stored = model.weight_dtype(part)
    return target if stored == quantised(model) and stored not in SIXTEEN_BIT else stored


def draft_model(model: Model, target: str) -> tuple[Model, str]:
    """The model as its MTP layer sees it, all linear parts in that layer's dtype, and what they are converted to."""
    own = model.weights.mtp
    if own is None:
        return model, target
    weights = model.weights.model_copy(update=dict.fromkeys(("attention", "dense", "routed", "shared", "indexer"), own))
    return model.model_copy(update={"weights": weights}), part_dtype(model, "mtp", target)


def stored_bytes(model: Model, dtype: str) -> float:
    """Bytes per weight with its scales: block (fp8), group (int4, fp4), or per channel (int8, not counted)."""
    w = model.weights
    base = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.5}[dtype]
    if dtype == quantised(model) and dtype not in SIXTEEN_BIT:
        if w.block:
            return base + w.scale_bytes / (w.block[0] * w.block[1])
        if w.group:
            return base + w.scale_bytes / w.group
    return base


def matmul(chip: Chip, model: Model, part: str, target: str) -> Matmul:
    """The products of one part of the model on this chip under the plan's weight dtype."""
    dtype = part_dtype(model, part, target)
    sixteen = sixteen_bit(chip)
    if dtype in SIXTEEN_BIT or dtype == "fp32":
        return Matmul(dtype, sixteen, float(chip.peak[sixteen]), stored_bytes(model, dtype))
    key = "fp8_block" if dtype == "fp8" and model.weights.block else dtype
    peak = chip.peak.get(dtype)
    # weight-only: the stored dtype is widened on the way to the 16-bit matrix units
    rate = float(peak) if peak is not None else float(chip.peak[sixteen])
    return Matmul(dtype, key, rate, stored_bytes(model, dtype))


def attention_peak(chip: Chip, kv_dtype: str) -> float:
    """Dense peak of the products of an attention core by cache dtype; fp8_ds_mla is widened to 16 bit first."""
    if kv_dtype in ("fp8", "int8") and kv_dtype in chip.peak:
        return float(chip.peak[kv_dtype])
    return float(chip.peak[sixteen_bit(chip)])
