"""Quantities with units: text to SI floats and back. GB is 1e9 bytes, GiB is 2^30.

Inside the program every number is SI (bytes, seconds, FLOP/s, bytes/s); outside, a person's units. The unit
of a text must belong to the dimension that its reader expects, so `80 GB/s` is never a capacity.
"""

from __future__ import annotations

import math
import re

from mlaplan.errors import MlaplanError, nearest

DECIMAL = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

_SIZES = {"B": 1.0} | {f"{p}B": f for p, f in (DECIMAL | BINARY).items()} | {"KB": 1e3}
_BITS = {"bit": 1 / 8} | {f"{p}{b}": f / 8 for p, f in DECIMAL.items() for b in ("b", "bit")}
_BYTE_RATES = {f"{u}{per}": f for u, f in _SIZES.items() for per in ("/s", "ps")}
_BIT_RATES = {f"{u}{per}": f for u, f in _BITS.items() for per in ("/s", "ps")}

# dimension -> unit text -> factor to SI; the empty unit is listed where a bare number has one meaning only
UNITS: dict[str, dict[str, float]] = {
    "bytes": _SIZES,
    "bytes/s": _BYTE_RATES | _BIT_RATES,
    "flop/s": {f"{p}{u}": f for p, f in ({"": 1.0} | DECIMAL).items() for u in ("FLOPS", "FLOP/s", "OPS", "OP/s")},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    "hz": {"Hz": 1.0} | {f"{p}Hz": f for p, f in DECIMAL.items()},
    "w": {"W": 1.0, "kW": 1e3},
    "usd/h": {"": 1.0, "USD/h": 1.0, "usd/h": 1.0, "$/h": 1.0, "USD/hour": 1.0, "$/hour": 1.0, "$/hr": 1.0},
    "count": {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12},
    "fraction": {"": 1.0, "%": 1e-2},
    "rate": {"": 1.0, "/s": 1.0, "1/s": 1.0, "req/s": 1.0, "requests/s": 1.0},
}
UNITS["1/s"] = UNITS["rate"]

# dimension -> (what to call it, an example of it)
NAMES: dict[str, tuple[str, str]] = {
    "bytes": ("a size in bytes", "80 GB"),
    "bytes/s": ("a rate in bytes per second", "3.35 TB/s"),
    "flop/s": ("a compute rate", "989 TFLOPS"),
    "s": ("a time", "17.4 us"),
    "hz": ("a frequency", "1.83 GHz"),
    "w": ("a power", "700 W"),
    "usd/h": ("a price per hour", "2.50 USD/h"),
    "count": ("a plain number", "128"),
    "fraction": ("a fraction", "0.8"),
    "rate": ("a rate per second", "12.5 /s"),
}
NAMES["1/s"] = NAMES["rate"]

_NUMBER = r"[+-]?(?:\d+(?:_\d+)*)?(?:\.\d*)?(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"(?P<currency>\$?)\s*(?P<number>{_NUMBER})\s*(?P<unit>.*)", re.DOTALL)
_NOT_FINITE = re.compile(r"[+-]?\.?(nan|inf|infinity)\b", re.IGNORECASE)


class UnitError(MlaplanError, ValueError):
    """A quantity that cannot be read: what is wrong with it, what was expected, and a suggestion."""

    def __init__(self, problem: str, expected: str, hint: str | None = None) -> None:
        super().__init__("; ".join(part for part in (problem, f"expected {expected}", hint) if part))
        self.problem = problem
        self.expected = expected
        self.hint = hint


def expected(dimension: str) -> str:
    """What a field of this dimension wants: `a size in bytes such as '80 GB'`."""
    name, example = NAMES[dimension]
    return f"{name} such as '{example}'"


def parse(text: str | int | float, dimension: str) -> float:
    """SI value of a quantity; a number is taken as SI already. Refuses negative, NaN and infinite values."""
    if isinstance(text, bool):
        raise UnitError(f"{str(text).lower()} is not a quantity", expected(dimension))
    if isinstance(text, int | float):
        return _checked(float(text) if abs(text) < 1e300 else math.inf, str(text), dimension)
    shown = f"'{_shortened(text)}'"
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or not re.match(r"[+-]?\.?\d", match["number"]):
        if _NOT_FINITE.match(text.strip()):
            raise UnitError(f"{shown} is not a finite number", expected(dimension))
        raise UnitError(f"{shown} is not a quantity", expected(dimension))
    unit = match["unit"].strip()
    if match["currency"]:
        unit = f"${unit}" if unit.startswith("/") else "$/h" if not unit else f"${unit}"
    if (factor := UNITS[dimension].get(unit)) is None:
        raise _wrong_unit(shown, match["number"], unit, dimension)
    number = float(match["number"])
    # dividing keeps '17.4 us' equal to 17.4e-6, which multiplying by an inexact 1e-6 would not
    scaled = number / round(1 / factor) if factor < 1 else number * factor
    return _checked(scaled, shown, dimension)


def _checked(value: float, shown: str, dimension: str) -> float:
    if not math.isfinite(value):
        raise UnitError(f"{shown} is not a finite number", expected(dimension))
    if value < 0:
        raise UnitError(f"{shown} is negative", expected(dimension))
    return value + 0.0  # no negative zero


def _wrong_unit(shown: str, number: str, unit: str, dimension: str) -> UnitError:
    name, example = NAMES[dimension]
    if not unit:
        return UnitError(f"{shown} has no unit", f"{name} such as '{example}'")
    if unit.startswith(",") or re.match(r"[,'’\s]\d", unit):
        return UnitError(f"{shown} has a thousands separator", expected(dimension), "write it without, or as 1e6")
    owner = next((other for other, units in UNITS.items() if unit in units), None)
    if owner is not None:
        return UnitError(f"{shown} is {NAMES[owner][0]}", expected(dimension))
    if dimension == "bytes" and unit in _BITS:
        return UnitError(f"{shown} is a number of bits", expected(dimension), f"did you mean '{number} {unit[0]}B'?")
    problem = f"{shown} has the unknown unit '{_shortened(unit)}'"
    best = nearest(unit, (known for known in UNITS[dimension] if known))
    return UnitError(problem, expected(dimension), f"did you mean '{number} {best}'?" if best else None)


def _shortened(text: str, limit: int = 40) -> str:
    text = text.strip()
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return printable if len(printable) <= limit else printable[: limit - 3] + "..."


def parse_tokens(text: str | int) -> int:
    """A number of tokens; `k` and `m` count in 1024: 4k is 4096, 1m is 1048576."""
    wanted = "a number of tokens such as 4096 or 4k"
    if isinstance(text, int) and not isinstance(text, bool):
        value = float(text)
    else:
        match = re.fullmatch(r"([+-]?\d+(?:_\d+)*(?:\.\d+)?)\s*([kKmM]?)", str(text).strip())
        if match is None:
            raise UnitError(f"'{_shortened(str(text))}' is not a number of tokens", wanted)
        value = float(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]
    if value < 0:
        raise UnitError(f"{text} is negative", wanted)
    if value != int(value):
        raise UnitError(f"{text} is not a whole number of tokens", wanted)
    return int(value)


def text(value: float, dimension: str) -> str:
    """The shortest text that `parse` reads back to exactly `value`: 3.35e12 -> '3.35 TB/s'."""
    unit_of = {"bytes": "B", "bytes/s": "B/s", "flop/s": "FLOPS", "hz": "Hz", "w": "W"}
    if dimension in unit_of:
        base = unit_of[dimension]
        candidates = [f"{p}{base}" for p in [*DECIMAL, *BINARY, ""] if f"{p}{base}" in UNITS[dimension]]
    elif dimension == "s":
        candidates = ["us", "ms", "ns", "s"]
    else:
        candidates = {"usd/h": ["USD/h"], "rate": ["/s"], "1/s": ["/s"]}.get(dimension, [""])
    exact: list[tuple[bool, int, str]] = []
    for unit in candidates:
        factor = UNITS[dimension][unit]
        number = value * round(1 / factor) if factor < 1 else value / factor
        for shown in (f"{number:.12g}", repr(number)):
            written = f"{shown} {unit}".strip()
            if parse(written, dimension) == value:
                exact.append((not 1 <= number < 1000, len(written), written))
    return min(exact)[2] if exact else f"{value!r} {candidates[-1]}".strip()


# For people: three or four significant figures, the unit that keeps the number between 1 and 1000.


def format_bytes(value: float, *, binary: bool = False) -> str:
    """80e9 -> '80.0 GB'; binary: '74.5 GiB'."""
    return _scaled(value, "B", BINARY if binary else DECIMAL)


def format_bytes_both(value: float) -> str:
    """150.1e9 -> '150.1 GB (139.8 GiB)'."""
    return f"{format_bytes(value)} ({format_bytes(value, binary=True)})"


def format_bytes_per_s(value: float) -> str:
    """3.35e12 -> '3.35 TB/s'."""
    return _scaled(value, "B/s", DECIMAL)


def format_flops(value: float) -> str:
    """989e12 -> '989 TFLOPS'."""
    return _scaled(value, "FLOPS", DECIMAL)


def format_hz(value: float) -> str:
    """1.83e9 -> '1.83 GHz'."""
    return _scaled(value, "Hz", DECIMAL)


def format_seconds(value: float) -> str:
    """17.4e-6 -> '17.4 us', 0.061 -> '61.0 ms', 4.2 -> '4.20 s'."""
    if value == 0:
        return "0 s"
    for unit, factor in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if abs(value) < 999.5 * factor:
            return f"{_three(value / factor)} {unit}"
    return f"{_three(value)} s"


def format_count(value: float) -> str:
    """671.03e9 -> '671.0 B', 128 -> '128'."""
    if abs(value) < 10_000 and value == int(value):
        return str(int(value))
    for prefix, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {prefix}"
    return _three(value)


def format_percent(value: float) -> str:
    """0.8 -> '80 %', 0.055 -> '5.5 %'."""
    return f"{value * 100:.3g} %"


def format_rate(value: float) -> str:
    """12.5 -> '12.5 /s'."""
    return f"{_three(value)} /s"


def format_usd_per_h(value: float) -> str:
    """2.5 -> '2.50 USD/h'."""
    return f"{value:.2f} USD/h"


def format_quantity(value: float, dimension: str) -> str:
    """A value of any dimension, for people."""
    return {
        "bytes": format_bytes,
        "bytes/s": format_bytes_per_s,
        "flop/s": format_flops,
        "s": format_seconds,
        "hz": format_hz,
        "w": lambda w: f"{w:.0f} W",
        "usd/h": format_usd_per_h,
        "count": format_count,
        "fraction": format_percent,
        "rate": format_rate,
        "1/s": format_rate,
    }[dimension](value)


def _scaled(value: float, unit: str, prefixes: dict[str, float]) -> str:
    for prefix, factor in reversed(prefixes.items()):
        if abs(value) >= factor * 0.9995:
            return f"{_three(value / factor)} {prefix}{unit}"
    return f"{_three(value)} {unit}"


def _three(value: float) -> str:
    """Three significant figures, more only for whole thousands; never an exponent for everyday sizes."""
    magnitude = abs(value)
    if magnitude >= 99.95 or value == 0:
        return f"{value:.0f}" if magnitude >= 999.5 or abs(value - round(value)) < 0.05 else f"{value:.1f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 0.9995 else f"{value:.3g}"
