"""How a plan's decode context parallelism deals out tokens and merges outputs, and what another merge would take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlaplan.costs.engine import merge_of
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy

WIDTHS = {2: "16-bit", 4: "fp32"}


def merge_times(q: Question, s: Strategy) -> dict[str, float]:
    """Seconds of a decode step in the group's collectives, by pattern of the merge, the one of the plan first. [s]"""
    from mlaplan.explain import explain

    own, dcp = q.setting.engine.merge, q.profile.parallel.dcp
    patterns = dict.fromkeys([own.pattern, *(m.pattern for m in (dcp.merges if dcp else ()))])
    out = {}
    for pattern in patterns:
        merge = own if pattern == own.pattern else merge_of(dcp, pattern, own.interleave)
        asked = replace(q, setting=replace(q.setting, engine=q.setting.engine._replace(merge=merge)))
        decode = explain(asked, s, decode_context=q.workload.mean_context, served=False).decode
        assert decode is not None
        out[pattern] = sum(float(op.time_s) for op in decode.ops if op.name.startswith(("dcp_", "mtp_dcp_")))
    return out


def data(q: Question, s: Strategy) -> dict[str, Any] | None:
    """The same as plain data; None without decode context parallelism."""
    if s.dcp == 1:
        return None
    m = q.setting.engine.merge
    return {
        "merge": m.pattern,
        "partial_bytes": m.out_bytes,
        "lse_bytes": m.lse_bytes,
        "interleave_tokens": m.interleave,
        "collectives_s": merge_times(q, s),
    }


def told(q: Question, s: Strategy) -> str | None:
    """The same in a sentence."""
    if s.dcp == 1:
        return None
    m, times = q.setting.engine.merge, merge_times(q, s)
    out, lse = WIDTHS[int(m.out_bytes)], WIDTHS[int(m.lse_bytes)]
    how = (
        f"{out} partial outputs and {lse} log-sum-exps in one all-to-all (a2a)"
        if m.pattern == "a2a"
        else f"{lse} log-sum-exps gathered, {out} partial outputs reduce-scattered (ag_rs)"
    )
    runs = "single tokens" if m.interleave == 1 else f"runs of {m.interleave} tokens"
    first, *others = times
    more = "".join(f", by --dcp-merge {name} {format_seconds(times[name])}" for name in others)
    return f"{runs} to each rank in turn; queries gathered, {how}: {format_seconds(times[first])} a step{more}"
