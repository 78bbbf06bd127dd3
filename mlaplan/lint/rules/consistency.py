"""Figures that contradict each other."""

from __future__ import annotations

from mlaplan.lint.rule import LintRule

PLAN = (
    '{{"schema": "mlaplan.plan/1", "strategy": {{"batch": 32, "dp": 8, "replicas": 1, "devices": 8, "mtp": 0}},\n'
    ' "prediction": {{"decode": {{"step_s": {{"value": 0.040, "low": 0.035}}}},\n'
    '  "served": {{"tok_s_chip": {{"value": {claim}}}, "concurrency": 256}}}}}}\n'
)

CLAIMED = LintRule(
    "MLA801", "claimed-throughput", "error", "the claimed throughput is above concurrency over step time",
    "A step yields one token (with MTP at most 1 + drafts) for every request in flight; no throughput is above that. "
    "An error above the most that the band of the step and the drafts allow, a warning above what they are expected "
    "to give.",
    "Correct the throughput, the concurrency or the step time.",
    PLAN.format(claim=1200), PLAN.format(claim=700), "Little's law", file="plan.json",
)  # fmt: skip

SERVED = (
    '{{"schema": "mlaplan.plan/1", "strategy": {{"batch": 32, "dp": 8, "replicas": 1, "devices": 8, "mtp": 0}},\n'
    ' "workload": {{"{limit}": {asked}}},\n'
    ' "prediction": {{"served": {{"tok_s_chip": {{"value": 700}}, "{name}": {{"value": {value}}}}}}}}}\n'
)
WHY = "A plan that was edited, or made anew for another workload, may no longer meet the limits written beside it."
FIX = "make the plan anew for this workload, or correct the limit"

TTFT = LintRule(
    "MLA301", "ttft-missed", "error", "a saved plan's time to first token is above its own limit", WHY, FIX,
    SERVED.format(limit="ttft_s", asked=1.0, name="ttft_s", value=1.5),
    SERVED.format(limit="ttft_s", asked=2.0, name="ttft_s", value=1.5), "rules/service.py", file="plan.json",
)  # fmt: skip
TPOT = LintRule(
    "MLA302", "tpot-missed", "error", "a saved plan's time per output token is above its own limit", WHY, FIX,
    SERVED.format(limit="tpot_s", asked=0.03, name="tpot_s", value=0.04),
    SERVED.format(limit="tpot_s", asked=0.06, name="tpot_s", value=0.04), "rules/service.py", file="plan.json",
)  # fmt: skip
RATE = LintRule(
    "MLA303", "rate-missed", "error", "a saved plan completes fewer requests than its own workload sends", WHY, FIX,
    SERVED.format(limit="rate_per_s", asked=12, name="requests_per_s", value=9.5),
    SERVED.format(limit="rate_per_s", asked=8, name="requests_per_s", value=9.5), "rules/service.py", file="plan.json",
)  # fmt: skip

SERVICE = (TTFT, TPOT, RATE)
CONSISTENCY = (CLAIMED, *SERVICE)
