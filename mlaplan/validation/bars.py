"""The accuracy that is asked of the model, and whether it is reached.

A bar is stated once, with its limit and what is reached elsewhere. Where it is missed, the worst points say by how
much and which terms the model is least sure of. None of the points behind a bar on steps or served figures was
ever used to set a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlaplan.validation.peers import elsewhere
from mlaplan.validation.score import Scored, cause, ratable, summary

if TYPE_CHECKING:
    from mlaplan.validation.compare import ScoredDecision, ScoredRatio
    from mlaplan.validation.points import Point

MODERN = "2025-05"  # software before this month is reported and not gated
WIDE = 0.30  # of which nine in ten end-to-end points must stay within
BAND = (0.75, 0.90)  # share of points an 80 % band should hold
WORST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. met is None where there is nothing to measure it on; why: what a miss is made of."""

    id: str
    set: str
    title: str
    limit: str
    value: str
    met: bool | None
    elsewhere: str = ""
    why: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


def end_to_end(point: Point) -> bool:
    """Points of the end-to-end bar: grade A or B, held out, not Ascend, of recent software, not the silicon rows."""
    return (
        point.set in ("steps", "served")
        and point.group != "silicon"
        and point.use == "holdout"
        and point.grade in "AB"
        and not (point.chip or "").startswith("ascend")
        and modern(point)
    )


def modern(point: Point) -> bool:
    return point.era is not None and point.era >= MODERN


def on_mape(
    id_: str, set_: str, title: str, scored: Sequence[Scored], limit: float, elsewhere: str = "", note: str = ""
) -> Bar:
    """A bar on the mean absolute error of a group of points."""
    text = f"MAPE <= {limit:.0%}"
    found = summary(scored)
    if found is None:
        return Bar(id_, set_, title, text, note or "no points", None, elsewhere)
    met = found.mape <= limit
    value = f"{found.mape:.1%} (n={found.count}, bias {found.bias:+.0%}, worst {found.worst:+.0%})"
    return Bar(id_, set_, title, text, value, met, elsewhere, () if met else worst(scored), _ids(scored))


def worst(scored: Sequence[Scored], count: int = WORST_SHOWN) -> tuple[str, ...]:
    """The worst points in words."""
    ordered = sorted(scored, key=lambda s: (s.fits, -abs(s.error)))
    return tuple(f"{s.point.id} {s.error:+.0%}: {cause(s)}" for s in ordered[:count])


def of_points(scored: Sequence[Scored], silicon_missing: str) -> list[Bar]:
    """The bars that published points and the silicon rows decide."""
    points = ratable(scored)
    silicon = [s for s in points if s.point.group == "silicon"]
    steady = [s for s in silicon if "kv_edge" not in s.prediction.flags]

    def rows(engine: str, metric: str) -> list[Scored]:
        return [
            s for s in (steady if metric == "ttft" else silicon) if (s.point.engine, s.point.metric) == (engine, metric)
        ]

    experts = [s for s in points if s.point.group == "experts" and s.point.use == "holdout"]
    low_latency = [
        s for s in points
        if s.point.group == "expert-parallel" and s.point.operator in ("dispatch", "combine")
        and not (s.point.chip or "").startswith("ascend")
    ]  # fmt: skip
    ascend = [
        s for s in points
        if (s.point.chip or "").startswith("ascend") and s.point.set in ("steps", "served") and s.point.grade == "A"
        and s.point.use == "holdout"
    ]  # fmt: skip
    ttft = [s for e in ("sglang", "trtllm") for s in rows(e, "ttft")]
    return [
        on_mape("experts-h800", "kernels", "grouped GEMM of the experts, H800", experts, 0.12,
                elsewhere("h800-experts", "h800-experts-prefill")),
        on_mape("deepep-low-latency", "collectives", "DeepEP low latency, published points", low_latency, 0.04),
        on_mape("r1-h200-sglang-tpot", "served", "R1 on 8 H200, SGLang rows, TPOT", rows("sglang", "tpot"), 0.07,
                elsewhere("served:sglang:tpot"), silicon_missing),
        on_mape("r1-h200-trtllm-tpot", "served", "R1 on 8 H200, TensorRT-LLM rows, TPOT", rows("trtllm", "tpot"), 0.10,
                elsewhere("served:trtllm:tpot"), silicon_missing),
        on_mape("r1-h200-ttft", "served", "R1 on 8 H200, all rows, TTFT, cache-edge rows apart", ttft, 0.25,
                elsewhere("served:sglang:ttft", "served:trtllm:ttft"), silicon_missing),
        _anchors(points),
        _end_to_end([s for s in points if end_to_end(s.point)]),
        on_mape("ascend", "steps", "CloudMatrix384 and other grade A points on Ascend", ascend, 0.20),
        _coverage([s for s in points if s.point.set in ("steps", "served") and modern(s.point)]),
    ]  # fmt: skip


def _anchors(points: Sequence[Scored]) -> Bar:
    """DeepSeek's own profile traces: both within 8 %."""
    both = [s for s in points if s.point.id in ("ds-profile-prefill", "ds-profile-decode")]
    title = "DeepSeek-V3 on H800, prefill EP32 7,839 and decode EP128 2,324 tok/s/GPU"
    others = elsewhere("h800-profile")
    if len(both) < 2:
        return Bar("dsv3-h800", "steps", title, "both within 8 %", "no points", None, others)
    met = all(abs(s.error) <= 0.08 for s in both)
    value = ", ".join(f"{s.prediction.value.value:,.0f} ({s.error:+.1%})" for s in both)
    missed = [s for s in both if abs(s.error) > 0.08]
    return Bar("dsv3-h800", "steps", title, "both within 8 %", value, met, others, worst(missed), _ids(both))


def _end_to_end(scored: Sequence[Scored]) -> Bar:
    title = "end-to-end points, grade A and B, held out, software since May 2025, not Ascend"
    limit = f"MAPE <= 15 %, 90 % within {WIDE:.0%}"
    found = summary(scored)
    if found is None:
        return Bar("end-to-end", "steps", title, limit, "no points", None)
    close = sum(s.fits and abs(s.error) <= WIDE for s in scored) / len(scored)
    met = found.mape <= 0.15 and close >= 0.9
    value = f"{found.mape:.1%}, {close:.0%} within {WIDE:.0%} (n={len(scored)}, bias {found.bias:+.0%})"
    return Bar("end-to-end", "steps", title, limit, value, met, "", () if met else worst(scored, 6), _ids(scored))


def _coverage(scored: Sequence[Scored]) -> Bar:
    limit = f"{BAND[0]:.0%} to {BAND[1]:.0%}"
    title = "steps and served figures of recent software inside the 80 % band"
    found = summary(scored)
    if found is None:
        return Bar("coverage", "all", title, limit, "no points", None)
    met = BAND[0] <= found.coverage <= BAND[1]
    return Bar("coverage", "all", title, limit, f"{found.coverage:.0%} of {found.count}", met)


def on_ratios(found: Sequence[ScoredRatio]) -> Bar:
    """Sign right in all, within 30 %; an interval where the inputs are vague."""
    title, limit = "ratios of grade A and B: decode context parallel, MTP depth, EP size", "sign right, within 30 %"
    rated = [r for r in found if r.ratio.use == "holdout" and r.ratio.grade in "AB"]
    if not rated:
        return Bar("ratios", "served", title, limit, "no points", None)
    missed = [r for r in rated if not _ratio_holds(r)]
    why = tuple(
        f"{r.ratio.id}: measured {r.measured:.2f}, predicted {r.predicted.value:.2f} "
        f"({r.predicted.low:.2f} to {r.predicted.high:.2f}){'' if r.sign_right else ', wrong direction'}"
        for r in missed
    )
    value = f"{len(rated) - len(missed)} of {len(rated)}"
    return Bar("ratios", "served", title, limit, value, not missed, "", why, tuple(r.ratio.id for r in rated))


def _ratio_holds(r: ScoredRatio) -> bool:
    return r.contained if r.ratio.interval_only else r.sign_right and abs(r.error) <= WIDE


def on_decisions(found: Sequence[ScoredDecision]) -> Bar:
    """The one ranked first was measured at 0.95 of the best or more."""
    title, limit = "decisions: measured value of the one ranked first over the best", ">= 0.95 in each group"
    if not found:
        return Bar("decisions", "decisions", title, limit, "no groups", None)
    missed = [d for d in found if d.share < 0.95]
    why = tuple(f"{d.decision.id}: {d.chosen} first, {d.best} measured best ({d.share:.2f})" for d in missed)
    value = f"{len(found) - len(missed)} of {len(found)}, least {min(d.share for d in found):.2f}"
    return Bar("decisions", "decisions", title, limit, value, not missed, "", why, tuple(d.decision.id for d in found))


def on_rejected(found: Sequence[tuple[Point, list[str]]]) -> Bar:
    """Figures that contradict themselves or physics are flagged."""
    missed = [point.id for point, why in found if not why]
    value = f"{len(found) - len(missed)} of {len(found)}"
    return Bar(
        "rejected", "decisions", "rejected figures that the tool flags", "all", value, not missed, "", tuple(missed)
    )


def _ids(scored: Sequence[Scored]) -> tuple[str, ...]:
    return tuple(s.point.id for s in scored)
