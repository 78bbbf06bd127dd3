"""Values of an axis, as a person writes them: lists, steps, factors and logarithms.

    8,16,32         a list
    0:512:128       from, to, step: 0, 128, 256, 384, 512
    1:4096:x2       from, to, factor: 1, 2, 4 ... 4096
    1k:128k:log8    eight values at equal ratios, both ends among them
    1,2,8:64:8      any of these in a row

The end of a range is a value where a step meets it, and never exceeded. Whole numbers are rounded to the nearest, and
what rounds to the same value is one value. How one value is read depends on the axis: 4k tokens, 60ms, x0.5.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mlaplan.errors import MlaplanError

MOST_VALUES = 100_000
SLACK = 1e-9  # of a step, by which rounding may miss the end of a range
FORMS = "values such as 8,16,32, a range from:to:step, from:to:x2 or from:to:log8"
_FACTOR = re.compile(r"[x×*]\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)")
_LOG = re.compile(r"log\s*(\d+)")

Read = Callable[[str], Any]


class AxisError(MlaplanError):
    """Values that cannot be read: what is wrong, what was expected, a suggestion."""

    def __init__(self, problem: str, expected: str | None = None, hint: str | None = None) -> None:
        told = [problem, *([f"expected {expected}"] if expected else []), *([hint] if hint else [])]
        super().__init__("; ".join(told))
        self.problem, self.expected, self.hint = problem, expected, hint


def values(given: Any, read: Read, *, whole: bool = False, ranges: bool = True) -> list[Any]:
    """The values of an axis from text, one value, or a list of these; each once, in the order given.

    read: one value from its text. whole: the values are whole numbers. ranges: whether the axis has an order.
    """
    out: dict[Any, str] = {}
    for text in _items(given):
        found = _range(text, read, whole) if ranges and _is_range(text) else [read(text)]
        for value in found:
            if value in out:
                raise AxisError(f"{text if out[value] == text else f'{text} and {out[value]}'} holds {value} twice")
            out[value] = text
            if len(out) > MOST_VALUES:
                raise AxisError(f"more than {MOST_VALUES:,} values", "fewer values, or a larger step")
    if not out:
        raise AxisError("no value is given", FORMS if ranges else "a value, or several with commas between them")
    return list(out)


def split(text: str) -> list[str]:
    """The parts between commas that stand outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[{(":
            depth += 1
        elif c in "]})":
            depth -= 1
        elif c == "," and depth <= 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _items(given: Any) -> Iterable[str]:
    for one in given if isinstance(given, list | tuple) else [given]:
        if isinstance(one, bool):
            yield str(one).lower()
            continue
        if one is None or isinstance(one, list | dict):
            raise AxisError("an empty value" if one is None else "a value inside a value", FORMS)
        for part in split(str(one)):
            if not part.strip():
                raise AxisError(f"'{str(one).strip()}' has an empty value", FORMS)
            yield part.strip()


def _is_range(text: str) -> bool:
    return text.count(":") in (1, 2) and not text.startswith(("[", "{", '"', "'"))


def _range(text: str, read: Read, whole: bool) -> Sequence[Any]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or not all(parts):
        raise AxisError(f"'{text}' is not a range", "from:to:step, from:to:x2 or from:to:log8")
    low, high = read(parts[0]), read(parts[1])
    first, last = number(low), number(high)
    if first > last:
        raise AxisError(f"'{text}' ends below its start", f"{parts[1]}:{parts[0]}:{parts[2]}")
    if count := _LOG.fullmatch(parts[2]):
        found = _logarithmic(text, first, last, int(count[1]))
    elif factor := _FACTOR.fullmatch(parts[2]):
        found = _geometric(text, first, last, float(factor[1]))
    else:
        found = _arithmetic(text, first, last, number(read(parts[2])))
    like = type(low)
    if whole:
        return list(dict.fromkeys(like(round(value)) for value in found))
    return list(dict.fromkeys(like(value) for value in found))


def number(value: Any) -> float:
    """The number behind a value."""
    return float(value)


def _logarithmic(text: str, first: float, last: float, count: int) -> list[float]:
    _check_ratio(text, first)
    _check_count(text, count)
    if count < 2 and first != last:
        raise AxisError(f"'{text}' has one value for two ends", "at least log2")
    if count < 2 or first == last:
        return [first]
    ratio = math.log(last / first)
    inner = [first * math.exp(ratio * i / (count - 1)) for i in range(1, count - 1)]
    return [first, *(_tidy(value) for value in inner), last]


def _geometric(text: str, first: float, last: float, factor: float) -> list[float]:
    _check_ratio(text, first)
    if not factor > 1 or not math.isfinite(factor):
        raise AxisError(f"'{text}': a factor of {factor:g} leads nowhere", "a factor above 1, such as x2")
    count = math.floor(math.log(last / first) / math.log(factor) + SLACK)
    _check_count(text, count + 1)
    return [first, *(_end(first * factor**i, last) for i in range(1, count + 1))]


def _arithmetic(text: str, first: float, last: float, step: float) -> list[float]:
    if not step > 0:
        raise AxisError(f"'{text}': a step of {step:g} leads nowhere", "a step above 0")
    count = math.floor((last - first) / step + SLACK)
    _check_count(text, count + 1)
    return [first, *(_end(_tidy(first + step * i), last) for i in range(1, count + 1))]


def _check_ratio(text: str, first: float) -> None:
    if not first > 0:
        raise AxisError(f"'{text}' starts at {first:g}, from which no ratio leads on", "a start above 0")


def _check_count(text: str, count: int) -> None:
    if count < 1:
        raise AxisError(f"'{text}' has no value", "at least log2")
    if count > MOST_VALUES:
        raise AxisError(f"'{text}' has more than {MOST_VALUES:,} values", "a larger step")


def _end(value: float, last: float) -> float:
    """The value, or the end where rounding alone keeps them apart."""
    return last if math.isclose(value, last, rel_tol=SLACK) else value


def _tidy(value: float) -> float:
    """The value without the noise of its last digits: 0.3, not 0.30000000000000004."""
    return float(f"{value:.15g}")
