"""Prices of strategies as columns: both phases and what they serve, the same for `recommend`, `explain` and sweeps.

A block of the search is priced slice by slice: what its rows are made of at once, beforehand, so that the slices only
look it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import capacity, phases, prefix, step
from mlaplan.costs.engine import Interval, exactly
from mlaplan.costs.factor import Memo, Primer
from mlaplan.costs.operators import Prefill
from mlaplan.costs.table import Columns, Table, size, unique
from mlaplan.rules.rule import Question
from mlaplan.serving import steady

SLICE_ROWS = 32_768  # rows priced at once: their columns stay in the processor's cache

# columns of steps that `served` reads
SERVED_OF = ("decode_s", "prefill_s", "prefill_pass_s", "cut", *steady.MORE)


def acceptance(q: Question, depth: int, tokens_given: float | None) -> Interval:
    """Tokens per round and sequence at this MTP depth: the user's, else from the model's acceptance figure."""
    mtp = q.setting.model.mtp
    if not depth or mtp is None:
        return exactly(1.0)
    if tokens_given is not None:
        return exactly(min(tokens_given, 1.0 + depth))
    low, value, high = mtp.acceptance.bounds
    return Interval(*(float(steady.tokens_per_step(depth, p)) for p in (value, low, high)))


def price(
    q: Question, table: Mapping[str, Any], tokens_given: float | None = None, memo: Memo | None = None,
    detail: bool = False,
) -> Columns:  # fmt: skip
    """All cost and serving columns of a table with batches: what `recommend`, `explain` and sweeps share.

    detail: memory and communication columns too (costs.phases).
    """
    rows = table if isinstance(table, Table) else Table(table)
    tokens = tokens_per_step(q, rows, tokens_given)
    memo = Memo() if memo is None else memo
    columns, step_tokens = steps(q, rows, tokens, memo, detail, gain=None if _always_busy(q) else False)
    return columns | served(q, rows, tokens, columns, step_tokens, memo, memo)


def served(
    q: Question, rows: Table, tokens: NDArray[np.float64], columns: Columns, step_tokens: NDArray[np.int64],
    memo: Memo | None = None, of_load: Memo | None = None,
) -> Columns:  # fmt: skip
    """The served figures of rows with their steps, under the load of the question.

    memo: of steps, if the rows have their domains. of_load: of this load.
    """
    known = memo if rows.domains else None

    def steps_of(others: Table, tokens: NDArray[np.float64]) -> tuple[Columns, NDArray[np.int64]]:
        return steps(q, others, tokens, known or Memo(), cut=others["cut"])

    return steady.served(
        rows.having(cut=columns["cut"]), q.workload, q.setting.engine, tokens, columns["decode_s"],
        columns["prefill_s"], columns["prefill_pass_s"], step_tokens, columns, of_load, steps_of,
    )  # fmt: skip


def decoding(table: Table, sequences: NDArray[np.float64]) -> Table:
    """The rows with as many sequences as are there, to the next whole one of the batch, for a round that is shown."""
    return table.having(batch=np.clip(np.rint(sequences), 1, table["batch"]).astype(np.int64))


def steps(
    q: Question, rows: Table, tokens: NDArray[np.float64], memo: Memo, detail: bool = False, gain: bool | None = False,
    cut: NDArray[Any] | None = None,
) -> tuple[Columns, NDArray[np.int64]]:  # fmt: skip
    """Cost columns of both phases, which no load changes, and the new tokens of a prefill step.

    tokens: per decode round and sequence. gain, cut: see `phases.decode`.
    """
    s, work = q.setting, q.workload
    need = np.asarray(prefix.need_tokens(rows, q.budget.max_context, q.budget.shared), dtype=float)
    columns = phases.decode(s, rows, work.mean_context, q.budget, need, memo, detail, gain, cut)
    step_tokens = steady.prefill_step_tokens(rows, work, tokens)
    prompts = Prefill(work.new_tokens, work.prefix_tokens)
    columns |= phases.prefill(s, rows, step_tokens, prompts, columns["cut"], memo, detail)
    return columns, step_tokens


def _always_busy(q: Question) -> bool:
    """Whether every rank has as many sequences as its batch: no round is ever shorter for want of them."""
    return q.workload.concurrency is None and q.workload.rate is None


def tokens_per_step(q: Question, table: Table, given: float | None) -> NDArray[np.float64]:
    depths = range(int(table["mtp"].max(initial=0)) + 1)
    return np.array([acceptance(q, depth, given).value for depth in depths])[table["mtp"]]


def priced(q: Question, block: Table, tokens: float | None, memo: Memo) -> Iterator[Table]:
    """The block with its prices, in slices of one pipeline depth each."""
    for part in primed(q, block, memo):
        yield part.having(**price(q, part, tokens, memo))


def primed(q: Question, block: Table, memo: Memo) -> Iterator[Table]:
    """The block in slices of one pipeline depth each.

    What the block's rows are made of is priced at once, so that the slices only look it up.
    """
    cells, work = step.decode_cells(block), q.workload
    parts = [cells.take(rows) for rows in _slices(block)]
    with Primer(memo) as primer:
        capacity.prime(q.setting, block, primer)
        for part in parts:  # their keys stay with them
            step.decode_blocks(q.setting, part, work.mean_context, primer)
        if not _always_busy(q):
            alone = cells.take(np.flatnonzero((cells["batch"] == 1) & (cells["dp"] > 1)))
            step.lone_feed_forward(q.setting, alone, True, primer)
        prompts, prefills = Prefill(work.new_tokens, work.prefix_tokens), _prefill_steps(block)
        step.prefill_blocks(q.setting, prefills, prompts, primer)
        step.lone_feed_forward(q.setting, prefills, False, primer)
    _prime_prefill(q, prefills, block.domain("prefill_chunk").values.tolist(), prompts, memo)
    yield from parts


def _prime_prefill(q: Question, steps: Table, chunks: Sequence[int], prompts: Prefill, memo: Memo) -> None:
    """Teaches the memo the prefill of these steps, as far as they are whole, under every cut that decode may choose."""
    whole = np.array(steady.prompt_token_values(q.workload, chunks))
    steps = steps.take((steps["step_tokens"][:, None] == whole).any(axis=1))
    cuts = np.array([len(q.setting.cuts(int(pp))) for pp in steps["pp"]])
    rows = np.repeat(np.arange(size(steps)), cuts)
    cut = np.arange(len(rows)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    every = steps.take(rows)
    phases.prefill(q.setting, every, every["step_tokens"], prompts, cut, memo)


def alike(block: Table) -> NDArray[np.int64]:
    """Rows that are priced in the same way: one rank, ranks in lockstep, and these with two batches that overlap."""
    return block["two_batch_overlap"] + (block["dp"] > 1)


def _prefill_steps(block: Table) -> Table:
    """What the prefill steps of the block's rows can be: few, so all numbers of tokens with all the rest."""
    steps, tokens = unique(block, step.PREFILL_KEYS), block.domain("step_tokens").values
    every = steps.take(np.repeat(np.arange(size(steps)), len(tokens)))
    return every.having(step_tokens=np.tile(tokens, size(steps)))


def _slices(block: Table) -> Iterator[slice]:
    """At most `SLICE_ROWS` neighbouring rows of the same depth; of long runs, also of the same class."""
    for deep in _runs(block["pp"], 0):
        long = deep.stop - deep.start > SLICE_ROWS
        for run in _runs(alike(block.of(("two_batch_overlap", "dp"), deep)), deep.start) if long else (deep,):
            for first in range(run.start, run.stop, SLICE_ROWS):
                yield slice(first, min(first + SLICE_ROWS, run.stop))


def _runs(column: NDArray[np.int64], offset: int) -> Iterator[slice]:
    """Runs of equal values, numbered from `offset` on."""
    edges = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
    for start, end in pairwise(edges):
        yield slice(offset + start, offset + end)
