"""Measured efficiency of one kernel class or one collective: the constants of their cost formulas.

The plain form has four constants. Calibration adds optional terms that measured kernels show; each is off by
default, so a fit without them means the same as ever. The formulas are in `mlaplan/costs/kernels.py` and
`mlaplan/costs/collectives.py`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from mlaplan.specs.figure import (
    Bandwidth,
    Confidence,
    Count,
    CountOrZero,
    Duration,
    Fraction,
    FractionOrZero,
    Quantity,
    Spec,
    Text,
    kind_of,
    told,
)

MemoryFraction = Annotated[float, Quantity("memory_fraction", "fraction", 0, 0.95, open_low=True)]
Residual = Annotated[float, Quantity("residual", "fraction", 0, 2)]
Floor = Annotated[float, Quantity("floor", "s", 0, 1)]
Passes = Annotated[float, Quantity("passes", "count", 0, 20)]
Knee = Annotated[float, Quantity("knee", "bytes", 0, 1e12)]


def _norm(raw: Any) -> float:
    if raw == "hard" or raw == math.inf:
        return math.inf
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 1 <= raw <= 100:
        raise told(f"{kind_of(raw)} is not the exponent of a smooth maximum", "a number from 1 to 100, or 'hard'")
    return float(raw)


Norm = Annotated[
    float,
    BeforeValidator(_norm),
    PlainSerializer(lambda norm: "hard" if math.isinf(norm) else norm, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 1, "maximum": 100}, {"const": "hard"}]}),
]


class KernelFit(Spec):
    """Efficiency of one operator class.

    t = floor + ((FLOP / (compute peak))^norm + (bytes / (memory bandwidth))^norm)^(1/norm) + optional terms
    """

    compute: Fraction
    memory: MemoryFraction
    floor: Floor
    norm: Norm = math.inf
    wave: Floor = Field(default=0.0, description="time of each further wave of thread blocks over the cores")
    split: Floor = Field(default=0.0, description="decode: merge of sequences split to fill idle cores")
    ramp: Floor = Field(default=0.0, description="time of each doubling of the tiles a core works on, up to 16")
    row: Floor = Field(default=0.0, description="experts: time of each row of a token copy (permute, quantise, sum)")
    active: Floor = Field(default=0.0, description="experts: time of each expert that has tokens")
    stored: Floor = Field(default=0.0, description="experts: time of each expert that the chip holds")
    longest: FractionOrZero = Field(default=0.0, description="prefill: weight of the longest thread block's own time")
    passes: Passes = Field(default=0.0, description="attention: extra passes over queries and outputs")
    tile: Count | None = Field(default=None, description="rows and columns of a thread block's tile")
    fill: FractionOrZero = Field(default=0.0, description="products: part of an unfilled last wave that costs time")
    supply: Bandwidth | None = Field(default=None, description="products: rate at which tiles reach the cores from L2")
    quantise: Passes = Field(default=0.0, description="products: quantising the input, in passes of 3 B an element")
    store: Passes = Field(default=0.0, description="products: extra passes of the output")
    residual: Residual
    rows: Count | None = Field(default=None, description="measurements behind the fit")
    dropped: CountOrZero = Field(default=0, description="measurements left out")
    held: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        default=(), description="constants that the measurements do not identify"
    )
    source: Text
    confidence: Confidence
    note: Text | None = None


class CollectiveFit(Spec):
    """One collective: t(n) = alpha(n) + (V + sqrt(V knee(n))) / bandwidth(n), each listed beside `ranks`."""

    ranks: Annotated[tuple[Count, ...], Field(strict=False, min_length=1)]
    alpha: Annotated[tuple[Duration, ...], Field(min_length=1)]
    bandwidth: Annotated[tuple[Bandwidth, ...], Field(min_length=1)]
    knee: tuple[Knee, ...] = Field(default=(), description="volume at which protocol switches double the time")
    residual: Residual
    rows: Count | None = Field(default=None, description="measurements behind the fit")
    dropped: CountOrZero = Field(default=0, description="measurements left out")
    source: Text
    confidence: Confidence
    note: Text | None = None

    @model_validator(mode="after")
    def _is_a_table(self) -> CollectiveFit:
        lengths = {"ranks": len(self.ranks), "alpha": len(self.alpha), "bandwidth": len(self.bandwidth)}
        if self.knee:
            lengths["knee"] = len(self.knee)
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} {count}" for name, count in lengths.items())
            raise told(f"the columns differ in length: {counts}", "one alpha and one bandwidth for each rank count")
        if list(self.ranks) != sorted(set(self.ranks)) or self.ranks[0] < 2:
            raise told("the rank counts do not rise from 2 on", "ranks in ascending order, such as [2, 4, 8]")
        return self
