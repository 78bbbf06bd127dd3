"""One strategy operator by operator: the same formulas as the table, every operator kept.

Operators are those of the slowest pipeline stage, per chip and round. What is no operator is listed too, so that
the times sum to the step: host time, what two-batch overlap hides (negative), sends between stages, and the
bubble, which is the rest of the round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.costs import band, dense, operators, pipeline, step
from mlaplan.costs.collectives import DEFAULT_RESIDUAL
from mlaplan.costs.machine import Op, bound_of, link_op
from mlaplan.costs.operators import Prefill
from mlaplan.costs.roofline import ROUNDING

if TYPE_CHECKING:
    from mlaplan.costs.step import Setting
    from mlaplan.costs.table import Table


class Phase(NamedTuple):
    """A step of one phase: its time with band, the part that is exposed communication, and what it is made of."""

    step_s: band.Interval
    comm_share: float
    ops: list[Op]
    stage: pipeline.Stage
    micro_batches: int
    bubble_fraction: float  # idle because a stage waits for others to be filled
    imbalance_fraction: float  # idle because the slowest stage is slower than the mean


class _Blocks(NamedTuple):
    """Operators of one call of each block: by attention and feed-forward kind, of the embedding and of the tail."""

    attention: dict[str, list[Op]]
    ffn: dict[str, list[Op]]
    embedding: list[Op]
    tail: list[Op]  # the head, and MTP drafts


class _Round(NamedTuple):
    """How stages make up the step: its time, all stages once, micro-batches, the send of one to the next stage."""

    step_s: float
    all_stages_s: float
    micro_batches: int
    send_s: float
    send_bytes: float
    decode: bool


def decode(s: Setting, table: Table, context: int, step_s: float, total_s: float, cut: int) -> Phase:
    """The decode round of a one-row table; `total_s` over all stages once, under its cut."""
    cells = _scalars(step.decode_cells(table))
    machine = s.machine(cells["weight_dtype"], cells["kv_dtype"])
    tokens = cells["tokens"] = cells["seqs"] * cells["q_len"]
    tail = operators.head(machine, tokens, cells)
    if cells["mtp"]:
        drafts = operators.mtp_drafts(
            s.machine(cells["weight_dtype"], cells["kv_dtype"], draft=True), cells, context, s.moe
        )
        tail += [op._replace(name=f"mtp_{op.name}") for op in drafts]
    blocks = _Blocks(
        {n: operators.attention_decode(machine, n, cells, context) for n in s.model.attention},
        {n: operators.feed_forward(machine, n, cells, True, s.moe) for n in s.model.ffn},
        dense.embedding_ops(machine, tokens, cells["tp"]),
        tail,
    )
    m = int(step.micro_batches(cells["pp"], cells["batch"]))
    sent = tokens * (1 + cells["two_batch_overlap"])
    whole = _Round(step_s, total_s, m, *_send(s, cells, sent), True)
    return _phase(s, cells, cut, blocks, whole, 0.0)


def prefill(s: Setting, table: Table, step_tokens: int, prompts: Prefill, step_s: float, cut: int) -> Phase:
    """The prefill step of a one-row table: through all stages once, `step_s` in all."""
    cells = _scalars(step.prefill_cells(table, np.array([step_tokens])))
    machine = s.machine(cells["weight_dtype"], cells["kv_dtype"])
    tokens = cells["tokens"] = cells["step_tokens"]
    blocks = _Blocks(
        {n: operators.attention_prefill(machine, n, cells, prompts) for n in s.model.attention},
        {n: operators.feed_forward(machine, n, cells, False, s.moe) for n in s.model.ffn},
        dense.embedding_ops(machine, tokens, cells["tp"]),
        operators.head(machine, step.finished(tokens, prompts), cells),
    )
    send_s, send_bytes = _send(s, cells, step_tokens)
    whole = _Round(step_s, step_s - cells["pp"] * send_s, 1, send_s, send_bytes, False)
    return _phase(s, cells, cut, blocks, whole, float(s.engine.prefill_layer_host_s))


def _scalars(table: Table) -> dict[str, Any]:
    return {name: int(np.asarray(column).ravel()[0]) for name, column in table.items()}


def _send(s: Setting, cells: dict[str, Any], tokens: int) -> tuple[float, float]:
    """(time, bytes) of one micro-batch's activations to the next stage; nothing with one stage."""
    if cells["pp"] == 1:
        return 0.0, 0.0
    return float(step.send_times(s, cells, tokens)), float(step.send_bytes(s, cells, tokens))


def _stage_ops(
    s: Setting, stage: pipeline.Stage, blocks: _Blocks, calls: int, layer_host_s: float, decode: bool
) -> list[Op]:
    """Operators of one micro-batch on a stage, with what two-batch overlap hides and what the host adds."""
    ops = [op.scaled(calls) for op in blocks.embedding] if stage.first else []
    for count, kind in zip(stage.counts, pipeline.layer_kinds(s.model), strict=True):
        layer = [op.scaled(calls) for n in kind.attention for op in blocks.attention[n]]
        layer += [op.scaled(calls) for n in kind.ffn for op in blocks.ffn[n]]
        if calls > 1:
            chip, link = operators.split(layer)
            hidden = float(step.hidden_s(s, chip, link, decode))
            layer.append(Op("two_batch_overlap", "overlap", -hidden))
        ops += [op.scaled(count) for op in layer] if count else []
    ops += [op.scaled(calls) for op in blocks.tail] if stage.last else []
    waiting = max(layer_host_s * sum(stage.counts) - _sum(ops), 0.0)
    return [*ops, Op("host_launch", "host", waiting), Op("host_overhead", "host", float(s.engine.step_overhead_s))]


def _sum(ops: list[Op]) -> float:
    return sum(float(op.time_s) for op in ops)


def _phase(s: Setting, cells: dict[str, Any], cut: int, blocks: _Blocks, whole: _Round, layer_host_s: float) -> Phase:
    """The slowest stage's operators over the round, and what the round spends besides."""
    pp, calls = cells["pp"], 1 + cells["two_batch_overlap"]
    stages = s.cuts(pp)[cut].stages
    by_stage = [(stage, _stage_ops(s, stage, blocks, calls, layer_host_s, whole.decode)) for stage in stages]
    stage, once = max(by_stage, key=lambda pair: _sum(pair[1]))
    slowest, m = _sum(once), whole.micro_batches
    ops = [op.scaled(m) for op in once]
    bubble = whole.step_s - m * (slowest + whole.send_s) if pp > 1 else 0.0
    bubble = bubble if bubble > ROUNDING * whole.step_s else 0.0  # a difference of equal times is rounding, not work
    if pp > 1:
        send = link_op("pipeline_send", whole.send_s, whole.send_bytes, DEFAULT_RESIDUAL)
        ops += [send.scaled(m), Op("pipeline_bubble", "bubble", bubble)]
    of_fits = band.of_operators(ops), band.of_releases(ops)  # before operators of one name and several fits become one
    ops = merged(ops)
    # what hides under the other batch is communication that is not exposed
    comm = sum(op.time_s for op in ops if op.is_link or op.group == "overlap")
    host = band.of_interval(s.engine.step_overhead_s, m)
    launches = _layer_host(s, ops, layer_host_s * sum(stage.counts) * m)
    spread = band.of_step(whole.step_s, *of_fits, host, launches, _overlap(s, ops))
    return Phase(
        spread.around(whole.step_s),
        max(comm, 0.0) / whole.step_s,
        ops,
        stage,
        m,
        max(bubble, 0.0) / whole.step_s,
        max(1.0 - whole.all_stages_s / pp / slowest, 0.0) if pp > 1 else 0.0,
    )


def _layer_host(s: Setting, ops: list[Op], launches_s: float) -> band.Spread:
    """Spread of the eager launches, which take `launches_s` and are waited for as far as the device is faster."""
    if not launches_s:
        return band.Spread(0.0, 0.0)
    known = s.engine.prefill_layer_host_s
    waiting = sum(float(op.time_s) for op in ops if op.name == "host_launch")
    device = launches_s - waiting if waiting else _sum([op for op in ops if op.group not in ("host", "bubble")])
    low, now, high = (max(launches_s * x / known.value, device) for x in (known.low, known.value, known.high))
    return band.Spread(now - low, high - now)


def _overlap(s: Setting, ops: list[Op]) -> band.Spread:
    """Spread of what two-batch overlap hides."""
    hidden = -sum(float(op.time_s) for op in ops if op.group == "overlap")
    f = s.engine.overlap_fraction
    if not hidden or not f.value:
        return band.Spread(0.0, 0.0)
    return band.Spread(hidden * (f.high / f.value - 1.0), hidden * (1.0 - f.low / f.value))


def merged(ops: list[Op]) -> list[Op]:
    """Operators of one name as one, in order of appearance, as plain floats; those that take no time are left out."""
    out: dict[str, Op] = {}
    for op in ops:
        if float(op.time_s) == 0.0:
            continue
        op = op._replace(**{f: float(getattr(op, f)) for f in _SUMMED})  # type: ignore[arg-type]
        if op.name in out:
            known = out[op.name]
            op = known._replace(**{f: getattr(known, f) + getattr(op, f) for f in _SUMMED})
        out[op.name] = op
    return list(out.values())


_SUMMED = ("time_s", "flops", "bytes", "link_bytes", "compute_s", "memory_s", "floor_s")


def op_dict(op: Op) -> dict[str, Any]:
    """An operator as plain data."""
    return {
        "name": op.name,
        "time_s": op.time_s,
        "flops": op.flops,
        "bytes": op.bytes,
        "link_bytes": op.link_bytes,
        "bound": bound_of(op),
    }
