"""Formats of a cached row with the scales that go with it, and what widening one costs.

    bf16, fp16       2 n
    fp8              n            one scale a layer, not counted
    fp8 tile-128     n + 4 n / 128    an fp32 scale per 128 numbers; MLA keeps the rotary key in bf16: 656 B
    int8 group-128   n + 2 n / 128    GQA, an fp16 scale per 128 numbers: -49.2 % of 16 bit, not -50 %

n: numbers of one token in one attention block, 2 h_kv d_h or d_c + d_r. What widening them costs a step: `dequantise`.

Sources: DeepSeek-V3, arXiv:2412.19437, sec. 3.3 (tiles of 128); the FlashMLA README for the 656-byte row;
`costs.kv` for the rows that strategies are priced with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.costs import kv
from mlaplan.costs.precision import sixteen_bit

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

TILE, TILE_SCALE_BYTES = 128, 4
WIDENING_FLOPS = 2.0  # a number: one conversion, one product with its scale
DEQUANTISE = "kv_dequantise"  # the fit of this work
MATRIX_OVER_VECTOR = 16.0


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
        return kv.numbers(attention) * (1.0 + TILE_SCALE_BYTES / TILE)
    return kv.row_bytes(attention, "int8" if f.stored == "int8" else f.stored)


def model_bytes(model: Model, f: Format) -> float:
    """Bytes of one token over all layers of the model, indexer caches included, MTP apart. [B]"""
    of = model.attention
    return sum(
        run.count * sum(row_bytes(of[name], f) + kv.indexer_row_bytes(of[name]) for name in run.attention)
        for run in model.layers
    )


def model_numbers(model: Model, f: Format) -> int:
    """Numbers of one token over all layers that the format keeps in 8 bit; tiles leave MLA's rotary key in 16."""
    tiles = f.name == "fp8 tile-128"

    def narrow(a: Any) -> int:
        return kv.scaled_numbers(a, "fp8_ds_mla") if tiles and a.kind == "mla" else kv.numbers(a)

    return sum(run.count * sum(narrow(model.attention[name]) for name in run.attention) for run in model.layers)


def vector_rate(chip: Chip) -> float:
    """The fastest rate of the chip's vector units; where its file has none, a 16th of its 16-bit peak. [FLOP/s]

    H100, A100 and Ascend 910B have a 15th to a 16th.
    """
    stated = max((float(rate) for rate in chip.vector.values()), default=None)
    return float(chip.peak[sixteen_bit(chip)]) / MATRIX_OVER_VECTOR if stated is None else stated


def widening_s(chip: Chip, f: Format, count: float) -> float:
    """Time for the vector units to widen so many numbers from the format, 2 E / (s R) as steps are priced. [s]

    A plain fp8 number takes the conversion of one in a tile.
    """
    fit = chip.kernel(DEQUANTISE, "int8" if f.stored == "int8" else "fp8_ds_mla")
    return WIDENING_FLOPS * count / (fit.compute * vector_rate(chip))
