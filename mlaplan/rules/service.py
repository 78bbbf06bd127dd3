"""What misses the service level: time to first token, time per output token, request rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaplan.rules.rule import Cells, Question, Rule


def _above(value: Any, limit: float | None) -> Any:
    return np.zeros(np.shape(value), dtype=bool) if limit is None else np.asarray(value) > limit


TTFT = Rule(
    "MLA301", "ttft-missed", "service", "time to first token above the limit",
    "Queueing, prefill and the decode rounds it is mixed with.",
    lambda q, c: _above(c["ttft_s"], q.workload.ttft_s),
    lambda q, c: f"TTFT {c['ttft_s']:.2f} s, {q.workload.ttft_s:g} s asked for",
)  # fmt: skip

TPOT = Rule(
    "MLA302", "tpot-missed", "service", "time per output token above the limit",
    "Decode rounds, stretched by the prefills mixed into them.",
    lambda q, c: _above(c["tpot_s"], q.workload.tpot_s),
    lambda q, c: f"TPOT {1e3 * c['tpot_s']:.1f} ms, {1e3 * (q.workload.tpot_s or 0):g} ms asked for",
)  # fmt: skip


def _rate(q: Question, c: Cells) -> Any:
    if q.workload.rate is None:
        return np.zeros(np.shape(c["capacity_per_s"]), dtype=bool)
    return np.asarray(c["capacity_per_s"]) < q.workload.rate


RATE = Rule(
    "MLA303", "rate-missed", "service", "the request rate is above what the deployment completes",
    "An open loop with more arrivals than completions queues without end.", _rate,
    lambda q, c: f"{c['capacity_per_s']:.2f} requests/s complete, {q.workload.rate or 0:g} arrive",
)  # fmt: skip

SERVICE = (TTFT, TPOT, RATE)
