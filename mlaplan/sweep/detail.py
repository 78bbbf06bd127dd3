"""The columns of many plans at once: what `recommend --format csv` shows of each, with the same bands.

`explain` prices one strategy operator by operator; here the same figures come from columns: steps with their
communication and memory, served figures per load, and the spreads of `costs.spread`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan import pricing
from mlaplan.costs import capacity, phases, spread
from mlaplan.costs.factor import Memo
from mlaplan.costs.operators import Prefill
from mlaplan.costs.step import ROUTED, Setting
from mlaplan.costs.table import Columns, Table, distinct, size
from mlaplan.pricing import acceptance
from mlaplan.rules.rule import Question
from mlaplan.strategy import CODED, NAMES, from_row

Floats = NDArray[np.float64]
STRUCTURE = ("replicas", "pp", "tp", "dp", "ep", "dcp", "cp", "kv_layout")


class Band(NamedTuple):
    """Values with their bounds, per row."""

    value: Floats
    low: Floats
    high: Floats


class Doubt(NamedTuple):
    """Relative distances down and up, per row."""

    down: Floats
    up: Floats


@dataclass(slots=True)
class Ends:
    """The setting at both ends of each thing unknown about routing, with what was priced for it."""

    pairs: list[tuple[Setting, Setting]]
    memos: list[list[Memo]] = field(default_factory=list)

    @classmethod
    def of(cls, s: Setting) -> Ends:
        """Nothing is unknown without experts."""
        moe = any(f.kind == "moe" for f in s.model.ffn.values())
        found = s.engine.routing_ends() if moe else []
        pairs = [(replace(s, engine=fast), replace(s, engine=slow)) for fast, slow in found]
        return cls(pairs, [[Memo(), Memo()] for _ in pairs])


def columns(
    loads: Sequence[Question], which: NDArray[np.intp], table: Table, tokens_given: float | None, price: float | None,
    memo: Memo, ends: Ends,
) -> dict[str, Any]:  # fmt: skip
    """The plan's columns of a row for each strategy of the table; `which`: the load of each."""
    q, n = loads[0], size(table)
    tokens = pricing.tokens_per_step(q, table, tokens_given)
    steps, step_tokens = pricing.steps(q, table, tokens, memo, detail=True)
    of_load = served(loads, which, table, tokens, steps, step_tokens, memo)
    rounds = _rounds(loads, which, table, steps, of_load, memo)
    if rounds.memo is not memo:
        ends = Ends.of(q.setting)
    d, p = _steps(q, rounds, table, steps, step_tokens, memo)
    routing = _routing(q, rounds.table, d.value, rounds.memo, ends)
    out: dict[str, Any] = {"label": _labels(table)}
    for name in NAMES:
        out[name] = np.array(CODED[name], dtype=object)[table[name]] if name in CODED else table[name]
    of_tokens = _tokens(q, table, tokens_given)
    for name, band in _bands(loads, which, table, of_load, d, p, routing, of_tokens, price).items():
        out |= {name: band.value, f"{name}_low": band.low, f"{name}_high": band.high}
    given = np.array([np.nan if one.workload.concurrency is None else one.workload.concurrency for one in loads])[which]
    in_flight = of_load["sequences"] * table["dp"] * table["replicas"]
    out |= {"queue_s": of_load["queue_s"], "prefill_share": of_load["prefill_share"]}
    out["in_flight"] = np.where(np.isnan(given), in_flight, given)
    out |= {"decode_step_s": d.value, "decode_comm_share": np.maximum(rounds.steps["decode_comm_s"], 0.0) / d.value}
    out |= {"prefill_step_s": p.value, "prefill_comm_share": np.maximum(steps["prefill_comm_s"], 0.0) / p.value}
    held = capacity.sequence_tokens(table, q.budget.max_context) * table["batch"]
    total = steps["weight_bytes"] + steps["other_bytes"] + held * steps["kv_bytes_per_token"]
    out |= {"weight_bytes": steps["weight_bytes"], "total_bytes": total}
    out["usable_bytes"] = np.full(n, capacity.usable_bytes(q.setting, q.budget))
    return out | {"kv_tokens": np.maximum(steps["kv_tokens"], 0).astype(np.int64)}


def _labels(table: Table) -> NDArray[Any]:
    """Labels, put together once for each structure."""
    unique, index = distinct(table, STRUCTURE)
    rest = {name: np.zeros(size(unique), dtype=np.int64) for name in NAMES if name not in STRUCTURE}
    words = [from_row({**unique, **rest}, i).label() for i in range(size(unique))]
    return np.array(words, dtype=object)[index]


def served(
    loads: Sequence[Question], which: NDArray[np.intp], table: Table, tokens: Floats, steps: Columns,
    step_tokens: NDArray[np.int64], memo: Memo,
) -> Columns:  # fmt: skip
    """Served figures of every row under its own load."""
    out: Columns = {}
    for i, load in enumerate(loads):
        rows = np.flatnonzero(which == i)
        if not len(rows):
            continue
        sub, own = table.of(NAMES, rows), {name: steps[name][rows] for name in pricing.SERVED_OF}
        found = pricing.served(load, sub, tokens[rows], own, step_tokens[rows], memo)
        for name, column in found.items():
            out.setdefault(name, np.zeros(size(table)))[rows] = column
    return out


class _Rounds(NamedTuple):
    """The decode rounds that are shown, as `explain` shows them: rows, their columns, and what knows their prices."""

    table: Table
    steps: Columns
    memo: Memo


def _rounds(
    loads: Sequence[Question], which: NDArray[np.intp], table: Table, steps: Columns, of_load: Columns, memo: Memo
) -> _Rounds:
    """Of the whole batch; at a request rate, of the sequences that it keeps there."""
    rated = np.array([one.workload.rate is not None for one in loads])[which]
    if not rated.any():
        return _Rounds(table, steps, memo)
    q, own = loads[0], Memo()
    fewer = Table(pricing.decoding(table, np.where(rated, of_load["sequences"], table["batch"])))
    nothing, context = np.zeros(size(table)), q.workload.mean_context
    found = phases.decode(q.setting, fewer, context, q.budget, nothing, own, detail=True, cut=steps["cut"])
    return _Rounds(fewer, found, own)


def _steps(
    q: Question, rounds: _Rounds, table: Table, steps: Columns, step_tokens: NDArray[np.int64], memo: Memo
) -> tuple[Band, Band]:
    """Decode round and prefill step with their bands."""
    s, cut, prompts = q.setting, steps["cut"], Prefill(q.workload.new_tokens, q.workload.prefix_tokens)
    round_s = rounds.steps["decode_s"]
    d = spread.decode(s, rounds.table, q.workload.mean_context, round_s, cut, rounds.memo)
    p = spread.prefill(s, table, step_tokens, prompts, steps["prefill_pass_s"], cut, memo)
    return _around(round_s, *d), _around(steps["prefill_pass_s"], *p)


def _around(value: Floats, down: Floats, up: Floats) -> Band:
    """As `band.Spread.around`: never below a tenth of the value."""
    return Band(value, np.maximum(value - down, 0.1 * value), value + up)


def _relative(band: Band) -> Doubt:
    with np.errstate(divide="ignore", invalid="ignore"):
        down, up = (band.value - band.low) / band.value, (band.high - band.value) / band.value
    return Doubt(np.where(band.value == 0.0, 0.0, down), np.where(band.value == 0.0, 0.0, up))


def _together(*doubts: Doubt) -> Doubt:
    down, up = (np.sqrt(sum(np.square(side) for side in sides)) for sides in zip(*doubts, strict=True))
    return Doubt(down, up)


def _scaled(doubt: Doubt, factor: Any) -> Doubt:
    return Doubt(doubt.down * factor, doubt.up * factor)


def _routing(q: Question, table: Table, decode_s: Floats, memo: Memo, ends: Ends) -> Doubt:
    """Doubt of a decode step from what is unknown about routing."""
    nothing = np.zeros(size(table))
    out = [Doubt(nothing, nothing)]
    for pair, memos in zip(ends.pairs, ends.memos, strict=True):
        times = []
        for i, s in enumerate(pair):
            own = memo.without(ROUTED).beside(memos[i])
            times.append(phases.decode(s, table, q.workload.mean_context, q.budget, nothing, own)["decode_s"])
            memos[i] = own.only((ROUTED,))
        fast, slow = times
        out.append(Doubt(np.maximum(1 - fast / decode_s, 0.0), np.maximum(slow / decode_s - 1, 0.0)))
    return _together(*out)


def _tokens(q: Question, table: Table, given: float | None) -> Band:
    """Tokens that a round yields per sequence."""
    known = [acceptance(q, depth, given) for depth in range(int(table["mtp"].max(initial=0)) + 1)]
    return Band(*(np.array([getattr(one, end) for one in known])[table["mtp"]] for end in ("value", "low", "high")))


def _bands(
    loads: Sequence[Question], which: NDArray[np.intp], table: Table, of_load: Columns, d: Band, p: Band,
    routing: Doubt, tokens: Band, price: float | None,
) -> dict[str, Band]:  # fmt: skip
    """Served figures with the bands that follow from those of the steps; formulas as in `explain`."""
    q = loads[0]
    e, work = q.setting.engine, q.workload
    busy, of_prefill = of_load["prefill_share"], _relative(p)
    of_decode = _together(_relative(d), routing)
    of_tokens = Doubt(1 - tokens.value / tokens.high, tokens.value / tokens.low - 1)
    per_token = _together(_scaled(of_decode, 1 - busy), _scaled(of_prefill, busy), of_tokens)
    fixed, each = e.front_end_s, e.front_end_per_token_s
    front = fixed.value + each.value * work.isl
    of_front = Doubt(
        np.hypot(fixed.value - fixed.low, work.isl * (each.value - each.low)),
        np.hypot(fixed.high - fixed.value, work.isl * (each.high - each.value)),
    )
    ttft, tpot = of_load["ttft_s"], of_load["tpot_s"]
    late = _around(ttft, *_together(_scaled(of_prefill, np.maximum(ttft - front, 0.0)), of_front))
    each_token = _around(tpot, *_scaled(per_token, tpot))
    single = np.isnan(tpot)  # one output token has no time per token
    whole = _around(ttft, *_scaled(of_prefill, ttft))
    cycle = Band(*(np.where(single, a, b) for a, b in zip(whole, each_token, strict=True)))
    tok, rate = _inverse(of_load["tok_s_chip"], cycle), _inverse(of_load["requests_per_s"], cycle)
    asked = np.array([np.inf if one.workload.rate is None else one.workload.rate for one in loads])[which]
    devices = table["tp"] * table["dp"] * table["pp"] * table["replicas"]
    open_loop = np.isfinite(asked)
    rate = Band(
        rate.value, np.where(open_loop, np.minimum(rate.low, rate.value), rate.low), np.minimum(rate.high, asked)
    )
    tok = Band(tok.value, tok.low, np.minimum(tok.high, asked * work.osl / devices))
    out = {"ttft_s": late, "tpot_s": each_token, "tok_s_chip": tok}
    out |= {"tok_s_user": _inverse(of_load["tok_s_user"], each_token), "requests_per_s": rate}
    if price is not None:
        with np.errstate(divide="ignore"):
            out["usd_per_mtok"] = Band(*(price / 3600.0 / x * 1e6 for x in (tok.value, tok.high, tok.low)))
    return out | {"tokens_per_step": tokens}


def _inverse(value: Floats, of: Band) -> Band:
    """A rate that falls as the time `of` rises."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = value * of.value / of.high, value * of.value / of.low
    still = of.value == 0.0
    return Band(value, np.where(still, value, low), np.where(still, value, high))
