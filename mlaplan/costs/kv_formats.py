"""Formats of a cached row with the scales that go with it, and what widening one costs.

    bf16, fp16       2 n
    fp8              n            one scale a layer, not counted
    fp8 tile-128     n + 4 n / 128    an fp32 scale per 128 numbers; MLA keeps the rotary key in bf16: 656 B
    int8 group-128   n + 2 n / 128    GQA, an fp16 scale per 128 numbers: -49.2 % of 16 bit, not -50 %

n: numbers of one token in one attention block, 2 h_kv d_h or d_c + d_r. A kernel that multiplies in 16 bit widens every
number it reads, one conversion and one product with its scale:

    t = 2 n S B / vector rate                                         the datasheet's: a floor, beside the read of S B n

Sources: DeepSeek-V3, arXiv:2412.19437, sec. 3.3 (tiles of 128); the FlashMLA README for the 656-byte row;
`costs.kv` for the rows that strategies are priced with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.costs import kv

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

TILE, TILE_SCALE_BYTES = 128, 4
WIDENING_FLOPS = 2.0  # a number: one conversion, one product with its scale


class Format(NamedTuple):
    """A way to store a row. dtype: the strategy's word for it, None where no engine here reads it."""

    name: str
    dtype: str | None
    stored: str  # the narrow dtype that the chip would multiply, or widen
    rounding: str  # its name in the reference attention


def formats(model: Model, sixteen: str) -> tuple[Format, ...]:
    """The formats that have a meaning for the model, 16 bit first."""
    a = model.attention[model.layers[0].attention[0]]
    own = kv.kv_dtypes(a)
    tile = "fp8_ds_mla" if "fp8_ds_mla" in own else None
    out = [
        Format(sixteen, sixteen, sixteen, sixteen),
        Format("fp8", "fp8", "fp8", "fp8_e4m3"),
        Format("fp8 tile-128", tile, "fp8", "fp8_ds_mla"),
    ]
    if "int8" in own:
        out.append(Format("int8 group-128", "int8", "int8", "int8"))
    return tuple(out)


def row_bytes(attention: Any, f: Format) -> float:
    """Bytes of one cached token in one attention block, all KV heads. [B]"""
    if f.name == "fp8 tile-128":
        if attention.kind == "mla":
            return kv.row_bytes(attention, "fp8_ds_mla")
        return numbers(attention) * (1.0 + TILE_SCALE_BYTES / TILE)
    return kv.row_bytes(attention, "int8" if f.stored == "int8" else f.stored)


def numbers(attention: Any) -> int:
    """Numbers of one cached token in one attention block: 2 h_kv d_h, or d_c + d_r."""
    if attention.kind == "mla":
        return int(attention.kv_lora_rank + attention.qk_rope_head_dim)
    return int(2 * attention.kv_heads * attention.head_dim)


def model_bytes(model: Model, f: Format) -> float:
    """Bytes of one token over all layers of the model, indexer caches included, MTP apart. [B]"""
    of = model.attention
    return sum(
        run.count * sum(row_bytes(of[name], f) + kv.indexer_row_bytes(of[name]) for name in run.attention)
        for run in model.layers
    )


def model_numbers(model: Model) -> int:
    """Numbers of one token over all layers."""
    return sum(run.count * sum(numbers(model.attention[name]) for name in run.attention) for run in model.layers)


def vector_rate(chip: Chip) -> float | None:
    """The fastest rate of the chip's vector units, None where its file has none. [FLOP/s]"""
    return max((float(rate) for rate in chip.vector.values()), default=None)


def widening_s(chip: Chip, count: float) -> float | None:
    """Time to widen so many numbers on the vector units at their datasheet rate, None where unknown. [s]"""
    rate = vector_rate(chip)
    return None if rate is None else WIDENING_FLOPS * count / rate
