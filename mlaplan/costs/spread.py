"""The error band of decode and prefill steps for whole tables: what `breakdown` adds up for one strategy.

Per block and fit, the times that the fit prices times its residual (`band`); these are summed over the slowest stage as
its times are. One call prices many rows, each with its own ranks, where `breakdown` keeps every operator of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import band, collectives, dense, operators, pipeline, step
from mlaplan.costs.collectives import DEFAULT_RESIDUAL, Group
from mlaplan.costs.factor import Memo
from mlaplan.costs.machine import Machine, Op
from mlaplan.costs.operators import Prefill
from mlaplan.costs.phases import Host, Parts
from mlaplan.costs.precision import draft_model
from mlaplan.costs.roofline import Numeric
from mlaplan.costs.table import Columns, Table, by_values, distinct, size
from mlaplan.strategy import KV_DTYPES, WEIGHT_DTYPES

if TYPE_CHECKING:
    from mlaplan.costs.step import Setting

Errors = dict[str, Numeric]  # by fit: time x residual [s]
DRAFT = (*step.PRECISION, "tp", "cp", "dcp", "seqs", "q_len", "tokens", "dp")  # a pass of drafts up to its experts
Blocks = Callable[[Machine, Table], dict[str, list[Op]]]


class Spreads(NamedTuple):
    """Distances from a step's time down and up, per row. [s]"""

    down: NDArray[np.float64]
    up: NDArray[np.float64]


class _Doubting(Machine):
    """A machine whose collectives know for each row whether as many ranks were measured."""

    def collective(self, name: str, op: str, size: Numeric, group: Group) -> Op:
        ranks, stride = np.asarray(group.ranks), np.asarray(group.stride)
        wide = ranks * stride > self.chip.scale_up.chips_per_node
        known = self.chip.scale_up.collectives.get(op)
        near, far = (collectives.collective_residual(self.chip, op, False, n) for n in (1, 1 << 30))
        measured = ~wide & (ranks <= (known.ranks[-1] if known is not None else 0))
        return super().collective(name, op, size, group)._replace(residual=np.where(measured, near, far))


def decode(s: Setting, table: Table, context: int, step_s: Numeric, cut: NDArray[Any], memo: Memo) -> Spreads:
    """Spread of the decode round of every row under its cut."""
    cells = step.decode_cells(table)
    times = step.decode_blocks(s, cells, context, memo)
    queries = cells["tokens"]
    attention = _errors(s, cells, step.attention_keys(s, step.ATTENTION, 2), lambda m, c: {
        n: operators.attention_decode(m, n, c, context) for n in s.model.attention
    })  # fmt: skip
    ffn = _feed_forward(s, cells, True)
    edges = _errors(s, cells, (*step.EDGES, "dp", "ep"), lambda m, c: {
        "@embedding": dense.embedding_ops(m, c["tokens"], c["tp"]), "@head": operators.head(m, c["tokens"], c),
    })  # fmt: skip
    tail = edges["@head"]
    if s.model.mtp is not None and np.any(cells["mtp"] > 0):
        tail = _sum([tail, _drafts(s, cells, context)])
    m = step.micro_batches(cells["pp"], cells["batch"])
    host = Host(float(s.engine.step_overhead_s))
    sent = queries * (1 + cells["two_batch_overlap"])
    whole = _Whole(attention, ffn, edges["@embedding"], tail, m, sent)
    return _of_steps(s, cells, times, whole, host, step_s, cut, True)


def prefill(
    s: Setting, table: Table, step_tokens: NDArray[np.int64], prompts: Prefill, step_s: Numeric, cut: NDArray[Any],
    memo: Memo,
) -> Spreads:  # fmt: skip
    """Spread of one prefill step of every row through all stages under its cut."""
    cells = step.prefill_cells(table, step_tokens)
    times = step.prefill_blocks(s, cells, prompts, memo)
    attention = _errors(s, cells, step.attention_keys(s, step.PREFILL_ATTENTION, 1), lambda m, c: {
        n: operators.attention_prefill(m, n, c, prompts) for n in s.model.attention
    })  # fmt: skip
    ffn = _feed_forward(s, cells, False)
    edges = _errors(s, cells, (*step.PREFILL_EDGES, "dp", "ep"), lambda m, c: {
        "@embedding": dense.embedding_ops(m, c["step_tokens"], c["tp"]),
        "@head": operators.head(m, step.finished(c["step_tokens"], prompts), c),
    })  # fmt: skip
    host = Host(float(s.engine.step_overhead_s), float(s.engine.prefill_layer_host_s))
    whole = _Whole(attention, ffn, edges["@embedding"], edges["@head"], np.ones(size(table)), step_tokens)
    return _of_steps(s, cells, times, whole, host, step_s, cut, False)


class _Whole(NamedTuple):
    """Errors of one call of each block, micro-batches of a round, and tokens sent from stage to stage."""

    attention: dict[str, Errors]
    ffn: dict[str, Errors]
    embedding: Errors
    tail: Errors
    micro_batches: Numeric
    sent: Numeric


def _drafts(s: Setting, cells: Table, context: int) -> Errors:
    """Errors of all drafts of a micro-batch: one pass over the verified tokens, the others over one a sequence."""
    mtp = s.model.mtp
    assert mtp is not None

    def before_experts(m: Machine, c: Table) -> dict[str, list[Op]]:
        return {"@draft": [
            *dense.embedding_ops(m, c["tokens"], c["tp"]), dense.mtp_projection(m, c["tokens"]),
            *operators.attention_decode(m, mtp.attention, c, context),
        ]}  # fmt: skip

    def passed(own: Table) -> Errors:
        parts = _errors(s, own, DRAFT, before_experts, draft=True)["@draft"]
        return _sum([parts, _feed_forward(s, own, True, draft=True)[mtp.ffn]])

    one = cells.with_values(q_len=np.ones_like(cells["seqs"]), tokens=cells["seqs"])
    head = _errors(s, cells, (*step.DRAFT_HEAD, "dp", "ep"), lambda m, c: {"@head": operators.head(m, c["seqs"], c)})
    depth = cells["mtp"]
    first, after = _times(passed(cells), np.minimum(depth, 1)), _times(passed(one), np.maximum(depth - 1, 0))
    return _sum([first, after, _times(head["@head"], depth)])


def _feed_forward(s: Setting, cells: Table, decode: bool, draft: bool = False) -> dict[str, Errors]:
    def ops(m: Machine, c: Table) -> dict[str, list[Op]]:
        own = c if decode else c.having(tokens=c["step_tokens"])
        return {n: operators.feed_forward(m, n, own, decode, s.moe) for n in s.model.ffn}

    return _errors(s, cells, step.FEED_FORWARD if decode else step.PREFILL_FEED_FORWARD, ops, draft)


def _errors(s: Setting, cells: Table, names: Sequence[str], ops: Blocks, draft: bool = False) -> dict[str, Errors]:
    """Time x residual by block and fit, priced over the distinct combinations of the columns they depend on."""
    unique, index = distinct(cells, tuple(dict.fromkeys(names)))
    precision = tuple(name for name in step.PRECISION if name in unique)
    releases = band.whole_step().releases

    def of_precision(values: dict[str, int], sub: Table) -> Columns:
        weights, cache = WEIGHT_DTYPES[values["weight_dtype"]], KV_DTYPES[values.get("kv_dtype", 0)]
        model, weights = draft_model(s.model, weights) if draft else (s.model, weights)
        machine = _Doubting(s.chip, model, s.engine, weights, cache)
        out: Columns = {}
        for block, of_block in ops(machine, sub).items():
            for op in of_block:
                key = f"{block} {op.group}"
                error = np.broadcast_to(np.abs(op.time_s) * op.residual, size(sub))
                out[key] = out[key] + error if key in out else error
                kind = band.CLASSES.get(op.group.partition(".")[0])
                if kind is not None:  # what a release changes: of one class all alike
                    key, change = f"{block} ~{kind}", np.broadcast_to(np.abs(op.time_s) * releases[kind], size(sub))
                    out[key] = out[key] + change if key in out else change
        return out

    blocks: dict[str, Errors] = {}
    for key, column in by_values(unique, precision, of_precision).items():
        block, _, fit = key.partition(" ")
        blocks.setdefault(block, {})[fit] = column[index]
    return blocks


def _sum(parts: Sequence[Errors]) -> Errors:
    out: Errors = {}
    for part in parts:
        for fit, value in part.items():
            out[fit] = out.get(fit, 0.0) + value
    return out


def _times(errors: Errors, factor: Numeric) -> Errors:
    return {fit: value * factor for fit, value in errors.items()}


def _of_steps(
    s: Setting, cells: Table, times: Mapping[str, Any], whole: _Whole, host: Host, step_s: Numeric, cut: NDArray[Any],
    decode: bool,
) -> Spreads:  # fmt: skip
    """Per pipeline depth and cut: the errors of the slowest stage, in squares with those of the host and the whole."""
    n = size(cells)
    known, e = band.whole_step(), s.engine
    squares, hidden = np.zeros(n), np.zeros(n)
    device, launches = np.zeros(n), np.zeros(n)
    keys, number = np.unique(cells["pp"] * 1000 + cut, return_inverse=True)
    for i, key in enumerate(keys):
        rows = np.flatnonzero(number == i)
        sub = cells.take(rows)
        pp, stages = int(key) // 1000, s.cuts(int(key) // 1000)[int(key) % 1000].stages
        of_rows = {name: column[rows] for name, column in times.items()}
        parts = _parts(s, of_rows, sub, decode)
        calls = 1.0 + sub["two_batch_overlap"]
        each = [step.stage_times(one, parts.layers, parts.embedding, parts.tail) for one in stages]
        busy = np.stack([np.broadcast_to(one, len(rows)) for one in each])
        least = np.array([[host.per_layer * sum(one.counts)] for one in stages])
        slowest = np.maximum(busy, least).argmax(axis=0)
        sent: Errors = {}
        send: Numeric = 0.0
        if pp > 1:
            send = step.send_times(s, sub, whole.sent[rows])
            sent = {"link": send * DEFAULT_RESIDUAL, "~collectives": send * known.releases["collectives"]}
        at = (slowest, np.arange(len(rows)))
        launches[rows] = np.broadcast_to(least, busy.shape)[at]
        # without a wait for the host the device also sends
        device[rows] = busy[at] + np.where(launches[rows] > busy[at], 0.0, send)
        layers = _hidden(s, of_rows, sub, decode)
        for c, stage in enumerate(stages):
            here = np.flatnonzero(slowest == c)
            if not len(here):
                continue
            saved = sum(count * one for count, one in zip(stage.counts, layers, strict=True))
            hidden[rows[here]] = (whole.micro_batches[rows] * saved)[here]
            of_stage = _stage_errors(s, stage, whole, rows[here], calls[here])
            total = _sum([of_stage, {fit: value[here] for fit, value in sent.items()}])
            squares[rows[here]] = sum((whole.micro_batches[rows[here]] * value) ** 2 for value in total.values())
    half = band.EIGHTY_PERCENT * np.sqrt(squares)
    of_whole = band.EIGHTY_PERCENT * known.sum_of_parts * step_s

    def distance(of_host: float, *others: Numeric) -> NDArray[np.float64]:
        parts = (half, of_host * whole.micro_batches, of_whole, *others)
        return np.asarray(known.widening * np.sqrt(sum(np.square(part) for part in parts)))

    host_s, overhead, f = e.prefill_layer_host_s, e.step_overhead_s, e.overlap_fraction
    down = up = np.zeros(n)
    if np.any(launches):
        low, now, high = (
            np.maximum(launches * x / host_s.value, device) for x in (host_s.low, host_s.value, host_s.high)
        )
        down, up = now - low, high - now
    more, less = (f.high / f.value - 1.0, 1.0 - f.low / f.value) if f.value else (0.0, 0.0)
    return Spreads(
        distance(overhead.value - overhead.low, down, hidden * more),
        distance(overhead.high - overhead.value, up, hidden * less),
    )


def _parts(s: Setting, blocks: Any, table: Table, decode: bool) -> Parts:
    layers, _ = step.layer_times(s, blocks, table, decode, False)
    embedding, head = (step.edge_times(blocks, name, table, "time") for name in ("@embedding", "@head"))
    return Parts(layers, embedding, head + step.mtp_times(s, blocks, table, "time"))


def _hidden(s: Setting, blocks: Mapping[str, Any], table: Table, decode: bool) -> list[Numeric]:
    """What two-batch overlap hides of one layer of each kind. [s]"""
    overlaps, out = table["two_batch_overlap"], []
    for kind in pipeline.layer_kinds(s.model):
        names = (*kind.attention, *kind.ffn)
        chip, link = ((1.0 + overlaps) * sum(blocks[f"{n}.{part}"] for n in names) for part in ("chip", "link"))
        out.append(step.hidden_s(s, chip, link, decode, overlaps))
    return out


def _stage_errors(s: Setting, stage: pipeline.Stage, whole: _Whole, rows: NDArray[np.intp], calls: Numeric) -> Errors:
    def of(errors: Errors, factor: Numeric) -> Errors:
        return {fit: np.asarray(value)[rows] * factor for fit, value in errors.items()}

    parts = [of(whole.embedding, calls)] if stage.first else []
    for count, kind in zip(stage.counts, pipeline.layer_kinds(s.model), strict=True):
        if count:
            parts += [of(whole.attention[name], calls * count) for name in kind.attention]
            parts += [of(whole.ffn[name], calls * count) for name in kind.ffn]
    return _sum([*parts, *([of(whole.tail, calls)] if stage.last else [])])
