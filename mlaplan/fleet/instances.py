"""One instance of a model on n chips, in every way the search knows, with the times that a fleet is made of.

A fleet is a number of equal instances. Columns beside those of `pricing.price`, per attention-DP rank:

    prompt_s    t_p, the time that one prompt takes of its rank, shared with nobody
    first_s     a prompt's own way through all its chunks and stages, with nothing else on the rank
    passes      steps that a prompt is computed in, at least one
    per_round   tokens that a decode round yields a sequence (MTP)
    rounds      n = (OSL - 1) / per_round
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlaplan import pricing, ranking, search
from mlaplan.costs.factor import Memo
from mlaplan.costs.table import Table, size
from mlaplan.pricing import acceptance
from mlaplan.search import Found
from mlaplan.serving import steady
from mlaplan.space import divisors
from mlaplan.strategy import CODED, KV_DTYPES, NAMES

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question
    from mlaplan.specs.chip import Chip
    from mlaplan.workload import Workload

POINTS = 24  # of a front that are kept
KEPT = (*NAMES, "decode_s", "prompt_s", "first_s", "passes", "per_round", "rounds")


def sizes(chip: Chip, most: int) -> list[int]:
    """Chips of an instance: divisors of a node, and whole nodes, up to `most`."""
    node = chip.scale_up.chips_per_node
    return sorted({n for n in [*divisors(node), *range(node, most + 1, node)] if n <= most})


def rows(q: Question, chips: int, pins: Mapping[str, Any], tokens: float | None, found: Found) -> Iterator[Table]:
    """Every strategy of one replica on so many chips that memory holds, with every batch, priced."""
    fixed, memo = {**pins, "replicas": 1}, Memo()
    if any(chips % int(fixed.get(name, 1)) for name in ("tp", "pp", "dp", "ep")):
        return
    for choices in search.blocks(q, chips, fixed, found):
        table = search.batched(q, choices, fixed, found, memo)
        for start in range(0, size(table), search.BLOCK_ROWS):
            block = table.take(slice(start, start + search.BLOCK_ROWS))
            found.priced += size(block)
            for part in pricing.priced(q, block, tokens, memo):
                kept = search.apply(q, "capacity", part, found)
                if size(kept):
                    yield timed(q, kept, tokens)


def timed(q: Question, table: Table, given: float | None) -> Table:
    """The priced rows with the columns above."""
    work, engine = q.workload, q.setting.engine
    depths = [acceptance(q, depth, given).value for depth in range(int(table["mtp"].max(initial=0)) + 1)]
    per_round = np.array(depths)[table["mtp"]]
    step_tokens = steady.prefill_step_tokens(table, work, per_round)
    balance = np.where(table["dp"] > 1, float(engine.prefill_balance), 1.0)
    units, each_s = work.new_tokens / step_tokens, table["prefill_s"] / balance
    first = (np.maximum(units, 1.0) - 1.0) * each_s + table["prefill_pass_s"] + table["prefill_late_s"]
    return table.having(
        prompt_s=units * each_s, first_s=first, passes=np.maximum(units, 1.0), per_round=per_round,
        rounds=(work.osl - 1) / per_round,
    )  # fmt: skip


def front(
    parts: Iterator[Table], x: str, y: str, points: int = POINTS, by: tuple[str, ...] = ("kv_dtype",)
) -> list[Table]:
    """Of each KV dtype, the rows that no other beats in columns x and y (more is better), thinned; by falling x.

    A cache passes between pools in one dtype, so that fronts of different dtypes are not mixed; by: further columns
    that decide what a plan can be joined with.
    """
    kept: dict[tuple[int, ...], list[Table]] = {}
    for part in parts:
        if not size(part):
            continue
        keys = np.stack([part[name] for name in by], axis=1)
        for key in np.unique(keys, axis=0):
            own = part.take(np.flatnonzero((keys == key).all(axis=1)))
            kept.setdefault(tuple(int(k) for k in key), []).append(own.take(ranking.pareto(own[x], own[y])))
    out = []
    for several in kept.values():
        one = search.joined([{name: part[name] for name in {*KEPT, x, y}} for part in several])
        out.append(one.take(thinned(ranking.pareto(one[x], one[y]), points)))
    return out


def thinned(index: NDArray[np.intp], points: int) -> NDArray[np.intp]:
    """At most so many of a list, both ends among them."""
    if len(index) <= points:
        return index
    return index[np.unique(np.linspace(0, len(index) - 1, points).round().astype(np.intp))]


def alone(q: Question, **changes: Any) -> Question:
    """The question for one instance: the same lengths, any load, no limits but those given."""
    none = {"concurrency": None, "rate": None, "ttft_s": None, "tpot_s": None}
    work: Workload = replace(q.workload, **{**none, **changes})
    return replace(q, workload=work, budget=q.budget._replace(max_context=work.max_context))


def kv_dtype(table: Table) -> str:
    """The KV dtype of a table of one."""
    return KV_DTYPES[int(table["kv_dtype"][0])]


def coded(name: str, value: Any) -> int:
    """A column's number for a word of it."""
    return CODED[name].index(value) if name in CODED else int(value)
