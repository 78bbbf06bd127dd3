"""A comparison as data: `mlaplan.compare/1`. SI, the unit in each key; ratios are to the first side."""

from __future__ import annotations

from typing import Any

from mlaplan.report import comparison, plan_data
from mlaplan.report.comparison import FIGURES, Part, Side

SCHEMA = "mlaplan.compare/1"


def document(sides: list[Side]) -> dict[str, Any]:
    """Every side with its question, plan and figures; every further one against the first."""
    from mlaplan import __version__

    names = [side.name for side in sides]
    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "asked_differently": {
            what: dict(zip(names, told, strict=True)) for what, told in comparison.differences(sides)
        },
        "sides": [_side(side) for side in sides],
        "against_first": [_against(sides[0], other) for other in sides[1:]],
        "notes": comparison.notes(sides),
    }


def _side(side: Side) -> dict[str, Any]:
    subject = plan_data.subject(side.q)
    del subject["tool_version"]
    plan = None if side.e is None else plan_data.explanation(side.q, side.e)
    used = 0 if side.e is None else side.e.strategy.devices
    rate = side.figure("tok_s_chip")
    return {
        "name": side.name,
        **subject,
        "devices": side.devices,
        "workload": plan_data.workload(side.q),
        "overrides": plan_data.overrides(side.q, side.given),
        "price_usd_per_h": side.price,
        "feasible": side.e is not None,
        "problem": side.problem,
        "tok_s": None if rate is None else rate.value * used,
        "saved_tok_s_chip": side.saved_tok_s_chip,
        "plan": plan,
    }


def _against(first: Side, other: Side) -> dict[str, Any]:
    ratios = {}
    for name in FIGURES:
        found = comparison.ratio(first.figure(name), other.figure(name))
        ratios[name] = None if found is None else found._asdict()
    return {
        "name": other.name,
        "ratios": ratios,
        "verdict": comparison.verdict(first, other),
        "chip_s_per_token": [_part(p) for p in comparison.parts(first, other)],
        "operators": [
            {**_part(p), "first_bound": comparison.bound(first, p.name), "other_bound": comparison.bound(other, p.name)}
            for p in comparison.parts(first, other, comparison.operator)
        ],
    }


def _part(p: Part) -> dict[str, Any]:
    return {"name": p.name, "first_s": p.first_s, "other_s": p.other_s, "difference_s": p.more_s}
