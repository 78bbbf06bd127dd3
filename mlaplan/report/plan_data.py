"""Plans and explanations as plain data: SI, the unit in each key, None where there is no number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mlaplan.costs.breakdown import op_dict
from mlaplan.costs.plan_chunks import of_strategy
from mlaplan.engines.load import spelled
from mlaplan.report import cache, chunks_data, context, words

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
    from mlaplan.costs.engine import Interval
    from mlaplan.explain import Explanation, Memory, Served
    from mlaplan.report.plan_text import Answer
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Overrides

EXPLAIN_SCHEMA = "mlaplan.explain/1"


def finite(value: float | None) -> float | None:
    """The number, or None where there is none."""
    return None if value is None or not math.isfinite(value) else value


def interval(value: Interval | None) -> dict[str, float | None] | None:
    """{value, low, high}."""
    if value is None:
        return None
    return {"value": finite(value.value), "low": finite(value.low), "high": finite(value.high)}


def strategy(s: Strategy, pp_layers: tuple[int, ...] = ()) -> dict[str, Any]:
    """The columns of the strategy, what follows from them, and the layers of each pipeline stage."""
    derived = {"label": s.label(), "devices": s.devices, "moe_tp": max(s.moe_tp, 1)}
    return {**s.to_dict(), **derived, "pp_layers": list(pp_layers)}


def chunking(q: Question, s: Strategy) -> dict[str, Any] | None:
    """Query chunk, slices, pipeline depth and core mapping of decode at the mean context."""
    found = of_strategy(q.setting, s, q.workload.mean_context)
    return None if found is None else chunks_data.local(found)


def memory(q: Question, s: Strategy, m: Memory) -> dict[str, Any]:
    """Bytes of one chip of the fullest stage; kv_tokens of one attention-DP rank.

    kv_bytes_per_token is the mean over the stages, `..._fullest` that of the stage which limits kv_tokens.
    """
    return {
        **m.items,
        "kv_bytes_per_token": cache.bytes_per_token(q, s),
        "kv_bytes_per_token_fullest": m.kv_bytes_per_token,
        "kv_tokens": m.kv_tokens,
        "kv_sequences": cache.sequences(q, s, m.kv_tokens),
        "kv_shared_tokens": cache.stored_tokens(q, s),
        "total_bytes": m.total_bytes,
        "usable_bytes": m.usable_bytes,
        "capacity_bytes": m.capacity_bytes,
    }


def phase(p: Phase | None) -> dict[str, Any] | None:
    """A step: its time, the part that is communication, what it is made of; operators by falling time."""
    if p is None:
        return None
    ops = sorted(p.ops, key=lambda op: -op.time_s)
    return {
        "step_s": interval(p.step_s),
        "comm_share": p.comm_share,
        "micro_batches": p.micro_batches,
        "bubble_share": p.bubble_fraction,
        "imbalance_share": p.imbalance_fraction,
        "operators": [op_dict(op) for op in ops],
    }


def served(s: Served | None) -> dict[str, Any] | None:
    """Figures of the served workload with their bands."""
    if s is None:
        return None
    return {
        "ttft_s": interval(s.ttft_s),
        "tpot_s": interval(s.tpot_s),
        "tok_s_chip": interval(s.tok_s_chip),
        "tok_s_user": interval(s.tok_s_user),
        "requests_per_s": interval(s.requests_per_s),
        "usd_per_mtok": interval(s.usd_per_mtok),
        "tokens_per_step": interval(s.tokens_per_step),
        "queue_s": finite(s.queue_s),
        "prefill_share": s.prefill_share,
        "concurrency": s.concurrency,
    }


def explanation(q: Question, e: Explanation) -> dict[str, Any]:
    """One strategy with all that is known of it."""
    decode = phase(e.decode)
    return {
        "fits": e.fits,
        "reasons": [f"{code} {slug}: {words}" for code, slug, words in e.reasons],
        "rules": [code for code, _, _ in e.reasons],
        "strategy": {
            **strategy(e.strategy, e.pp_layers),
            "chunking": chunking(q, e.strategy),
            "context_parallel": context.data(q, e.strategy),
        },
        "memory": memory(q, e.strategy, e.memory),
        "decode": decode and {"sequences_per_rank": e.decoding, **decode},
        "prefill": phase(e.prefill),
        "served": served(e.served),
    }


def workload(q: Question) -> dict[str, Any]:
    """What is asked of the deployment."""
    w = q.workload
    return {
        "isl_tokens": w.isl,
        "osl_tokens": w.osl,
        "concurrency": w.concurrency,
        "rate_per_s": w.rate,
        "prefix_tokens": w.prefix_tokens,
        "prefix_groups": w.prefix_groups,
        "prefix_routed": w.prefix_routed if w.prefix_groups is not None else None,
        "ttft_s": w.ttft_s,
        "tpot_s": w.tpot_s,
    }


def overrides(q: Question, given: Overrides) -> dict[str, Any]:
    """What the user set in place of the specs, and the memory fraction that holds."""
    return {
        "memory_fraction": q.budget.memory_fraction,
        "reserve_bytes": given.reserve_bytes,
        "price_usd_per_h": given.price_usd_per_hour,
        "imbalance": given.imbalance,
        "tokens_per_step": given.tokens_per_step,
        "redundant_experts": given.redundant_experts,
        "dcp_merge": given.dcp_merge,
        "dcp_interleave": given.dcp_interleave,
        "shared_ranks": given.shared_ranks,
        "gather_only": given.gather_only,
    }


def subject(q: Question) -> dict[str, Any]:
    """Which files and which engine the figures come from."""
    from mlaplan import __version__

    s, p = q.setting, q.profile
    return {
        "tool_version": __version__,
        "model": {"name": s.model.name, "file": words.file(s.model.origin)},
        "chip": {
            "name": s.chip.name,
            "file": words.file(s.chip.origin),
            "calibration": words.file(s.chip.calibration) or None,
        },
        "engine": {"name": spelled(p.name), "version": None if p.name == "generic" else p.version},
    }


def asked(a: Answer, given: Overrides) -> dict[str, Any]:
    """The question of a recommendation, and how much was looked at."""
    return {
        **subject(a.q),
        "devices": a.devices,
        "workload": workload(a.q),
        "objective": a.objective,
        "pinned": a.pins,
        "overrides": overrides(a.q, given),
        "considered": a.found.considered,
        "priced": a.found.priced,
    }


def figures(found: dict[str, float]) -> dict[str, float | None]:
    """Figures by name, None for those that are no number."""
    return {name: finite(value) for name, value in found.items()}


def explain_document(
    q: Question, given: Overrides, e: Explanation, asked: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    """`mlaplan.explain/1`."""
    head = {"schema": EXPLAIN_SCHEMA, **subject(q), "asked": asked, "overrides": overrides(q, given)}
    return {**head, **explanation(q, e), "notes": notes}
