"""`mlaplan.simulate/1`, and one row for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.report import plan_data
from mlaplan.report.simulate_text import notes, spreads

if TYPE_CHECKING:
    from mlaplan.report.simulate_text import Simulated
    from mlaplan.serving.simulator.outcome import Limit, PoolOutcome, Spread

SCHEMA = "mlaplan.simulate/1"
POINTS = 256  # of a series in the document
NAMES = {"TTFT": "ttft_s", "TPOT": "tpot_s", "between outputs": "itl_s", "queue": "queue_s", "whole request": "e2e_s"}


def document(s: Simulated) -> dict[str, Any]:
    """The run as data."""
    o = s.outcome
    good = o.within(*s.limits)
    return {
        "schema": SCHEMA,
        **plan_data.subject(s.q),
        "strategy": plan_data.strategy(s.strategy),
        "prefill_strategy": plan_data.strategy(s.prefill[1]) if s.prefill else None,
        "load": {
            "source": s.source, "seed": s.seed, "requests": len(o.sent_s), "rate_per_s": plan_data.finite(s.offered),
            "concurrency": s.concurrency, "mean_prompt_tokens": float(o.prompt.mean()),
            "mean_output_tokens": float(o.output.mean()),
        },
        "times": {NAMES[name]: _spread(spread) for name, spread in spreads(o).items()},
        "band": {end: {NAMES[name]: _spread(spread) for name, spread in spreads(one).items()}
                 | {"output_tok_s": one.output_tok_s, "within_limits": float(one.within(*s.limits).mean())}
                 for end, one in zip(("fast", "slow"), s.ends, strict=True)} if s.ends else None,
        "requests_per_s": o.requests_per_s,
        "output_tok_s": o.output_tok_s,
        "total_tok_s": o.total_tok_s,
        "tok_s_chip": o.output_tok_s / s.chips,
        "makespan_s": o.makespan_s,
        "refused": int(o.refused.sum()),
        "preempted_requests": int((o.preempted > 0).sum()),
        "limits": {"ttft": _limit(s.limits[0]), "tpot": _limit(s.limits[1]), "met": s.met},
        "within_limits": float(good.mean()),
        "goodput_per_s": float(good.sum()) / o.makespan_s if o.makespan_s else 0.0,
        "serve": _pool(o.serve),
        "prefill": _pool(o.prefill) if o.prefill else None,
        "notes": notes(s),
    }  # fmt: skip


def _spread(spread: Spread) -> dict[str, float | None]:
    return {name: plan_data.finite(getattr(spread, name)) for name in ("mean", "p50", "p95", "p99", "max")}


def _limit(limit: Limit | None) -> dict[str, float | None] | None:
    return None if limit is None else {"percentile": limit.percentile or None, "time_s": limit.seconds}


def _pool(p: PoolOutcome) -> dict[str, Any]:
    shown = np.unique(np.linspace(0, len(p.series.time_s) - 1, POINTS).round().astype(int))
    series = {
        "time_s": p.series.time_s, "running": p.series.running, "waiting": p.series.waiting,
        "kv_held_share": p.series.held, "kv_cached_share": p.series.cached,
    }  # fmt: skip
    return {
        "mean_batch": p.mean_batch,
        "mean_kv_held_share": p.mean_held,
        "peak_kv_held_share": p.peak_held,
        "preemptions": p.preemptions,
        "evicted_blocks": p.evictions,
        "prompt_tokens": p.prompt_tokens,
        "hit_tokens": p.hit_tokens,
        "hit_share": p.hit_tokens / p.prompt_tokens if p.prompt_tokens else 0.0,
        "computed_prompt_tokens": p.computed_tokens,
        "busy_s": p.busy_s,
        "prompt_steps_s": p.prefill_s,
        "decode_steps_s": p.decode_s,
        "series": {name: column[shown].tolist() for name, column in series.items()},
    }


def rows(s: Simulated) -> list[dict[str, Any]]:
    """One row for each request, in the order of arrival; empty cells where one was refused."""
    o = s.outcome
    columns = {
        "sent_s": o.sent_s, "prompt_tokens": o.prompt, "output_tokens": o.output, "hit_tokens": o.hit_tokens,
        "queue_s": o.queue_s, "ttft_s": o.ttft_s, "tpot_s": o.tpot_s, "end_s": o.end_s, "preempted": o.preempted,
    }  # fmt: skip
    lists = {name: column.tolist() for name, column in columns.items()}
    return [
        {
            name: "" if isinstance(value[i], float) and value[i] != value[i] else value[i]
            for name, value in lists.items()
        }
        for i in range(len(o.sent_s))
    ]
