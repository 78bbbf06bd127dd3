"""Field types of the specs: a quantity with a unit, and a figure (a quantity, its source and confidence)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from mlaplan import units

Confidence = Literal["datasheet", "measured", "derived", "assumed"]
Text = Annotated[str, StringConstraints(strict=True, min_length=1, strip_whitespace=True)]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=1, le=10**9)]
CountOrZero = Annotated[int, Strict(), Field(ge=0, le=10**9)]


# (path, message, expected, names to suggest from): what a spec's `contradictions(data)` yields
Contradiction = tuple[tuple[str | int, ...], str, str, tuple[str, ...]]


class Spec(BaseModel):
    """Common settings of every mapping in a spec: fixed once read, unknown keys refused."""

    # built when a whole spec is first read, not once for each of its parts
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=False, protected_namespaces=(), defer_build=True
    )


@dataclass(frozen=True, slots=True)
class Quantity:
    """Annotation of a float read from `3.35 TB/s`: its dimension and the range that is not absurd."""

    name: str
    dimension: str
    low: float
    high: float
    open_low: bool = False

    def parse(self, raw: Any) -> float:
        """SI value of `raw`, or the error a person reads."""
        try:
            value = self._read(raw)
        except units.UnitError as error:
            raise told(error.problem, error.expected, error.hint) from None
        too_low = value <= self.low if self.open_low else value < self.low
        if too_low or value > self.high:
            shown = f"'{raw}'" if isinstance(raw, str) else str(raw)
            if value == 0:
                raise told(f"{shown} is zero", f"{units.NAMES[self.dimension][0]} above zero, or no such key")
            side = "small" if too_low else "large"
            raise told(f"{shown} is too {side} to be real", self.range_text())
        return value

    def _read(self, raw: Any) -> float:
        bare = isinstance(raw, int | float) and not isinstance(raw, bool)
        if bare and "" not in units.UNITS[self.dimension] and math.isfinite(raw):
            raise units.UnitError(f"{raw} has no unit", units.expected(self.dimension))
        if bare or isinstance(raw, str):
            return units.parse(raw, self.dimension)
        raise units.UnitError(f"{kind_of(raw)} is not a quantity", units.expected(self.dimension))

    def range_text(self) -> str:
        """`a size in bytes between 100 MB and 10 TB`"""
        low, high = (units.text(bound, self.dimension) for bound in (self.low, self.high))
        bounds = f"above {low} and up to {high}" if self.open_low else f"between {low} and {high}"
        return f"{units.NAMES[self.dimension][0]} {bounds}"

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: self.text(value), when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, _core: Any, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        example = units.NAMES[self.dimension][1]
        if "" in units.UNITS[self.dimension]:
            return {
                "type": ["number", "string"],
                "description": f"{self.range_text()}, for example {example}",
            }
        known = "|".join(re.escape(unit) for unit in units.UNITS[self.dimension])
        return {
            "type": "string",
            "description": f"{self.range_text()}, for example {example}",
            "pattern": rf"^\s*[0-9][0-9_]*(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*({known})\s*$",
            "examples": [example],
        }

    def text(self, value: float) -> str | float:
        """The value as a spec would write it; reading that again gives the same float."""
        return value if "" in units.UNITS[self.dimension] else units.text(value, self.dimension)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotation of a text from a fixed list: like Literal, but plain `str` to a type checker."""

    choices: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.choices))


Q = TypeVar("Q")


class Figure(Spec, Generic[Q]):
    """A sourced number in SI. `low` and `high` bound it where it is not known better."""

    value: Q
    low: Q | None = None
    high: Q | None = None
    source: Text
    confidence: Confidence
    note: Text | None = None

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """`Figure_capacity`: a readable name in the JSON Schema."""
        quantity = next((m for m in getattr(params[0], "__metadata__", ()) if isinstance(m, Quantity)), None)
        return f"Figure_{quantity.name}" if quantity else super().model_parametrized_name(params)

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, data: Any) -> Any:
        if isinstance(data, str | int | float):
            raise told(
                f"{kind_of(data)} stands where a figure with its source is needed",
                f'{{value: {data}, source: "...", confidence: datasheet}}',
            )
        return data

    @model_validator(mode="after")
    def _is_ordered(self) -> Figure[Q]:
        low, value, high = self.bounds
        if not low <= value <= high:
            at_low, at_value, at_high = (units.format_quantity(x, self.dimension()) for x in (low, value, high))
            raise told(f"the range {at_low} to {at_high} does not hold {at_value}", "low <= value <= high")
        return self

    @classmethod
    def dimension(cls) -> str:
        """The dimension of the figure's value, such as `bytes/s`."""
        return next(m.dimension for m in cls.model_fields["value"].metadata if isinstance(m, Quantity))

    def __float__(self) -> float:
        return float(self.value)  # type: ignore[arg-type]

    @property
    def bounds(self) -> tuple[float, float, float]:
        """(low, value, high), the value itself where a bound is not given."""
        value = float(self)
        low = value if self.low is None else float(self.low)  # type: ignore[arg-type]
        high = value if self.high is None else float(self.high)  # type: ignore[arg-type]
        return low, value, high


def told(message: str, expected: str | None = None, hint: str | None = None) -> PydanticCustomError:
    """An error whose words reach the user unchanged."""
    context = {"message": message, "expected": expected or "", "hint": hint or ""}
    return PydanticCustomError("told", "{message}", context)


def contradiction(found: list[Contradiction]) -> PydanticCustomError:
    """The error of data whose parts do not fit each other; files are told each part by `validate` instead."""
    message = "; ".join(f"{'.'.join(map(str, path))}: {text}" for path, text, *_ in found)
    return PydanticCustomError("contradiction", "{message}", {"message": message})


def kind_of(raw: Any) -> str:
    if raw is None:
        return "an empty value"
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, dict):
        return "a mapping"
    if isinstance(raw, list):
        return "a list"
    return f"'{raw}'" if isinstance(raw, str) else str(raw)


# Quantities of the specs, each with the range outside of which the number is a slip of unit or exponent
Cores = Annotated[float, Quantity("cores", "count", 1, 1e5)]
Clock = Annotated[float, Quantity("clock", "hz", 5e7, 1e10)]
Flops = Annotated[float, Quantity("compute", "flop/s", 1e9, 1e17)]
Capacity = Annotated[float, Quantity("capacity", "bytes", 1e8, 1e13)]
OnChipCapacity = Annotated[float, Quantity("on_chip_capacity", "bytes", 64, 1e11)]
Bandwidth = Annotated[float, Quantity("bandwidth", "bytes/s", 1e8, 1e16)]
Duration = Annotated[float, Quantity("duration", "s", 1e-10, 1)]
Fraction = Annotated[float, Quantity("fraction", "fraction", 0, 1, open_low=True)]
Slowdown = Annotated[float, Quantity("slowdown", "count", 0, 100)]
FractionOrZero = Annotated[float, Quantity("fraction_or_zero", "fraction", 0, 1)]
Price = Annotated[float, Quantity("price", "usd/h", 1e-3, 1e4)]
Power = Annotated[float, Quantity("power", "w", 1, 1e5)]
Parameters = Annotated[float, Quantity("parameters", "count", 1e6, 1e14)]
