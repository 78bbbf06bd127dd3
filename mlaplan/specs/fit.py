"""Measured efficiency of one kernel class or one collective: the constants of their cost formulas.

The plain form has four constants. Calibration adds optional terms that measured kernels show; each is off by
default, so a fit without them means the same as ever. The formulas are in `mlaplan/costs/kernels.py` and
`mlaplan/costs/collectives.py`.
"""

import math
from typing import Annotated, Any

from mlaplan.specs.figure import (
    Bandwidth,
    Confidence,
    Count,
    CountOrZero,
    Duration,
    Fraction,
    FractionOrZero,
    Text,
)
from mlaplan.specs.marks import AtLeast, Quantity, kind_of
from mlaplan.specs.spec import Spec, Told, field

MemoryFraction = Annotated[float, Quantity("memory_fraction", "fraction", 0, 0.95, open_low=True)]
Residual = Annotated[float, Quantity("residual", "fraction", 0, 2)]
Floor = Annotated[float, Quantity("floor", "s", 0, 1)]
Passes = Annotated[float, Quantity("passes", "count", 0, 20)]
Knee = Annotated[float, Quantity("knee", "bytes", 0, 1e12)]


class Exponent:
    """Of a smooth maximum: a number from 1 on, or `hard`."""

    @staticmethod
    def read(raw: Any) -> float:
        if raw == "hard" or raw == math.inf:
            return math.inf
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not 1 <= raw <= 100:
            raise Told(f"{kind_of(raw)} is not the exponent of a smooth maximum", "a number from 1 to 100, or 'hard'")
        return float(raw)

    @staticmethod
    def text(norm: float) -> float | str:
        return "hard" if math.isinf(norm) else norm

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.read)

    @staticmethod
    def __get_pydantic_json_schema__(_core: Any, _handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "number", "minimum": 1, "maximum": 100}, {"const": "hard"}]}


Norm = Annotated[float, Exponent()]


class KernelFit(Spec):
    """Efficiency of one operator class.

    t = floor + ((FLOP / (compute peak))^norm + (bytes / (memory bandwidth))^norm)^(1/norm) + optional terms
    """

    compute: Fraction
    memory: MemoryFraction
    floor: Floor
    norm: Norm = math.inf
    wave: Floor = field(default=0.0, description="time of each further wave of thread blocks over the cores")
    split: Floor = field(default=0.0, description="decode: merge of sequences split to fill idle cores")
    ramp: Floor = field(default=0.0, description="time of each doubling of the tiles a core works on, up to 16")
    row: Floor = field(default=0.0, description="experts: time of each row of a token copy (permute, quantise, sum)")
    active: Floor = field(default=0.0, description="experts: time of each expert that has tokens")
    stored: Floor = field(default=0.0, description="experts: time of each expert that the chip holds")
    longest: FractionOrZero = field(default=0.0, description="prefill: weight of the longest thread block's own time")
    passes: Passes = field(default=0.0, description="attention: extra passes over queries and outputs")
    tile: Count | None = field(default=None, description="rows and columns of a thread block's tile")
    fill: FractionOrZero = field(default=0.0, description="products: part of an unfilled last wave that costs time")
    supply: Bandwidth | None = field(default=None, description="products: rate at which tiles reach the cores from L2")
    quantise: Passes = field(default=0.0, description="products: quantising the input, in passes of 3 B an element")
    store: Passes = field(default=0.0, description="products: extra passes of the output")
    residual: Residual
    rows: Count | None = field(default=None, description="measurements behind the fit")
    dropped: CountOrZero = field(default=0, description="measurements left out")
    held: tuple[Text, ...] = field(default=(), description="constants that the measurements do not identify")
    source: Text
    confidence: Confidence
    note: Text | None = None


class CollectiveFit(Spec):
    """One collective: t(n) = alpha(n) + (V + sqrt(V knee(n))) / bandwidth(n), each listed beside `ranks`."""

    ranks: Annotated[tuple[Count, ...], AtLeast(1)]
    alpha: Annotated[tuple[Duration, ...], AtLeast(1)]
    bandwidth: Annotated[tuple[Bandwidth, ...], AtLeast(1)]
    knee: tuple[Knee, ...] = field(default=(), description="volume at which protocol switches double the time")
    residual: Residual
    rows: Count | None = field(default=None, description="measurements behind the fit")
    dropped: CountOrZero = field(default=0, description="measurements left out")
    source: Text
    confidence: Confidence
    note: Text | None = None

    def check(self) -> None:
        lengths = {"ranks": len(self.ranks), "alpha": len(self.alpha), "bandwidth": len(self.bandwidth)}
        if self.knee:
            lengths["knee"] = len(self.knee)
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} {count}" for name, count in lengths.items())
            raise Told(f"the columns differ in length: {counts}", "one alpha and one bandwidth for each rank count")
        if list(self.ranks) != sorted(set(self.ranks)) or self.ranks[0] < 2:
            raise Told("the rank counts do not rise from 2 on", "ranks in ascending order, such as [2, 4, 8]")
