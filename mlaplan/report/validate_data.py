"""`mlaplan.validate/1`: every point with its prediction, the groups, the bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.engines.load import spelled
from mlaplan.validation.score import KEYS, chip_of, grouped, ratable, summary

if TYPE_CHECKING:
    from mlaplan.costs.engine import Interval
    from mlaplan.validation.bars import Bar
    from mlaplan.validation.run import Run
    from mlaplan.validation.score import Scored, Summary

SCHEMA = "mlaplan.validate/1"
UNITS = {"time": "s", "step": "s", "tpot": "s", "ttft": "s", "bandwidth": "bytes/s", "flops": "flop/s"}


def document(run: Run, by: str) -> dict[str, Any]:
    """All of a run as plain data, in SI."""
    from mlaplan import __version__

    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "sets": list(run.sets),
        "bars": [bar_data(b) for b in run.bars],
        "groups": [{by: name, **summary_data(s)} for name, s in groups(run, by)],
        "ratios": [
            {
                "id": r.ratio.id, "topic": r.ratio.topic, "grade": r.ratio.grade, "use": r.ratio.use,
                "measured": r.measured, "predicted": interval(r.predicted), "sign_right": r.sign_right,
            }
            for r in run.ratios
        ],
        "decisions": [
            {
                "id": d.decision.id, "question": d.decision.question, "first": d.chosen, "measured_best": d.best,
                "share_of_best": d.share,
            }
            for d in run.decisions
        ],
        "rejected": [{"id": p.id, "flags": why} for p, why in run.rejected],
        "points": [point_data(s) for s in run.scored],
        "notes": run.notes,
    }  # fmt: skip


def groups(run: Run, by: str) -> list[tuple[str, Summary]]:
    """Errors by group, chip or engine, in order of appearance."""
    found = grouped(ratable(run.scored), KEYS[by])
    return [
        (spelled(name) if by == "engine" else name, s)
        for name, scored in found.items()
        if (s := summary(scored)) is not None
    ]


def interval(value: Interval) -> dict[str, float]:
    return {"value": value.value, "low": value.low, "high": value.high}


def bar_data(b: Bar) -> dict[str, Any]:
    return {
        "id": b.id, "set": b.set, "title": b.title, "limit": b.limit, "value": b.value, "met": b.met,
        "elsewhere": b.elsewhere or None, "why": list(b.why), "points": list(b.ids),
    }  # fmt: skip


def summary_data(s: Summary) -> dict[str, Any]:
    return {
        "points": s.count, "held_out": s.held_out, "mape": s.mape, "bias": s.bias, "median": s.median, "p90": s.p90,
        "worst": s.worst, "worst_id": s.worst_id, "inside_band": s.coverage,
    }  # fmt: skip


def point_data(s: Scored) -> dict[str, Any]:
    p, unit = s.point, UNITS.get(s.point.metric, "1")
    return {
        "id": p.id, "set": p.set, "group": p.group, "chip": chip_of(p), "model": p.model, "engine": spelled(p.engine),
        "software": p.software, "metric": p.metric, "unit": unit, "measured": p.value,
        "predicted": interval(s.prediction.value), "error": s.error, "inside_band": s.inside, "grade": p.grade,
        "use": p.use, "fitted": p.fitted, "flags": list(s.prediction.flags), "source": p.source,
        "terms_s": dict(list(s.prediction.terms.items())[:8]),
    }  # fmt: skip
