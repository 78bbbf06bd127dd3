"""Field types of the specs: texts, counts, quantities with a unit, and figures with their source."""

from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from mlaplan import units
from mlaplan.specs.marks import Quantity, TrueOrFalse, Whole, Words, kind_of
from mlaplan.specs.spec import Contradicted, Spec, Told

Confidence = Literal["datasheet", "measured", "derived", "assumed"]
Text = Annotated[str, Words()]
Flag = Annotated[bool, TrueOrFalse()]
Count = Annotated[int, Whole(1)]
CountOrZero = Annotated[int, Whole(0)]


# (path, message, expected, names to suggest from): what a spec's `contradictions(data)` yields
Contradiction = tuple[tuple[str | int, ...], str, str, tuple[str, ...]]

Q = TypeVar("Q")


class Figure(Spec, Generic[Q]):
    """A sourced number in SI. `low` and `high` bound it where it is not known better.

    `Figure[Bandwidth]` is a class of its own, of figures of that quantity.
    """

    value: Q
    low: Q | None = None
    high: Q | None = None
    source: Text
    confidence: Confidence
    note: Text | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, quantity: Any) -> Any:
            if quantity not in _FIGURES and hasattr(quantity, "__metadata__"):
                name = f"Figure_{mark_of(quantity).name}"  # readable in the JSON Schema
                types = {"value": quantity, "low": quantity | None, "high": quantity | None}
                body = {"__module__": cls.__module__, "__annotations__": types}
                body |= {"low": None, "high": None}
                _FIGURES[quantity] = type(name, (Figure,), body)
            return _FIGURES.get(quantity, cls)

    @classmethod
    def prepare(cls, data: Any) -> Any:
        if isinstance(data, str | int | float):
            raise Told(
                f"{kind_of(data)} stands where a figure with its source is needed",
                f'{{value: {data}, source: "...", confidence: datasheet}}',
            )
        return data

    def check(self) -> None:
        low, value, high = self.bounds
        if not low <= value <= high:
            at_low, at_value, at_high = (units.format_quantity(x, self.dimension()) for x in (low, value, high))
            raise Told(f"the range {at_low} to {at_high} does not hold {at_value}", "low <= value <= high")

    @classmethod
    def dimension(cls) -> str:
        """The dimension of the figure's value, such as `bytes/s`."""
        return mark_of(cls.model_fields["value"].annotation).dimension

    def __float__(self) -> float:
        return float(self.value)  # type: ignore[arg-type]

    @property
    def bounds(self) -> tuple[float, float, float]:
        """(low, value, high), the value itself where a bound is not given."""
        value = float(self)
        low = value if self.low is None else float(self.low)  # type: ignore[arg-type]
        high = value if self.high is None else float(self.high)  # type: ignore[arg-type]
        return low, value, high


_FIGURES: dict[Any, Any] = {}


def mark_of(quantity: Any) -> Quantity:
    """The Quantity that annotates a type."""
    return next(mark for mark in quantity.__metadata__ if isinstance(mark, Quantity))


def contradiction(found: list[Contradiction]) -> Contradicted:
    """The error of data whose parts do not fit each other; files are told each part by `validate` instead."""
    return Contradicted("; ".join(f"{'.'.join(map(str, path))}: {text}" for path, text, *_ in found))


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
