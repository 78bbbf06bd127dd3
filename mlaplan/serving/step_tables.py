"""Step times of one strategy as small tables, so that a simulation can look up thousands of steps at once.

decode_s over batch and mean context, prefill_s over the new tokens of a step: the cost model prices the nodes,
between them the times are linear (kernels round up to tiles, so a step may be up to a tile's work off).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.costs import phases
from mlaplan.costs.factor import Table
from mlaplan.costs.operators import Prefill
from mlaplan.strategy import Strategy, to_table

if TYPE_CHECKING:
    from mlaplan.costs.capacity import Budget
    from mlaplan.costs.step import Setting
    from mlaplan.workload import Workload

CONTEXT_NODES = 7
TOKENS_AT_LEAST = 16  # a smaller prefill step takes as long


@dataclass(frozen=True, slots=True)
class StepTables:
    """Nodes and times. decode_s[i][j]: batches[i] sequences of contexts[j] tokens; prefill_s by tokens. [s]"""

    batches: list[float]
    contexts: list[float]
    decode_s: list[list[float]]
    tokens: list[float]
    prefill_s: list[float]

    def decode(self, batch: float, context: float) -> float:
        """Time of one round; held at the edges of the table, linear beyond the last context."""
        i, u = _place(self.batches, batch)
        low = _line(self.contexts, self.decode_s[i], context)
        if u == 0.0:
            return low
        return low + u * (_line(self.contexts, self.decode_s[i + 1], context) - low)

    def prefill(self, tokens: float) -> float:
        """Time of one prefill step through all stages."""
        return _line(self.tokens, self.prefill_s, tokens)

    def scaled(self, decode: float = 1.0, prefill: float = 1.0) -> StepTables:
        """The tables with all times of a kind multiplied."""
        return replace(
            self,
            decode_s=[[t * decode for t in row] for row in self.decode_s],
            prefill_s=[t * prefill for t in self.prefill_s],
        )


def _place(nodes: list[float], x: float) -> tuple[int, float]:
    """(index of the node below x, fraction of the way to the next one), held at both ends."""
    if x <= nodes[0]:
        return 0, 0.0
    if x >= nodes[-1]:
        return len(nodes) - 1, 0.0
    i = bisect_right(nodes, x) - 1
    return i, (x - nodes[i]) / (nodes[i + 1] - nodes[i])


def _line(nodes: list[float], values: list[float], x: float) -> float:
    """Piecewise linear, held below the first node and continued beyond the last."""
    if len(nodes) == 1:
        return values[0]
    i, u = _place(nodes, x)
    if i == len(nodes) - 1:
        slope = (values[-1] - values[-2]) / (nodes[-1] - nodes[-2])
        return values[-1] + slope * (x - nodes[-1])
    return values[i] + u * (values[i + 1] - values[i])


def grid(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16... up to and with `most`."""
    out = [n for k in range(most.bit_length()) for n in ((1 << k), 3 << k >> 1) if n <= most]
    return sorted({*out, most})


def tables(s: Setting, strategy: Strategy, work: Workload, budget: Budget, most_batch: int) -> tuple[StepTables, int]:
    """(step tables of a strategy for batches up to `most_batch`, cache tokens of one attention-DP rank)."""
    batches = grid(max(most_batch, 1))
    rows = Table(to_table([replace(strategy, batch=b) for b in batches]))
    need = np.zeros(len(batches))
    contexts = sorted({1, *(int(c) for c in np.linspace(0.5 * work.isl, work.max_context, CONTEXT_NODES - 1))} - {0})
    columns = [phases.decode(s, rows, c, budget, need) for c in contexts]  # a memo holds for one context
    decode_s = np.stack([np.broadcast_to(c["decode_s"], len(batches)) for c in columns], axis=1)
    kv_tokens = int(np.ravel(columns[0]["kv_tokens"])[0])
    most_tokens = max(strategy.prefill_chunk, TOKENS_AT_LEAST)
    tokens = [t for t in grid(most_tokens) if t >= TOKENS_AT_LEAST]
    table = Table(to_table([strategy] * len(tokens)))
    cut = np.zeros(len(tokens), dtype=np.int64)
    prompts = Prefill(work.new_tokens, work.prefix_tokens)
    prefill = phases.prefill(s, table, np.array(tokens), prompts, cut)["prefill_pass_s"]
    found = StepTables(
        [float(b) for b in batches],
        [float(c) for c in contexts],
        decode_s.tolist(),
        [float(t) for t in tokens],
        np.broadcast_to(prefill, len(tokens)).tolist(),
    )
    return found, kv_tokens
