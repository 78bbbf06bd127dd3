"""Plans side by side: ratios with their bands, and what drives the difference.

A chip works 1 / (tok/s/chip) seconds for each output token, and every operator has a share of that (`report.why`); so
two plans differ by the sum of what their parts differ, whatever their chips and strategies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.costs.engine import Interval
from mlaplan.report import words
from mlaplan.report.why import part_of, token_cost
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlaplan.costs.machine import Op
    from mlaplan.explain import Explanation, Served
    from mlaplan.rules.rule import Question
    from mlaplan.workload import Overrides

SAME = 1e-9  # of a saved prediction, below which it is the same
FIGURES = ("tok_s_chip", "tok_s_user", "tpot_s", "ttft_s", "usd_per_mtok")
LESS_IS_BETTER = ("tpot_s", "ttft_s", "usd_per_mtok")
WORK = ("model", "prompt", "output", "load", "limits")  # what a plan is asked to do
LARGE = 0.01  # of the cost of a token, from which on a difference is worth a word


@dataclass(frozen=True, slots=True)
class Side:
    """A plan with its question. `e` is None where nothing is feasible, and `problem` then says why.

    saved_tok_s_chip: what the plan file says, where it comes from one.
    """

    name: str
    devices: int
    q: Question
    given: Overrides
    e: Explanation | None
    price: float | None
    problem: str | None = None
    saved_tok_s_chip: float | None = None

    @property
    def served(self) -> Served | None:
        return None if self.e is None else self.e.served

    def figure(self, name: str) -> Interval | None:
        """A served figure by name."""
        return None if self.served is None else getattr(self.served, name)


class Ratio(NamedTuple):
    """One figure over that of the first side; low and high with the bands' far ends; overlap: of the two bands."""

    value: float
    low: float
    high: float
    overlap: bool


class Part(NamedTuple):
    """A part of what a token costs on two sides. [chip-seconds per output token]"""

    name: str
    first_s: float
    other_s: float

    @property
    def more_s(self) -> float:
        return self.other_s - self.first_s


def ratio(first: Interval | None, other: Interval | None) -> Ratio | None:
    """other / first."""
    if first is None or other is None or not first.low > 0:
        return None
    overlap = other.low <= first.high and first.low <= other.high
    return Ratio(other.value / first.value, other.low / first.high, other.high / first.low, overlap)


def parts(first: Side, other: Side, of: Callable[[Op, str], str] = part_of) -> list[Part]:
    """What a token costs by part, as `of` names them; the largest difference first."""
    if first.e is None or other.e is None or first.served is None or other.served is None:
        return []
    a, b = token_cost(first.q, first.e, of), token_cost(other.q, other.e, of)
    found = [Part(name, a.get(name, 0.0), b.get(name, 0.0)) for name in dict.fromkeys((*a, *b))]
    return sorted(found, key=lambda part: -abs(part.more_s))


def operator(op: Op, phase: str) -> str:
    """The finest parts: each operator of each phase by itself."""
    return f"{phase} {op.name}"


def differences(sides: list[Side]) -> list[tuple[str, list[str]]]:
    """(what, its text on each side) of all that is asked differently."""
    rows = [(name, [asked(side)[name] for side in sides]) for name in asked(sides[0])]
    names = [side.name for side in sides]
    return [(name, told) for name, told in rows if len(set(told)) > 1 and told != names]


def asked(side: Side) -> dict[str, str]:
    """What a side was asked, in words."""
    s, w, given = side.q.setting, side.q.workload, side.given
    limits = [f"{n} up to {format_seconds(x)}" for n, x in (("TTFT", w.ttft_s), ("TPOT", w.tpot_s)) if x is not None]
    load = f"{w.concurrency:,} in flight" if w.concurrency is not None else ""
    load = f"{w.rate:g} requests/s" if w.rate is not None else load or "any number in flight"
    own = {
        "imbalance": given.imbalance, "tokens per step": given.tokens_per_step, "reserve": given.reserve_bytes,
        "redundant experts": given.redundant_experts or None, "merge": given.dcp_merge,
        "interleave": given.dcp_interleave, "ranks of shared experts": given.shared_ranks or None,
        "dispatch": "never" if given.gather_only else None,
    }  # fmt: skip
    return {
        "model": s.model.title,
        "chip": s.chip.name,
        "devices": f"{side.devices:,}",
        "engine": side.q.profile.label,
        "prompt": f"{w.isl:,} tokens" + (f", {w.prefix_tokens:,} cached" if w.prefix_tokens else ""),
        "output": f"{w.osl:,} tokens",
        "load": load,
        "limits": ", ".join(limits) or "none",
        "memory share": words.plain(side.q.budget.memory_fraction),
        "price": "unknown" if side.price is None else f"{side.price:.2f} USD/h",
        "own values": ", ".join(f"{name} {value}" for name, value in own.items() if value is not None) or "none",
    }


def verdict(first: Side, other: Side) -> str:
    """In a sentence: how the other side does, and whether the bands allow to say so."""
    found = ratio(first.figure("tok_s_chip"), other.figure("tok_s_chip"))
    if found is None:
        return f"{other.name}: no ratio, one of the two has no plan that is priced."
    more = found.value >= 1
    share = words.percent(abs(found.value - 1))
    said = f"{other.name} yields {share} {'more' if more else 'fewer'} tokens per chip than {first.name}"
    if abs(found.value - 1) < 0.0005:
        said = f"{other.name} yields as many tokens per chip as {first.name}"
    if found.overlap:
        return f"{said}, but the bands overlap: which is faster is not certain."
    return f"{said}, and the bands are apart."


def drivers(first: Side, other: Side, most: int = 3) -> str:
    """The operators that differ most, with the cost of a token on both sides and what binds each."""
    large = [p for p in parts(first, other, operator) if abs(p.more_s) > LARGE * _cost(first)][:most]
    if not large:
        return f"No operator of {other.name} differs by as much as {words.percent(LARGE)} of a token's cost."
    told = [
        f"{p.name} {_us(p.first_s)} to {_us(p.other_s)} ({1e6 * p.more_s:+,.1f}{_bounds(first, other, p.name)})"
        for p in large
    ]
    return f"Largest differences by operator, chip-us per output token: {'; '.join(told)}."


def _cost(side: Side) -> float:
    assert side.served is not None  # it has parts
    return 1.0 / side.served.tok_s_chip.value


def _bounds(first: Side, other: Side, name: str) -> str:
    found = [b for b in (bound(side, name) for side in (first, other)) if b]
    if not found:
        return ""
    return f", {found[0]}" if len(set(found)) == 1 else f", {found[0]} to {found[1]}"


def bound(side: Side, name: str) -> str | None:
    """What binds an operator, by the name that `operator` gives it."""
    from mlaplan.costs.machine import bound_of

    steps = {} if side.e is None else {"decode": side.e.decode, "prefill": side.e.prefill}
    return next((bound_of(op) for phase, p in steps.items() if p for op in p.ops if operator(op, phase) == name), None)


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f}"


def notes(sides: list[Side]) -> list[str]:
    """What a reader must know of the comparison."""
    out = []
    for side in sides:
        now = side.figure("tok_s_chip")
        then = side.saved_tok_s_chip
        if then is not None and now is not None and abs(now.value / then - 1) > SAME:
            out.append(
                f"{side.name} was saved with {words.plain(then)} tok/s/chip and is priced anew as "
                f"{words.plain(now.value)}: this version prices otherwise."
            )
    chips = {side.q.setting.chip.name for side in sides}
    if len(sides) > len(chips):
        out.append(
            "Bands are taken as independent. On one chip the errors of kernel fits are common to both sides, so ratios "
            "there are better known than their bands say."
        )
    missing = sorted({side.q.setting.chip.name for side in sides if side.price is None})
    if missing and len(missing) < len(chips):
        out.append(f"No price is known of {', '.join(missing)}.")
    basis = {
        side.q.setting.chip.name: side.q.setting.chip.price.confidence
        for side in sides
        if side.q.setting.chip.price is not None and side.given.price_usd_per_hour is None
    }
    if basis:
        out.append("Prices: " + ", ".join(f"{name} {how}" for name, how in basis.items()) + ".")
    return out
