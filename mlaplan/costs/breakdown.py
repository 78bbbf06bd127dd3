"""One strategy operator by operator: the same formulas as the table, every operator kept.

Operators are those of the slowest pipeline stage, per chip and round. What is no operator is listed too, so that
the times sum to the step: host time, what two-batch overlap hides (negative), sends between stages, and the
bubble, which is the rest of the round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.costs import band, dense, operators, pipeline, step
from mlaplan.costs.machine import Op, bound_of
from mlaplan.costs.operators import Prefill

if TYPE_CHECKING:
    from mlaplan.costs.factor import Table
    from mlaplan.costs.step import Setting


class Phase(NamedTuple):
    """A step of one phase: its time with band, the part that is exposed communication, and what it is made of."""

    step_s: band.Interval
    comm_share: float
    ops: list[Op]
    stage: pipeline.Stage
    micro_batches: int
    bubble_fraction: float  # idle because a stage waits for others to be filled
    imbalance_fraction: float  # idle because the slowest stage is slower than the mean


def decode(s: Setting, table: Table, context: int, step_s: float, total_s: float, cut: int) -> Phase:
    """The decode round of a one-row table; `total_s` over all stages once, under its cut."""
    cells = _scalars(step.decode_cells(table))
    machine = s.machine(cells["weight_dtype"], cells["kv_dtype"])
    pp, tbo = cells["pp"], cells["two_batch_overlap"]
    m = int(step.micro_batches(pp, cells["batch"]))
    tokens = cells["tokens"] = cells["seqs"] * cells["q_len"]
    tail = dense.head_ops(machine, tokens, cells["tp"])
    if cells["mtp"]:
        drafts = operators.mtp_draft(machine, cells, context, s.moe)
        tail += [op._replace(name=f"mtp_{op.name}").scaled(cells["mtp"]) for op in drafts]

    def attention(name: str) -> list[Op]:
        return operators.attention_decode(machine, name, cells, context)

    def ffn(name: str) -> list[Op]:
        return operators.feed_forward(machine, name, cells, True, s.moe)

    embedding = dense.embedding_ops(machine, tokens, cells["tp"])
    send = float(step.send_times(s, cells, tokens * (1 + tbo))) if pp > 1 else 0.0
    host = float(s.engine.step_overhead_s)
    parts = _stages(s, pp, cut, attention, ffn, embedding, tail, tbo, host, 0.0)
    return _phase(s, parts, step_s, total_s, m, send, pp)


def prefill(s: Setting, table: Table, step_tokens: int, prompts: Prefill, step_s: float, cut: int) -> Phase:
    """The prefill step of a one-row table: through all stages once, `step_s` in all."""
    cells = _scalars(step.prefill_cells(table, np.array([step_tokens])))
    machine = s.machine(cells["weight_dtype"], cells["kv_dtype"])
    pp, tbo = cells["pp"], cells["two_batch_overlap"]
    tokens = cells["tokens"] = cells["step_tokens"]
    rows = step.finished(tokens, prompts)

    def attention(name: str) -> list[Op]:
        return operators.attention_prefill(machine, name, cells, prompts)

    def ffn(name: str) -> list[Op]:
        return operators.feed_forward(machine, name, cells, False, s.moe)

    embedding = dense.embedding_ops(machine, tokens, cells["tp"])
    tail = dense.head_ops(machine, rows, cells["tp"])
    send = float(step.send_times(s, cells, step_tokens)) if pp > 1 else 0.0
    e = s.engine
    parts = _stages(
        s, pp, cut, attention, ffn, embedding, tail, tbo, float(e.step_overhead_s), float(e.prefill_layer_host_s)
    )
    return _phase(s, parts, step_s, step_s - pp * send, 1, send, pp)


def _scalars(table: Table) -> dict[str, Any]:
    return {name: int(np.asarray(column).ravel()[0]) for name, column in table.items()}


def _stages(s, pp, cut, attention, ffn, embedding, tail, tbo, host, layer_host):  # type: ignore[no-untyped-def]
    """[(stage, operators of one micro-batch)] of the distinct stages of the cut."""
    kinds = pipeline.layer_kinds(s.model)
    calls = 1 + tbo
    per_layer = []
    for kind in kinds:
        ops = [op.scaled(calls) for n in kind.attention for op in attention(n)]
        ops += [op.scaled(calls) for n in kind.ffn for op in ffn(n)]
        if tbo:
            chip, link = operators.split(ops)
            saved = float(s.engine.overlap_fraction) * min(float(chip), float(link))
            ops.append(Op("two_batch_overlap", "overlap", -saved))
        per_layer.append(ops)
    out = []
    for stage in pipeline.cuts(s.model, pp)[cut].stages:
        ops = [op.scaled(calls) for op in embedding] if stage.first else []
        for count, layer in zip(stage.counts, per_layer, strict=True):
            ops += [op.scaled(count) for op in layer] if count else []
        ops += [op.scaled(calls) for op in tail] if stage.last else []
        busy = sum(float(op.time_s) for op in ops)
        waiting = max(layer_host * sum(stage.counts) - busy, 0.0)
        if waiting:
            ops.append(Op("host_launch", "host", waiting))
        ops.append(Op("host_overhead", "host", host))
        out.append((stage, ops, busy + waiting + host))
    return out


def _phase(s, parts, step_s, total_s, m, send, pp):  # type: ignore[no-untyped-def]
    stage, ops, worst = max(parts, key=lambda part: part[2])
    ops = [op.scaled(m) for op in ops]
    if pp > 1:
        ops.append(Op("pipeline_send", "link", m * send, link_bytes=0.0, residual=0.35))
        ops.append(Op("pipeline_bubble", "bubble", step_s - m * (worst + send)))
    ops = merged(ops)
    # what hides under the other batch is communication that is not exposed
    comm = sum(op.time_s for op in ops if op.is_link or op.group == "overlap")
    host = s.engine.step_overhead_s
    spread = band.together(band.of_operators(ops), band.of_interval(host, m), _layer_host(s, ops))
    return Phase(
        spread.around(step_s),
        max(comm, 0.0) / step_s,
        ops,
        stage,
        m,
        max(step_s - m * (worst + send), 0.0) / step_s if pp > 1 else 0.0,
        1.0 - total_s / pp / worst,
    )


def _layer_host(s: Setting, ops: list[Op]) -> band.Spread:
    """Spread of host-bound launches, where there are any."""
    waiting = sum(op.time_s for op in ops if op.name == "host_launch")
    if not waiting:
        return band.Spread(0.0, 0.0)
    known = s.engine.prefill_layer_host_s
    return band.Spread(waiting * (1 - known.low / known.value), waiting * (known.high / known.value - 1))


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
