"""Decode round and prefill round of every row, over pipeline stages, with the cut that serves it best.

decode_s    one token (or 1 + MTP drafts) for every sequence in flight: a round of all micro-batches
prefill_s   one step of `step_tokens` per attention-DP rank in steady state: the slowest stage and its send;
            `prefill_pass_s` is the time of one such step through all stages
comm_s      exposed communication in them, on the slowest stage
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import pipeline, step
from mlaplan.costs.capacity import Budget, Fit, fit, other_bytes, rows_by_depth
from mlaplan.costs.factor import Columns, Table, size, take
from mlaplan.costs.operators import Prefill
from mlaplan.costs.roofline import Numeric
from mlaplan.costs.step import Setting


class Rounds(NamedTuple):
    """Per cut and row: slowest stage, all stages, link time of the slowest stage. [s]"""

    worst: NDArray[np.float64]
    total: NDArray[np.float64]
    link: NDArray[np.float64]


def rounds(
    cuts: list[pipeline.Cut], all_layers: tuple[int, ...], layers: list[Numeric], links: list[Numeric], edges: tuple[Numeric, ...],
    host: float, layer_host: float, n: int,
) -> Rounds:  # fmt: skip
    """Stage times of every cut. edges: embedding, its link part, tail (head and drafts), its link part.

    host: per pass of a stage; layer_host: what the host needs per layer at least (eager prefill).
    """
    embedding, embedding_link, tail, tail_link = edges
    worst, total, link = (np.zeros((len(cuts), n)) for _ in range(3))
    everything = slice(None)
    for c, cut in enumerate(cuts):
        for stage in cut.stages:
            t = step.stage_times(stage, layers, embedding, tail, everything)
            t = np.maximum(t, layer_host * sum(stage.counts)) + host
            slower = t > worst[c]
            own = step.stage_times(stage, links, embedding_link, tail_link, everything)
            link[c] = np.where(slower, own, link[c])
            worst[c] = np.maximum(worst[c], t)
    # every layer once, whatever the cut
    whole = step.stage_times(pipeline.Stage(all_layers, True, True), layers, embedding, tail, everything)
    total[:] = np.maximum(whole, layer_host * sum(cuts[0].layers)) + host * len(cuts[0].layers)
    return Rounds(worst, total, link)


def decode(s: Setting, table: Table, context: int, budget: Budget, need_tokens: NDArray[np.float64]) -> Columns:
    """Decode columns of every row: decode_s, stage and communication parts, the cut, capacity under it.

    need_tokens: cache tokens the row must hold; the fastest cut that holds them is taken, or, where none does,
    the one that holds most.
    """
    n = size(table)
    out = {name: np.zeros(n) for name in DECODE_COLUMNS}
    cells = step.decode_cells(table)
    blocks = step.decode_blocks(s, cells, context)
    other = other_bytes(s, table, budget)
    for pp, rows, sub in rows_by_depth(table):
        part = {name: column[rows] for name, column in blocks.items()}
        cuts = pipeline.cuts(s.model, pp)
        layers, links = step.layer_times(s, part, sub)
        embedding, embedding_link = step.edge_times(part, "@embedding", sub)
        head, head_link = step.edge_times(part, "@head", sub)
        drafts, drafts_link = step.mtp_times(part, sub)
        edges = (embedding, embedding_link, head + drafts, head_link + drafts_link)
        r = rounds(cuts, pipeline.layer_counts(s.model), layers, links, edges, float(s.engine.step_overhead_s), 0.0, len(rows))
        send = step.send_times(s, sub, cells["tokens"][rows])
        m = step.micro_batches(pp, sub["batch"])
        times = pipeline.round_s(r.worst, r.total, send, pp, m)
        room = fit(s, sub, budget, cuts, other[rows])
        best = choose_cut(times, room, need_tokens[rows])
        at = (best, np.arange(len(rows)))
        out["decode_s"][rows] = times[at]
        out["decode_stage_s"][rows] = r.worst[at]
        out["decode_total_s"][rows] = r.total[at]
        out["decode_comm_s"][rows] = m * (r.link[at] + np.where(pp > 1, send, 0.0))
        out["cut"][rows] = best
        out["kv_tokens"][rows] = room.kv_tokens[at]
        out["weight_bytes"][rows] = room.weight_bytes[at]
        out["kv_bytes_per_token"][rows] = room.kv_bytes_per_token[at]
        out["other_bytes"][rows] = other[rows]
    return out


DECODE_COLUMNS = (
    "decode_s", "decode_stage_s", "decode_total_s", "decode_comm_s", "cut",
    "kv_tokens", "weight_bytes", "kv_bytes_per_token", "other_bytes",
)  # fmt: skip


def choose_cut(times: NDArray[np.float64], room: Fit, need: NDArray[np.float64]) -> NDArray[np.intp]:
    """Fastest cut that holds the needed tokens; the roomiest where none does."""
    holds = room.kv_tokens >= need
    fastest = np.argmin(np.where(holds, times, np.inf), axis=0)
    return np.where(np.any(holds, axis=0), fastest, np.argmax(room.kv_tokens, axis=0))


def prefill(
    s: Setting, table: Table, step_tokens: NDArray[np.int64], prompts: Prefill, cut: NDArray[np.float64]
) -> Columns:
    """Prefill columns of every row under the cut that decode chose."""
    n = size(table)
    out = {name: np.zeros(n) for name in PREFILL_COLUMNS}
    cells = step.prefill_cells(table, step_tokens)
    blocks = step.prefill_blocks(s, cells, prompts)
    for pp, rows, sub in rows_by_depth(table):
        part = {name: column[rows] for name, column in blocks.items()}
        cuts = pipeline.cuts(s.model, pp)
        layers, links = step.layer_times(s, part, sub)
        embedding, embedding_link = step.edge_times(part, "@embedding", sub)
        head, head_link = step.edge_times(part, "@head", sub)
        edges = (embedding, embedding_link, head, head_link)
        e = s.engine
        r = rounds(cuts, pipeline.layer_counts(s.model), layers, links, edges, float(e.step_overhead_s), float(e.prefill_layer_host_s), len(rows))
        send = np.where(pp > 1, step.send_times(s, sub, step_tokens[rows]), 0.0)
        at = (cut[rows].astype(np.intp), np.arange(len(rows)))
        out["prefill_s"][rows] = r.worst[at] + send
        out["prefill_pass_s"][rows] = r.total[at] + pp * send
        out["prefill_comm_s"][rows] = r.link[at] + send
    return out


PREFILL_COLUMNS = ("prefill_s", "prefill_pass_s", "prefill_comm_s")


def one_row(table: Table, row: int) -> Table:
    """A table of a single row."""
    return take(table, slice(row, row + 1))
