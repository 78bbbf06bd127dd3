"""A recommendation as data: `mlaplan.recommend/1`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlaplan.engines.load import spelled
from mlaplan.report import plan_data

if TYPE_CHECKING:
    from mlaplan.families import Family
    from mlaplan.plan import Miss
    from mlaplan.report.plan_text import Answer, Launch
    from mlaplan.report.why import Priced, Why
    from mlaplan.workload import Overrides

SCHEMA = "mlaplan.recommend/1"


def document(a: Answer, given: Overrides) -> dict[str, Any]:
    """Everything, best plan first."""
    from mlaplan.report.plan_text import rule_reasons

    found = a.found
    codes = {name.split()[0]: count for name, count in found.rejected.items()}
    reasons = rule_reasons()
    return {
        "schema": SCHEMA,
        **plan_data.asked(a, given),
        "plans": [{"rank": i, **plan_data.explanation(a.q, e)} for i, e in enumerate(found.plans, 1)],
        "front": [{"strategy": plan_data.strategy(s), **plan_data.figures(f)} for s, f in found.front],
        "families": [_family(f) for f in found.families],
        "rejected": codes,
        "rules": {code: reasons.get(code, "") for code in codes},
        "nearest_miss": _miss(found.nearest_miss, a.change),
        "why": _why(a.why) if a.why else None,
        "notes": a.notes,
        "launch": _launch(a.launch) if a.launch else None,
    }


def _family(f: Family) -> dict[str, Any]:
    return {
        "name": f.name,
        "strategy": plan_data.strategy(f.strategy),
        **plan_data.figures(f.figures),
        "feasible": f.reason is None,
        "reason": f.reason,
    }


def _miss(miss: Miss | None, change: str | None) -> dict[str, Any] | None:
    if miss is None:
        return None
    return {
        "strategy": plan_data.strategy(miss.strategy),
        "rule": miss.code,
        "slug": miss.slug,
        "detail": miss.detail,
        "change": change,
    }


def _why(w: Why) -> dict[str, Any]:
    s = w.sides
    return {
        "chip_s_per_token": w.cost,
        "next_best": None if w.other is None else {"label": w.other.strategy.label(), "chip_s_per_token": w.other_cost},
        "kv_capacity": [
            {
                "label": held.strategy.label(),
                "kv_layout": held.strategy.kv_layout,
                "kv_bytes_per_token": held.kv_bytes_per_token,
                "kv_tokens": held.rank_tokens,
                "kv_tokens_in_all": held.all_tokens,
                "sequences_in_all": held.all_sequences,
            }
            for held in w.held
        ],
        "tp_or_dp": None
        if s is None
        else {
            "chips": s.group,
            "sequences": s.sequences,
            "context_tokens": s.context,
            "cached_tokens": s.cached_tokens,
            "kv_dtype": s.kv_dtype,
            "row_bytes": s.row_bytes,
            "break_even": [{**asdict(one), "fewer_bytes": one.fewer} for one in s.even],
            "break_even_tokens_all_divided": s.all_divided_tokens,
            "priced": [_priced(p) for p in s.priced],
        },
        "gather_crossover_tokens": None
        if w.crossover is None
        else {"bf16_output_without_lse": w.crossover[0], "fp32_output_with_lse": w.crossover[1]},
    }


def _priced(p: Priced) -> dict[str, Any]:
    return {
        "weight_dtype": p.weight_dtype,
        "tp": {"label": p.tp.label(), "step_s": p.tp_step_s, "fits": p.tp_fits},
        "dp": {"label": p.dp.label(), "step_s": p.dp_step_s, "fits": p.dp_fits},
        "faster": p.faster,
        "dp_adds_s": p.change,
    }


def _launch(one: Launch) -> dict[str, Any]:
    return {"engine": spelled(one.engine), "commands": one.commands, "benchmark": one.bench, "problem": one.problem}
