"""A split as `mlaplan.plan/1`: a plan of its decode pool, with both pools beside it.

`strategy`, `chip` and the steps of `prediction` are those of the decode pool, with its instances as replicas;
`prediction.served` is what both pools serve together. `pools` has each pool's strategy, `transfer` the cache between
them, and `prefill_chip` the other chip's file where the pools are of two kinds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlaplan.report import plan_data, plan_file, split_data

if TYPE_CHECKING:
    from mlaplan.fleet.decision import Decision
    from mlaplan.workload import Overrides


def document(d: Decision, given: Overrides, objective: str) -> dict[str, Any]:
    """The file's content."""
    s, b = d.split, d.bands
    assert s is not None and b is not None  # there is a split to write
    e = replace(b.decode, strategy=s.decode.strategy)
    out = plan_file.document(s.decode.q, e, given, objective)
    out["prediction"]["prefill"] = plan_data.phase(b.prefill.prefill)
    out["prediction"]["served"] = _served(d)
    out |= {"devices": s.chips, "pools": split_data.pools(s), "transfer": split_data.transfer(s)}
    if s.prefill.q.setting.chip is not s.decode.q.setting.chip:
        out["prefill_chip"] = plan_file.whole_chip(s.prefill.q.setting.chip)
    return out


def _served(d: Decision) -> dict[str, Any]:
    """The keys of a served workload, for both pools together."""
    found = split_data.split(d)
    assert found is not None and d.split is not None and d.bands is not None
    s, b, tpot = d.split, d.bands, d.split.tpot_s
    rate, user = s.requests_per_s, 1.0 / tpot if tpot else None
    return {
        **{name: found[name] for name in ("ttft_s", "tpot_s", "tok_s_chip")},
        "tok_s_user": {"value": user, "low": None, "high": None} if user else None,
        "requests_per_s": {"value": rate, "low": None, "high": None},
        "usd_per_mtok": None if d.usd_per_mtok is None else {"value": d.usd_per_mtok, "low": None, "high": None},
        "tokens_per_step": plan_data.interval(b.tokens_per_step),
        "queue_s": s.wait_s,
        "prefill_share": None,
        "concurrency": s.in_flight,
    }
