"""Annotations of the fields of specs: what a text, a number or a list must be like.

Each gives pydantic its schema when asked, and imports it only then. `read` takes a value from data that is known
to be right, `text` writes it back as a file has it.

None is changed or compared once it is made; frozen classes would take twice as long to make.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from mlaplan import units
from mlaplan.specs.spec import Told


@dataclass(slots=True, eq=False)
class Quantity:
    """A float read from `3.35 TB/s`: its dimension and the range that is not absurd."""

    name: str
    dimension: str
    low: float
    high: float
    open_low: bool = False

    def read(self, raw: Any) -> float:
        """SI value of `raw`, or the error a person reads."""
        try:
            value = self._read(raw)
        except units.UnitError as error:
            raise Told(error.problem, error.expected, error.hint) from None
        too_low = value <= self.low if self.open_low else value < self.low
        if too_low or value > self.high:
            shown = f"'{raw}'" if isinstance(raw, str) else str(raw)
            if value == 0:
                raise Told(f"{shown} is zero", f"{units.NAMES[self.dimension][0]} above zero, or no such key")
            side = "small" if too_low else "large"
            raise Told(f"{shown} is too {side} to be real", self.range_text())
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

    def text(self, value: float) -> str | float:
        """The value as a spec would write it; reading that again gives the same float."""
        return value if "" in units.UNITS[self.dimension] else units.text(value, self.dimension)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _core: Any, _handler: Any) -> dict[str, Any]:
        example = units.NAMES[self.dimension][1]
        described = f"{self.range_text()}, for example {example}"
        if "" in units.UNITS[self.dimension]:
            return {"type": ["number", "string"], "description": described}
        known = "|".join(re.escape(unit) for unit in units.UNITS[self.dimension])
        return {
            "type": "string",
            "description": described,
            "pattern": rf"^\s*[0-9][0-9_]*(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*({known})\s*$",
            "examples": [example],
        }


@dataclass(slots=True, eq=False)
class OneOf:
    """A text from a fixed list: like Literal, but plain `str` to a type checker."""

    choices: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.literal_schema(list(self.choices))


@dataclass(slots=True, eq=False)
class Words:
    """A text that is not empty, white space around it taken off; of a pattern, if there is one."""

    pattern: str | None = None

    @staticmethod
    def read(raw: str) -> str:
        return raw.strip()

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.str_schema(strict=True, min_length=1, strip_whitespace=True, pattern=self.pattern)


@dataclass(slots=True, eq=False)
class Whole:
    """A whole number from `low` on."""

    low: int
    high: int = 10**9

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.int_schema(strict=True, ge=self.low, le=self.high)


@dataclass(slots=True, eq=False)
class TrueOrFalse:
    """A truth value and nothing that could be taken for one."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.bool_schema(strict=True)


@dataclass(slots=True, eq=False)
class AtLeast:
    """A list or mapping with so many entries or more."""

    entries: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "min_length": self.entries}


@dataclass(slots=True, eq=False)
class ByKind:
    """A mapping of one of several types, told apart by its key `kind`."""

    kinds: tuple[tuple[str, Any], ...]

    def read(self, data: dict[str, Any]) -> Any:
        return dict(self.kinds)[data["kind"]].read(data)

    def __get_pydantic_core_schema__(self, _source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        choices = {kind: handler.generate_schema(spec) for kind, spec in self.kinds}
        return core_schema.tagged_union_schema(choices, discriminator="kind")


def kind_of(raw: Any) -> str:
    """A value of a file in words, for a message."""
    if raw is None:
        return "an empty value"
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, dict):
        return "a mapping"
    if isinstance(raw, list):
        return "a list"
    return f"'{raw}'" if isinstance(raw, str) else str(raw)
