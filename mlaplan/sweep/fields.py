"""What can be an axis: the fields of a question, how each value is read, and in which order axes vary.

Fields that change the specs vary slowest and the load varies fastest, so that neighbouring points have most of their
prices in common.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mlaplan import units
from mlaplan.errors import did_you_mean
from mlaplan.strategy import KV_DTYPES, KV_LAYOUTS, WEIGHT_DTYPES
from mlaplan.sweep.grammar import AxisError, Read

MOST = 1_000_000  # of anything countable: products of such numbers with bytes stay within 64 bits
MOST_TOKENS = 100_000_000
MOST_DRAFTS = 16
PIN = "pin."


class Field(NamedTuple):
    """One field. `kind`: of its column; `ranges`: whether its values have an order."""

    name: str
    column: str
    kind: str
    read: Read
    help: str
    ranges: bool = True

    @property
    def whole(self) -> bool:
        return self.kind == "int"


def _name(text: str) -> str:
    return text


def _engine(text: str) -> str:
    """One spelling in rows and keys, whichever of both was given."""
    return text.replace("_", "-")


def count(least: int, most: int = MOST) -> Read:
    """Reads a whole number."""

    def read(text: str) -> int:
        digits = text.replace("_", "")
        if not digits.isdecimal():
            raise AxisError(f"'{text}' is not a whole number", "a whole number such as 8")
        if not least <= int(digits) <= most:
            raise AxisError(f"{text} is out of range", f"a whole number from {least} to {most:,}")
        return int(digits)

    return read


def _tokens(least: int) -> Read:
    def read(text: str) -> int:
        found: int = _told(units.parse_tokens, text)
        if not least <= found <= MOST_TOKENS:
            raise AxisError(f"{text} is out of range", f"from {least} to {MOST_TOKENS:,} tokens")
        return found

    return read


def _quantity(dimension: str) -> Read:
    def read(text: str) -> float:
        value: float = _told(units.parse, text, dimension)
        if not value > 0:
            raise AxisError(f"{text} is not above 0", units.expected(dimension))
        return value

    return read


def _told(parse: Callable[..., Any], *given: Any) -> Any:
    try:
        return parse(*given)
    except units.UnitError as error:
        raise AxisError(error.problem, error.expected, error.hint) from None


def _word(choices: tuple[str, ...]) -> Read:
    def read(text: str) -> str:
        word = text.replace("-", "_")
        if word not in choices:
            raise AxisError(f"'{text}' is not known here", f"one of {', '.join(choices)}", did_you_mean(word, choices))
        return word

    return read


def _flag(text: str) -> int:
    known = {"true": 1, "on": 1, "yes": 1, "1": 1, "false": 0, "off": 0, "no": 0, "0": 0}
    if text.lower() not in known:
        raise AxisError(f"'{text}' is neither on nor off", "on or off")
    return known[text.lower()]


def prefix(text: str) -> int | float:
    """Cached prompt tokens as a whole number, or their share of the prompt as a fraction: 0.5, 50 %."""
    if text.rstrip().endswith("%") or ("." in text and text.strip()[-1:] not in "kKmM"):
        share: float = _told(units.parse, text, "fraction")
        if not 0 <= share < 1:
            raise AxisError(f"{text} is more than a part of the prompt", "a share below 1")
        return share
    return _tokens(0)(text)


def _pin(name: str, read: Read, text: str, kind: str = "int") -> Field:
    return Field(name, PIN + name, kind, read, text, kind == "int")


SPECS = (
    Field("model", "model", "text", _name, "models by name or file", False),
    Field("chips", "chip", "text", _name, "chips by name or file", False),
    Field("engine", "engine", "text", _engine, "engines, each with or without a version", False),
)
PINS = (
    _pin("tp", count(1), "ranks that share the attention heads"),
    _pin("pp", count(1), "pipeline stages"),
    _pin("dp", count(1), "attention data-parallel ranks of a stage"),
    _pin("ep", count(1), "ranks that share the experts"),
    _pin("dcp", count(1), "decode context parallelism"),
    _pin("cp", count(1), "prefill context parallelism"),
    _pin("replicas", count(1), "copies of the whole model"),
    _pin("kv_layout", _word(KV_LAYOUTS), "how a TP group holds the cache", "text"),
    _pin("kv_dtype", _word(KV_DTYPES), "dtype of the cache", "text"),
    _pin("weight_dtype", _word(tuple(w for w in WEIGHT_DTYPES if w != "fp32")), "dtype of the weights", "text"),
    _pin("block_size", count(1), "tokens in a block of the cache"),
    _pin("prefill_chunk", _tokens(1), "most prompt tokens in one step of a rank"),
    _pin("two_batch_overlap", _flag, "compute on half a batch while the other communicates"),
    _pin("mtp", count(0, MOST_DRAFTS), "tokens drafted a step"),
    _pin("batch", count(1), "sequences in flight per attention-DP rank"),
)
WORK = (
    Field("devices", "devices", "int", count(1), "chips to plan for"),
    Field("prefix", "prefix", "int", prefix, "prompt tokens found in the cache, or their share"),
    Field("isl", "isl", "int", _tokens(1), "prompt tokens of a request"),
    Field("osl", "osl", "int", _tokens(1), "output tokens of a request"),
    Field("ttft", "ttft_limit_s", "float", _quantity("s"), "longest time to the first token"),
    Field("tpot", "tpot_limit_s", "float", _quantity("s"), "longest time per output token"),
    Field("rate", "rate", "float", _quantity("rate"), "requests that arrive per second"),
    Field("concurrency", "concurrency", "int", count(1), "requests in flight in the whole deployment"),
)
FIELDS = {field.name: field for field in (*SPECS, *PINS, *WORK)}
# slowest first; figures of a model or a chip come after the model or the chip
ORDER = ("model", "chips", "engine", "devices", *(p.name for p in PINS), *(w.name for w in WORK[1:]))
