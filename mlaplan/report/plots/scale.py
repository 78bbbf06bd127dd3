"""Axes for people: ticks as 1k, 4k, 32k tokens or 1, 2, 5 times a power of ten, with the unit on the axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlaplan import units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axis import Axis

TOKENS = ("isl", "osl", "prefix", "context", "prefill_chunk", "kv_tokens")


def tokens(value: float) -> str:
    """4096 -> 4k, 1048576 -> 1m, 4000 -> 4000: thousands of tokens are those of 1024, as on the command line."""
    n = round(value)
    for power, suffix in ((1024**2, "m"), (1024, "k")):
        if n >= power and n % power == 0:
            return f"{n // power}{suffix}"
    return f"{n:,}"


def number(value: float) -> str:
    """1500 -> 1,500, 2e6 -> 2M, 0.05 -> 0.05: no k, which counts 1024 tokens elsewhere."""
    size = abs(value)
    if 1000 <= size < 1e6:
        return f"{value:,.0f}"
    for factor, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if size >= factor:
            return f"{value / factor:.4g}{suffix}"
    return f"{value:.4g}"


def steps(low: float, high: float, most: int) -> list[float]:
    """At most `most` round numbers from low to high on a logarithmic axis: 1, 2, 5; else 1, 3; else powers of ten."""
    first, last = int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1
    for digits, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 4)):
        found = [d * 10.0**k for k in range(first, last, every) for d in digits]
        found = [x for x in found if low * (1 - 1e-9) <= x <= high * (1 + 1e-9)]
        if len(found) <= most:
            return found
    return found


def log_ticks(axis: Axis, low: float, high: float, most: int = 7) -> None:
    """Round numbers on a logarithmic axis of this range, no minor ticks."""
    ticks = steps(low, high, most)
    if len(ticks) < 2:  # less than a step apart: plain numbers
        ticks = [float(x) for x in np.linspace(low, high, 4)]
        ticks = [float(f"{x:.2g}") for x in ticks]
    axis.set_ticks(ticks, labels=[number(t) for t in ticks])
    axis.set_ticks([], minor=True)


def plain_ticks(axis: Axis) -> None:
    """Numbers of a linear axis as `number` writes them."""
    axis.set_major_formatter(lambda value, _position: number(value))


def value_ticks(axis: Axis, values: Sequence[float], name: str, most: int = 9) -> None:
    """Ticks at the very values of a column, thinned evenly where there are many."""
    shown = sorted(set(values))
    if len(shown) > most:
        shown = shown[:: -(-len(shown) // most)]
    axis.set_ticks(shown, labels=[tokens(v) if name in TOKENS else number(v) for v in shown])
    axis.set_ticks([], minor=True)


LABELS = {
    "isl": "prompt, tokens",
    "osl": "output, tokens",
    "prefix": "cached prompt, tokens",
    "context": "context, tokens",
    "concurrency": "requests in flight",
    "batch": "batch, sequences per attention-DP rank",
    "rate": "requests per second",
    "devices": "chips",
    "tok_s_chip": "output tokens per second and chip",
    "tok_s_user": "output tokens per second and user",
    "ttft_s": "time to first token, s",
    "tpot_s": "time per output token, s",
    "usd_per_mtok": "USD per million output tokens",
    "requests_per_s": "requests completed per second",
    "decode_comm_share": "communication, % of a decode step",
    "prefill_comm_share": "communication, % of a prefill step",
    "decode_step_s": "decode step, s",
    "prefill_step_s": "prefill step, s",
    "kv_tokens": "cached tokens per attention-DP rank",
    "weight_bytes": "weights per chip, bytes",
    "total_bytes": "memory used per chip, bytes",
    "queue_s": "wait for a slot, s",
    "in_flight": "requests in flight",
    "tokens_per_step": "tokens per step and sequence",
    "ttft_limit_s": "limit of the time to first token, s",
    "tpot_limit_s": "limit of the time per output token, s",
    "prefill_share": "prefill, share of the time",
}
UNITS_BY_END = (("_bytes", "bytes"), ("_s", "s"), ("_share", "share"), ("_tokens", "tokens"))


def axis_label(column: str) -> str:
    """What a column is called on an axis, with its unit."""
    if column in LABELS:
        return LABELS[column]
    for end, side in (("_low", "low"), ("_high", "high")):
        if column.endswith(end):
            return f"{axis_label(column.removesuffix(end))} ({side} end of the band)"
    unit = next((u for end, u in UNITS_BY_END if column.endswith(end)), None)
    words = column.replace("_", " ") if "." not in column else column
    return f"{words}, {unit}" if unit else words


def seconds_unit(largest: float) -> tuple[float, str]:
    """(factor from seconds, unit) in which the largest time has few digits: (1e3, 'ms')."""
    text = units.format_seconds(largest)
    unit = text.split(" ")[1] if largest > 0 else "s"
    return {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}[unit], unit
