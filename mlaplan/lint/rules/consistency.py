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

CONSISTENCY = (CLAIMED,)
