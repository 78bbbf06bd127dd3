"""`mlaplan.report/1`: the figures on a page as data, embedded in it. SI, the unit in each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlaplan.report import plan_data

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides

SCHEMA = "mlaplan.report/1"


def document(
    a: Answer, free: Answer, given: Overrides, settings: Sequence[str], more: dict[str, Any]
) -> dict[str, Any]:
    """The question, the plans with their steps and memory, what was excluded; more: of the page's other sections.

    free: the same with the load left open, for its front.
    """
    miss = a.found.nearest_miss
    return {
        "schema": SCHEMA,
        **plan_data.asked(a, given),
        "settings": list(settings),
        "plans": [_plan(a, e) for e in a.found.plans],
        "front": [{"label": s.label(), "batch": s.batch, **plan_data.figures(f)} for s, f in free.found.front],
        "rejected": {name.split()[0]: count for name, count in a.found.rejected.items()},
        "nearest_miss": None if miss is None else {"label": miss.strategy.label(), "rule": miss.code},
        **more,
    }


def _plan(a: Answer, e: Explanation) -> dict[str, Any]:
    found = plan_data.explanation(a.q, e)
    steps = {}
    for name in ("decode", "prefill"):
        step = found[name]
        operators = {op["name"]: op["time_s"] for op in step["operators"]} if step else {}
        steps[name] = (
            {**{k: v for k, v in step.items() if k != "operators"}, "operators_s": operators} if step else None
        )
    strategy = plan_data.strategy(e.strategy, e.pp_layers)
    return {"strategy": strategy, "memory": found["memory"], **steps, "served": found["served"]}
