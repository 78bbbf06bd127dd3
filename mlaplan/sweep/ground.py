"""What neighbouring points have in common: the choices of a setting on so many chips, and prices that no workload
changes.

Structures, choices and the rules about them depend on the chips, the model, the engine and the pins. Of the prices,
feed-forward blocks, the vocabularies and the bytes of weights and cache per token depend on nothing else either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan import search, space
from mlaplan.costs import capacity, step
from mlaplan.costs.factor import Memo
from mlaplan.costs.table import Domain, Table, distinct, domain, size
from mlaplan.rules.rule import Question
from mlaplan.search import Found
from mlaplan.serving import steady

if TYPE_CHECKING:
    from mlaplan.sweep.detail import Ends

MOST_KEPT = 400_000  # choices that are kept from one family of points to the next
# kinds of prices that depend on neither lengths nor load
FREE = (step.ROUTED, "decode edges", "draft head", "draft entry", "weights", "cache", "stages", "buffers")


class Ground:
    """The legal choices of one setting on `count` chips, in blocks, and the prices they share.

    most: the largest concurrency that will be asked for, which bounds the batches.
    """

    def __init__(self, q: Question, count: int, pins: Mapping[str, Any], most: int | None) -> None:
        self.count, self.pins, self.setting = count, pins, q.setting
        work = q.workload if most is None else replace(q.workload, concurrency=most, rate=None)
        self._q = replace(q, workload=work)
        self._memo = Memo()
        self.ends: Ends | None = None  # what is priced at both ends of routing's doubts
        self._kept: list[Table] | None = []
        self.rejected: Counter[str] = Counter()
        self.considered = 0
        for _ in self._laid_out():  # counts what is removed, and keeps what is few
            pass
        self.chunks = search.axes(self._q, pins).prefill_chunk

    def _laid_out(self) -> Iterator[Table]:
        found, rows = Found(), 0
        for block in search.blocks(self._q, self.count, self.pins, found):
            for names in (*step.WITHOUT_BATCH, *capacity.WITHOUT_BATCH):
                block.key(names)
            # whole structures are in one block, so a number within it tells them apart
            block = block.having(structure=distinct(block, space.STRUCTURE)[1])
            rows += size(block)
            if self._kept is not None:
                self._kept.append(block)
                if rows > MOST_KEPT:
                    self._kept = None
            yield block
        self.rejected, self.considered = found.rejected, found.considered

    def blocks(self, q: Question) -> Iterator[Table]:
        """The choices, ready for prompts of this question."""
        tokens: Domain = domain(steady.step_token_values(q.workload, self.chunks))
        for block in self._kept if self._kept is not None else self._again():
            yield block.under(step_tokens=tokens, prompt_tokens=tokens)

    def _again(self) -> Iterator[Table]:
        found = Found()
        for block in search.blocks(self._q, self.count, self.pins, found):
            yield block.having(structure=distinct(block, space.STRUCTURE)[1])

    def memo(self) -> Memo:
        """Prices known so far that hold for every workload."""
        return self._memo.beside(Memo())

    def learn(self, memo: Memo) -> None:
        """Keep what a family of points has priced."""
        stages = (f"stages of {pp}" for pp in space.divisors(self.count))
        self._memo = memo.only((*FREE, *stages))


def of(q: Question, pins: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells grounds of one setting apart besides the chips."""
    return (
        tuple(sorted(pins.items())),
        q.workload.new_tokens >= space.LONG_PROMPT,
        search.axes(q, pins).prefill_chunk,
    )


def limits(q: Question, table: Table, room: Any) -> Any:
    """Sequences per rank that memory, chunk and load leave each choice."""
    offered = search.offered(q, table)
    return np.minimum(np.minimum(room, offered), np.maximum(table["prefill_chunk"], 1)).astype(np.int64)
