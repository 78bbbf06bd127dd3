"""Price one strategy and say what it is made of: memory, decode, prefill, served figures with their bands.

The numbers come from the same columns that `recommend` ranks, on a table of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan import pricing
from mlaplan.costs import band, breakdown, capacity, phases, prefix
from mlaplan.costs.engine import Interval
from mlaplan.costs.factor import Memo
from mlaplan.costs.operators import Prefill
from mlaplan.costs.step import ROUTED
from mlaplan.costs.table import Table, size
from mlaplan.rules import all_rules
from mlaplan.rules.legality import NETWORK
from mlaplan.rules.rule import Question
from mlaplan.serving import steady
from mlaplan.strategy import Strategy, to_table

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.costs.table import Columns


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per chip of the fullest stage, and what its cache holds."""

    items: dict[str, float]  # named parts; the cache of the sequences in flight is `kv_bytes`
    kv_bytes_per_token: float
    kv_tokens: int
    usable_bytes: float
    capacity_bytes: float

    @property
    def total_bytes(self) -> float:
        return sum(self.items.values())


@dataclass(frozen=True, slots=True)
class Served:
    """Figures of a served workload; `tpot_s` is None for a single output token."""

    ttft_s: Interval
    tpot_s: Interval | None
    tok_s_chip: Interval
    tok_s_user: Interval | None
    requests_per_s: Interval
    usd_per_mtok: Interval | None  # output tokens
    queue_s: float
    prefill_share: float
    concurrency: float
    tokens_per_step: Interval


@dataclass(frozen=True, slots=True)
class Explanation:
    """All of one strategy. `reasons`: why it cannot be used, as (code, slug, words); empty if it can."""

    strategy: Strategy
    pp_layers: tuple[int, ...]
    memory: Memory
    reasons: list[tuple[str, str, str]]
    decode: Phase | None = None
    prefill: Phase | None = None
    served: Served | None = None
    decoding: int = 0  # sequences a rank of the decode step: of the batch, those that a request rate keeps there

    @property
    def fits(self) -> bool:
        """Whether memory holds it; other reasons may still forbid it."""
        return not any(code.startswith("MLA2") for code, _, _ in self.reasons)


def explain(
    q: Question, strategy: Strategy, *, decode_context: int | None = None, prefill_tokens: int | None = None,
    served: bool = True, tokens_given: float | None = None, price: float | None = None,
) -> Explanation:  # fmt: skip
    """Price `strategy` at a decode step of `decode_context`, a prefill step, or as served; what is None is left out.

    A served workload includes the decode and prefill steps it consists of. Across nodes of a chip without a network
    nothing has a time: memory and reasons remain.
    """
    return explain_all(
        q, [strategy], decode_context=decode_context, prefill_tokens=prefill_tokens, served=served,
        tokens_given=tokens_given, price=price,
    )[0]  # fmt: skip


def explain_all(
    q: Question, strategies: Sequence[Strategy], *, decode_context: int | None = None,
    prefill_tokens: int | None = None, served: bool = True, tokens_given: float | None = None,
    price: float | None = None, columns: Columns | None = None,
) -> list[Explanation]:  # fmt: skip
    """`explain` of several strategies, priced together as one table.

    columns: those of `pricing.price` with detail for a served workload, where they are known already.
    """
    table = Table(to_table(strategies))
    s, work = q.setting, q.workload
    context = decode_context or work.mean_context
    need = np.asarray(prefix.need_tokens(table, q.budget.max_context, q.budget.shared), dtype=float)
    prompts = Prefill(work.new_tokens, work.prefix_tokens)
    tokens = [pricing.acceptance(q, st.mtp, tokens_given) for st in strategies]
    per_step = np.array([t.value for t in tokens])
    step_tokens = steady.prefill_step_tokens(table, work, per_step)
    if prefill_tokens:
        step_tokens = np.full(len(strategies), prefill_tokens)
    timeless = np.broadcast_to(NETWORK.violated(q, table), len(strategies))
    decoding = table
    with np.errstate(all="ignore" if timeless.any() else None):
        cols = columns if columns is not None else phases.decode(s, table, context, q.budget, need, detail=True)
        if columns is None and (prefill_tokens or served):
            cols |= phases.prefill(s, table, step_tokens, prompts, cols["cut"], detail=True)
        if columns is None and served:
            cols |= pricing.served(q, table, per_step, cols, step_tokens)
        steps = cols
        if served and work.rate is not None:
            decoding = pricing.decoding(table, cols["sequences"])
            steps = phases.decode(s, decoding, context, q.budget, need, detail=True, cut=cols["cut"])
        ends = _at_routing_ends(q, decoding, context) if served else []
    out = []
    for i, st in enumerate(strategies):
        row = table.take(slice(i, i + 1))
        one = {name: column[i : i + 1] for name, column in cols.items()}
        cut = int(one["cut"][0])
        d = p = result = None
        if (decode_context or served) and not timeless[i]:
            step_s, total_s = (float(steps[name][i]) for name in ("decode_s", "decode_total_s"))
            d = breakdown.decode(s, decoding.take(slice(i, i + 1)), context, step_s, total_s, cut)
        if (prefill_tokens or served) and not timeless[i]:
            p = breakdown.prefill(s, row, int(step_tokens[i]), prompts, float(one["prefill_pass_s"][0]), cut)
        if served and d and p:
            of_row = [(float(fast[i]), float(slow[i])) for fast, slow in ends]
            result = _served(q, st, one, d, p, tokens[i], price, _from_routing(of_row, d.step_s.value))
        layers = s.cuts(st.pp)
        out.append(
            Explanation(
                st,
                layers[cut].layers if layers else (),
                memory_of(q, row, one),
                reasons(q, {**row, **one}, include_service=served),
                d,
                p,
                result,
                int(decoding["batch"][i]),
            )
        )
    return out


def memory_of(q: Question, table: Table, cols: Columns) -> Memory:
    """Memory of a one-row table from its capacity columns."""
    items = {"weight_bytes": float(cols["weight_bytes"][0])}
    for name, column in capacity.other_items(q.setting, table, q.budget, Memo()).items():
        items[name] = float(np.ravel(column)[0])
    per_token = float(cols["kv_bytes_per_token"][0])
    held = int(np.ravel(prefix.need_tokens(table, q.budget.max_context, q.budget.shared))[0])
    items["kv_bytes"] = held * per_token
    return Memory(
        items,
        per_token,
        max(int(cols["kv_tokens"][0]), 0),
        capacity.usable_bytes(q.setting, q.budget),
        float(q.setting.chip.memory.capacity),
    )


def reasons(q: Question, row: dict[str, Any], include_service: bool = True) -> list[tuple[str, str, str]]:
    """Every rule that the one-row table breaks, with its words."""
    cells = {name: np.ravel(column)[0] for name, column in row.items()}
    out = []
    for rule in all_rules():
        if rule.stage == "service" and not include_service:
            continue
        if bool(np.any(rule.violated(q, cells))):
            out.append((rule.code, rule.slug, rule.detail(q, cells)))
    return out


def _served(
    q: Question, st: Strategy, cols: Columns, d: Phase, p: Phase, tokens: Interval, price: float | None,
    from_routing: band.Spread,
) -> Served:  # fmt: skip
    """Bands of the served figures from those of the steps they are made of."""
    one = {name: float(column[0]) for name, column in cols.items()}
    e, work = q.setting.engine, q.workload
    busy = one["prefill_share"]
    of_prefill = band.relative(p.step_s)
    of_decode = band.together(band.relative(d.step_s), from_routing)
    of_tokens = band.Spread(1 - tokens.value / tokens.high, tokens.value / tokens.low - 1)
    per_token = band.together(band.scaled(of_decode, 1 - busy), band.scaled(of_prefill, busy), of_tokens)
    front = e.front_end_s.value + e.front_end_per_token_s.value * work.isl
    front_spread = band.together(band.of_interval(e.front_end_s), band.of_interval(e.front_end_per_token_s, work.isl))
    ttft = band.together(band.scaled(of_prefill, max(one["ttft_s"] - front, 0.0)), front_spread).around(one["ttft_s"])
    tpot = None if np.isnan(one["tpot_s"]) else band.scaled(per_token, one["tpot_s"]).around(one["tpot_s"])
    cycle = tpot or band.scaled(of_prefill, one["ttft_s"]).around(one["ttft_s"])
    tok = band.inverse(one["tok_s_chip"], cycle)
    rate = band.inverse(one["requests_per_s"], cycle)
    if work.rate is not None:
        rate = Interval(rate.value, min(rate.low, rate.value), min(rate.high, work.rate))
        tok = Interval(tok.value, tok.low, min(tok.high, work.rate * work.osl / st.devices))
    cost = None
    if price is not None and tok.value > 0:
        cost = Interval(*(price / 3600.0 / x * 1e6 for x in (tok.value, tok.high, tok.low)))
    user = band.inverse(one["tok_s_user"], tpot) if tpot else None
    in_flight = one["sequences"] * st.dp * st.replicas
    return Served(
        ttft, tpot, tok, user, rate, cost, one["queue_s"], busy,
        float(work.concurrency or in_flight), tokens,
    )  # fmt: skip


def _at_routing_ends(q: Question, table: Table, context: int) -> list[tuple[Any, Any]]:
    """Decode steps of all rows at both ends of each thing unknown about how experts are chosen, the faster first."""
    if not any(f.kind == "moe" for f in q.setting.model.ffn.values()):
        return []
    nothing, memo = np.zeros(size(table)), Memo()

    def steps(engine: EngineCosts) -> Any:
        nonlocal memo
        memo = memo.without(ROUTED)  # the rest is the same at all ends
        return phases.decode(replace(q.setting, engine=engine), table, context, q.budget, nothing, memo)["decode_s"]

    return [(steps(fast), steps(slow)) for fast, slow in q.setting.engine.routing_ends()]


def _from_routing(ends: list[tuple[float, float]], step_s: float) -> band.Spread:
    """Spread of a decode step by what is unknown about routing, as fractions of it."""
    each = (band.Spread(max(1 - fast / step_s, 0.0), max(slow / step_s - 1, 0.0)) for fast, slow in ends)
    return band.together(*each)
