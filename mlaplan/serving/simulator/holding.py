"""Prompts held back until every attention-DP rank has one, so that no rank idles while another computes a prompt.

Each scheduling decision counts. Prompts go ahead where all ranks have one, where some rank decodes nothing, and at the
`rounds`-th decision in a row without either; then the count starts anew, also where there was nothing to hold.
Source: NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/pyexecutor/py_executor.py, _balance_adp_requests
(attention_dp_config: enable_balance, timeout_iters; batching_wait_iters, a further wait, is taken as 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlaplan.serving.simulator.rank import Rank

NEVER = 1 << 60  # rounds: nothing is held


class Holding:
    """The count of one replica. 0 rounds: prompts are never held."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.waited = 0
        self.left = NEVER  # rounds until a decision lets go of what is held now

    def holds(self, ranks: Sequence[Rank]) -> bool:
        """Counts a decision: whether it leaves the prompts where they are."""
        if not self.rounds:
            return False
        ready = [rank.has_prompt for rank in ranks]
        self.waited = 0 if all(ready) else self.waited + 1
        if self.waited >= self.rounds or not all(rank.running for rank in ranks):
            self.waited = 0
        held = self.waited > 0 and any(ready)
        self.left = self.rounds - self.waited if held else NEVER
        return held

    def passed(self, rounds: int) -> None:
        """Further decisions went by without a change."""
        if self.rounds and rounds > 0:
            self.waited = (self.waited + rounds) % self.rounds
