"""Strategies priced per second on one core, against the same formulas one strategy at a time in plain Python.

The table is what `recommend` prices for DeepSeek-V3 on 64 H200 with a free batch. "Fully priced" means every
column: decode and prefill over all pipeline cuts, memory, cache, TTFT, TPOT, throughput.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
from scalar.price import price as scalar_price

from mlaplan import plan, pricing, search
from mlaplan.costs.factor import Memo
from mlaplan.costs.table import Table, size
from mlaplan.engines.load import load_profile
from mlaplan.rules.rule import Question
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import from_row
from mlaplan.workload import Overrides, Workload

BAR_PER_SECOND = 1_000_000
SCALAR_ROWS = 400
ROUNDS = 5
DEVICES = 64


@pytest.fixture(scope="module")
def question() -> Question:
    work = Workload(isl=4096, osl=1024, tpot_s=0.06, ttft_s=5.0)
    return plan.question(load_chip("h200-sxm"), load_model("deepseek-v3"), load_profile("generic"), work, Overrides())


@pytest.fixture(scope="module")
def blocks(question: Question) -> list[Table]:
    """The tables that the search prices, one after the other, as it lays them out."""
    found, memo, out = search.Found(), Memo(), []
    for block in search.blocks(question, DEVICES, {}, found):
        table = search.batched(question, block, {}, found, memo)
        out += [
            table.take(slice(start, start + search.BLOCK_ROWS)) for start in range(0, size(table), search.BLOCK_ROWS)
        ]
    return out


@pytest.mark.benchmark(timer=time.process_time)
def test_strategies_priced_per_second(
    benchmark: Any, question: Question, blocks: list[Table], note: Callable[[str], None]
) -> None:
    rows = sum(map(size, blocks))

    def price_all() -> None:
        memo = Memo()  # as empty as a fresh command's
        for block in blocks:
            for _ in pricing.priced(question, block.having(), None, memo):
                pass

    benchmark.pedantic(price_all, rounds=ROUNDS, warmup_rounds=1)
    fast = benchmark.stats.stats.median / rows
    slow = median(_scalar_seconds(question, blocks))
    benchmark.extra_info |= {"rows": rows, "per_second": 1 / fast, "ratio_to_scalar": slow / fast}
    note(f"pricing: {rows:,} strategies, {1 / fast:,.0f} per CPU second (bar {BAR_PER_SECOND:,})")
    note(f"pricing: {slow / fast:,.0f} times the scalar reference, which prices {1 / slow:,.0f} per CPU second")
    assert 1 / fast >= BAR_PER_SECOND


def _scalar_seconds(q: Question, blocks: list[Table]) -> list[float]:
    """Seconds per strategy of the scalar reference on strategies spread over the same tables."""
    pick = np.random.default_rng(0)
    strategies = [
        from_row(block, int(pick.integers(size(block))))
        for block in (blocks[i % len(blocks)] for i in range(SCALAR_ROWS))
    ]
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for strategy in strategies:
            scalar_price(q, strategy)
        seconds.append((time.process_time() - start) / SCALAR_ROWS)
    return seconds


@pytest.mark.benchmark(timer=time.process_time)
def test_search_per_second(benchmark: Any, question: Question, note: Callable[[str], None]) -> None:
    """The whole search of the same space: enumeration, rules, batches, prices, the best of each structure."""
    found = search.Found()

    def whole() -> None:
        nonlocal found
        found = search.Found()
        search.search(question, DEVICES, "throughput", {}, None, found)

    benchmark.pedantic(whole, rounds=ROUNDS, warmup_rounds=1)
    rate = found.priced / benchmark.stats.stats.median
    benchmark.extra_info |= {"rows": found.priced, "per_second": rate}
    note(f"search: {found.priced:,} strategies enumerated, priced and ranked, {rate:,.0f} per CPU second")
