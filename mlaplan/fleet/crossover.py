"""Prefill and decode apart against together, and where one overtakes the other as prompts grow against outputs.

The same chips serve requests of the same length in all, divided into prompt and output at several ratios, each way by
its own best plan for that ratio under the load and limits that were asked for. Where the better one changes between two
ratios, the crossover is interpolated on the logarithms of ratio and throughput.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log
from typing import TYPE_CHECKING, Any

from mlaplan.fleet.split import Ask, split
from mlaplan.search import Found, joined, search

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question

SHARES = (1 / 9, 1 / 3, 1 / 2, 2 / 3, 8 / 9, 32 / 33)  # of a request that are prompt, beside what was asked


@dataclass(frozen=True, slots=True)
class Point:
    """One ratio: tokens per second and chip together and apart, None where the service level is missed; P:D chips."""

    isl: int
    osl: int
    together: float | None
    apart: float | None
    prefill_chips: int
    decode_chips: int

    @property
    def ratio(self) -> float:
        return self.isl / self.osl

    @property
    def apart_wins(self) -> bool:
        return (self.apart or 0.0) > (self.together or 0.0)


@dataclass(frozen=True, slots=True)
class Both:
    """What is compared: the questions of both ways, and what is pinned of their strategies."""

    together: Question
    prefill: Question
    decode: Question
    ask: Ask
    pins: Mapping[str, Any]
    split_pins: Mapping[str, Any]
    tokens: float | None


def points(of: Both) -> list[Point]:
    """Both ways at every ratio, rising; load and limits as asked."""
    work = of.together.workload
    whole = work.isl + work.osl
    isls = sorted({work.isl, *(min(max(round(whole * share), 1), whole - 1) for share in SHARES)})
    return [_point(of, isl, whole - isl) for isl in isls]


def _point(of: Both, isl: int, osl: int) -> Point:
    together, prefill, decode = (at(q, isl, osl) for q in (of.together, of.prefill, of.decode))
    found = Found()
    search(together, of.ask.devices, "throughput", of.pins, of.tokens, found)
    best = float(joined(found.rows)["tok_s_chip"].max()) if found.rows else None
    two = split(prefill, decode, of.ask, of.split_pins, of.tokens)
    if two is None:
        return Point(isl, osl, best, None, 0, 0)
    return Point(isl, osl, best, two.tok_s_chip, two.prefill.chips, two.decode.chips)


def at(q: Question, isl: int, osl: int) -> Question:
    """The question for other lengths, with the same share of the prompt found in the cache."""
    work, shared = q.workload, q.budget.shared
    prefix = min(round(work.prefix_tokens / work.isl * isl), isl - 1)
    if shared is not None:
        shared = shared._replace(tokens=prefix) if prefix else None
    groups = work.prefix_groups if prefix else None
    work = replace(work, isl=isl, osl=osl, prefix_tokens=prefix, prefix_groups=groups)
    return replace(q, workload=work, budget=q.budget._replace(max_context=work.max_context, shared=shared))


def crossings(found: list[Point]) -> list[float]:
    """ISL:OSL where the better way changes."""
    out = []
    for a, b in pairwise(found):
        if a.apart_wins == b.apart_wins:
            continue
        if not all((a.together, a.apart, b.together, b.apart)):
            out.append(b.ratio if b.apart_wins else a.ratio)
            continue
        before, after = (log(p.apart / p.together) for p in (a, b))  # type: ignore[operator]
        share = before / (before - after) if before != after else 0.5
        out.append(exp(log(a.ratio) + share * (log(b.ratio) - log(a.ratio))))
    return out
