"""Step times as grids, priced once before a run.

decode    over sequences a rank and mean context: linear between nodes
prefill   over new tokens and reach, the mean context that a new token attends to (pairs / tokens): linear between
          nodes; and a time per key beyond those of one prompt, for a step of several prompts with long cached parts

    f(T, pairs, keys) = grid(T, pairs / T) + key_s (keys - keys of one prompt with as many tokens and pairs)

host      what the host takes to launch a step with prompts, whatever is in it. The grids leave it out, as part of it
          may pass beside the step before (`replica`); over pipeline stages they hold it, and there is none besides

experts   what experts and those who gather tokens do goes with the tokens of all ranks, not with those of the fullest
          one: a step is shorter by gain (1 - mean / fullest), linear between all ranks having as much work and one
          having all of it. A dispatch goes with the fullest.

A node (T, r) is the step of T tokens out of prompts of 2 r tokens with nothing cached: whole prompts where T is larger,
else a mean chunk of one, which attends to r + T/2 keys. Kernels round up to tiles; between nodes a step may be up to a
tile's work off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import phases
from mlaplan.costs.operators import Prefill
from mlaplan.costs.table import Table
from mlaplan.strategy import Strategy, to_table

if TYPE_CHECKING:
    from mlaplan.costs.capacity import Budget
    from mlaplan.costs.step import Setting

CONTEXT_NODES = 12
REACH_NODES = 9
FEWEST_KEYS = 64  # of a context or reach node
TOKENS_AT_LEAST = 16  # a smaller prefill step takes as long


def grid(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16... up to and with `most`."""
    out = [n for k in range(most.bit_length()) for n in ((1 << k), 3 << k >> 1) if n <= most]
    return sorted({*out, most})


class StepGrid:
    """The grids of one replica, as `server.Steps`: held below the first node, linear beyond the last."""

    def __init__(
        self, batches: Sequence[float], contexts: Sequence[float], decode_s: NDArray[np.float64],
        tokens: Sequence[float], reaches: Sequence[float], step_s: NDArray[np.float64], pass_s: NDArray[np.float64],
        key_s: float = 0.0, experts: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
        host_s: float = 0.0,
    ) -> None:  # fmt: skip
        """decode_s[batch, context]; step_s and pass_s[tokens, reach]: until the next step can start, and to the end.

        experts: the gain by batch and by tokens. host_s: of a step with prompts, not in the grids. [s]
        """
        self.batches, self.contexts = np.asarray(batches, float), [float(c) for c in contexts]
        self.decode_s = np.asarray(decode_s, float)
        self.tokens, self.reaches = [float(t) for t in tokens], [float(r) for r in reaches]
        self.step_s, self.drain_s = np.asarray(step_s, float).tolist(), (np.asarray(pass_s) - step_s).tolist()
        self.key_s = key_s
        self.experts = experts
        self.host_s = host_s
        self._rows: dict[int, list[float]] = {}

    def decode(self, batch: int, context: float) -> tuple[float, float, float]:
        row = self._rows.get(batch)
        if row is None:
            row = self._rows[batch] = [float(np.interp(batch, self.batches, c)) for c in self.decode_s.T]
        nodes = self.contexts
        if len(nodes) == 1 or context < nodes[0]:
            return row[0], 0.0, nodes[0] if len(nodes) > 1 else float("inf")
        i = min(bisect_right(nodes, context), len(nodes) - 1) - 1
        slope = (row[i + 1] - row[i]) / (nodes[i + 1] - nodes[i])
        return row[i] + slope * (context - nodes[i]), slope, nodes[i + 1] if i + 2 < len(nodes) else float("inf")

    def prefill(self, tokens: int, pairs: float, keys: float) -> tuple[float, float]:
        if tokens <= 0:
            return 0.0, 0.0
        reach = pairs / tokens
        i, u = _place(self.tokens, tokens)
        j, v = _place(self.reaches, reach)
        step = _corner(self.step_s, i, j, u, v) + self.key_s * (keys - max(reach + tokens / 2.0, tokens))
        return step, step + _corner(self.drain_s, i, j, u, v)

    def scaled(self, decode: float, prefill: float) -> StepGrid:
        """The grids with all times of a kind multiplied."""
        step = np.array(self.step_s) * prefill
        whole = step + np.array(self.drain_s) * prefill
        experts = None if self.experts is None else (self.experts[0] * decode, self.experts[1] * prefill)
        return StepGrid(
            self.batches.tolist(), self.contexts, self.decode_s * decode, self.tokens, self.reaches, step, whole,
            self.key_s * prefill, experts, self.host_s * prefill,
        )  # fmt: skip

    def spared(self, decode: bool, fullest: float, mean: float) -> float:
        if self.experts is None or mean >= fullest:
            return 0.0
        nodes, values = (self.batches, self.experts[0]) if decode else (self.tokens, self.experts[1])
        return float(np.interp(fullest, nodes, values)) * (1.0 - mean / fullest)


def _place(nodes: list[float], x: float) -> tuple[int, float]:
    """(segment, fraction of the way through it): held below the first node; the last segment goes on."""
    if x <= nodes[0] or len(nodes) == 1:
        return 0, 0.0
    i = min(bisect_right(nodes, x), len(nodes) - 1) - 1
    return i, (x - nodes[i]) / (nodes[i + 1] - nodes[i])


def _corner(cells: list[list[float]], i: int, j: int, u: float, v: float) -> float:
    """Bilinear value in a cell of a grid."""
    low = cells[i]
    out = low[j] if v == 0.0 else low[j] + v * (low[j + 1] - low[j])
    if u == 0.0:
        return out
    high = cells[i + 1]
    return out + u * ((high[j] if v == 0.0 else high[j] + v * (high[j + 1] - high[j])) - out)


def _nodes(most: float, count: int) -> list[int]:
    """From `FEWEST_KEYS` to `most`, evenly in the logarithm below a sixteenth of it and evenly above."""
    most = max(int(most), 2 * FEWEST_KEYS)
    fine = np.geomspace(FEWEST_KEYS, max(most / 16, FEWEST_KEYS), 4)
    return sorted(
        {*fine.round().astype(int).tolist(), *np.linspace(most / 16, most, count - 4).astype(int).tolist()} - {0}
    )


def priced(
    s: Setting, strategy: Strategy, budget: Budget, *, most_prompt: int, most_context: int
) -> tuple[StepGrid, int]:
    """(grids of a strategy for batches up to its own, cache tokens of one attention-DP rank)."""
    batches = grid(max(strategy.batch, 1))
    rows = Table(to_table([replace(strategy, batch=b) for b in batches]))
    need = np.zeros(len(batches))
    contexts = _nodes(most_context, CONTEXT_NODES)
    # a memo holds for one context
    columns = [phases.decode(s, rows, c, budget, need, gain=c == contexts[0]) for c in contexts]
    decode_s = np.stack([np.broadcast_to(c["decode_s"], len(batches)) for c in columns], axis=1)
    kv_tokens = int(np.ravel(columns[-1]["kv_tokens"])[-1])
    cut = int(np.ravel(columns[-1]["cut"])[-1])

    queries = strategy.batch * (1 + strategy.mtp)
    tokens = [t for t in grid(max(strategy.prefill_chunk + queries, TOKENS_AT_LEAST)) if t >= TOKENS_AT_LEAST]
    table = Table(to_table([strategy] * len(tokens)))
    cuts = np.full(len(tokens), cut, dtype=np.int64)
    reaches = _nodes(max(most_prompt, 2 * FEWEST_KEYS), REACH_NODES)

    # of one stage, what the device takes and apart from it the host; more stages wait for theirs in the grid
    one_stage = strategy.pp == 1
    names = ("prefill_even_s", "prefill_even_s") if one_stage else ("prefill_s", "prefill_pass_s")

    def step(prompts: Prefill) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        found = phases.prefill(s, table, np.array(tokens), prompts, cuts)
        one, whole = (np.broadcast_to(found[name], len(tokens)) for name in names)
        return one, whole

    steps, passes = (np.stack(c, axis=1) for c in zip(*(step(Prefill(2 * r)) for r in reaches), strict=True))
    middle = phases.prefill(s, table, np.array(tokens), Prefill(2 * reaches[len(reaches) // 2]), cuts)
    launching = np.broadcast_to(middle["prefill_host_s"], len(tokens))
    experts = None
    if strategy.dp > 1:
        rest = 1.0 - 1.0 / strategy.dp  # of the gain, what one rank alone has
        at_least = np.maximum(middle["prefill_lone_s"], 0.0 if one_stage else launching)
        experts = columns[0]["decode_gain_s"] / rest, np.maximum(middle[names[0]] - at_least, 0.0) / rest
    found = StepGrid(
        batches, contexts, decode_s, tokens, reaches, steps, passes, _key_s(step, tokens, reaches, steps), experts,
        float(launching[0]) if one_stage else 0.0,
    )  # fmt: skip
    return found, kv_tokens


def _key_s(
    step: Callable[[Prefill], tuple[NDArray[np.float64], NDArray[np.float64]]],
    tokens: Sequence[int],
    reaches: Sequence[int],
    steps: NDArray[np.float64],
) -> float:
    """Time per further key: prompts of a quarter of the length with as many pairs have more keys."""
    t, i = tokens[-1], len(reaches) // 2
    r = reaches[i]
    new = max(r // 4, 1)
    several = Prefill(new, r - new // 2)
    keys = t / new * (several.past + new) if t >= new else several.past + (new + t) / 2
    more = keys - max(r + t / 2, t)
    if more <= 0:
        return 0.0
    return max(float(step(several)[0][-1] - steps[-1, i]) / more, 0.0)
