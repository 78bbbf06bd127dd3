"""Decode round and prefill round of every row, over pipeline stages, with the cut that serves it best.

decode_s    one token (or 1 + MTP drafts) for every sequence in flight: a round of all micro-batches
prefill_s   one step of `step_tokens` per attention-DP rank in steady state: the slowest stage and its send;
            `prefill_pass_s` is the time of one such step through all stages, `prefill_late_s` by how much longer the
            last chunk of a prompt takes through the others than the slowest; `prefill_even_s` and
            `prefill_lone_s` are that step without waiting for the host, where all ranks have prompts and where one
            alone has (the same of a single rank), `prefill_host_s` what the host needs for it
decode_core_s  what the context adds to a round: the part that a step with prompts does not share
decode_gain_s  by how much a round is shorter where one rank alone has sequences (attention DP with a batch of one)
*_comm_s    exposed communication in them, on the slowest stage (with `detail`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import pipeline, step
from mlaplan.costs.capacity import Budget, Space, rows_by_depth
from mlaplan.costs.factor import Memo, Primer, Spread
from mlaplan.costs.operators import Prefill
from mlaplan.costs.roofline import Numeric
from mlaplan.costs.step import Setting
from mlaplan.costs.table import Columns, Table, size


class Parts(NamedTuple):
    """Times of a micro-batch: one layer of each kind, the embedding, the tail (head and drafts), per row. [s]"""

    layers: list[Numeric]
    embedding: Numeric
    tail: Numeric


class Host(NamedTuple):
    """Host time of one pass of a stage, and what it needs at least for each layer (eager launches). [s]"""

    per_pass: float
    per_layer: float = 0.0


def stage_s(stage: pipeline.Stage, parts: Parts, host: Host) -> Numeric:
    """One stage for one micro-batch: max(its operators, host per layer) + host per pass."""
    return (
        _at_least(step.stage_times(stage, parts.layers, parts.embedding, parts.tail), host, stage.counts)
        + host.per_pass
    )


def _at_least(busy: Numeric, host: Host, counts: Sequence[int]) -> Numeric:
    """max(operators, host per layer)"""
    return np.maximum(busy, host.per_layer * sum(counts)) if host.per_layer else busy


class Slowest:
    """The slowest stage of cuts, which share most of their stages."""

    def __init__(self, parts: Parts, host: Host) -> None:
        self.parts, self.host = parts, host
        self._known: dict[pipeline.Stage, Numeric] = {}

    def _stage(self, stage: pipeline.Stage) -> Numeric:
        if stage not in self._known:
            self._known[stage] = stage_s(stage, self.parts, self.host)
        return self._known[stage]

    def __call__(self, cut: pipeline.Cut) -> Numeric:
        worst, *others = (self._stage(stage) for stage in cut.heaviest)
        for other in others:
            worst = np.maximum(worst, other)
        return worst


def all_stages_s(s: Setting, pp: int, parts: Parts, host: Host) -> Numeric:
    """Every stage once: the same whatever the cut, up to stages that wait for their host."""
    counts = pipeline.layer_counts(s.model)
    whole = step.stage_times(pipeline.Stage(counts, True, True), parts.layers, parts.embedding, parts.tail)
    return _at_least(whole, host, counts) + host.per_pass * pp


def slowest_link_s(cut: pipeline.Cut, parts: Parts, links: Parts, host: Host) -> Numeric:
    """Exposed link time of the slowest stage of a cut."""
    if len(cut.stages) == 1:
        return step.stage_times(cut.stages[0], links.layers, links.embedding, links.tail)
    times = np.stack([np.asarray(stage_s(stage, parts, host)) for stage in cut.stages])
    of_links = np.stack([step.stage_times(one, links.layers, links.embedding, links.tail) for one in cut.stages])
    return np.take_along_axis(of_links, times.argmax(axis=0)[None], axis=0)[0]


def _parts(s: Setting, blocks: Spread, table: Table, detail: bool, decode: bool) -> tuple[Parts, Parts | None]:
    """(times, exposed link times) of the parts of a micro-batch; the latter only with `detail`."""
    layers, links = step.layer_times(s, blocks, table, decode, detail)

    def parts(layers: list[Numeric], part: str) -> Parts:
        embedding, head = (step.edge_times(blocks, name, table, part) for name in ("@embedding", "@head"))
        return Parts(layers, embedding, head + step.mtp_times(s, blocks, table, part))

    return parts(layers, "time"), parts(links, "link") if detail else None


def decode(
    s: Setting, table: Table, context: int, budget: Budget, need_tokens: NDArray[np.float64],
    memo: Memo | None = None, detail: bool = False, gain: bool | None = False, cut: NDArray[Any] | None = None,
) -> Columns:  # fmt: skip
    """Decode columns of every row: decode_s, the cut, kv_tokens; more with `detail`.

    need_tokens: cache tokens the row must hold; the fastest cut that holds them is taken, or, where none does,
    the one that holds most. detail: also decode_comm_s, decode_total_s (all stages once), weight_bytes,
    kv_bytes_per_token and other_bytes of the fullest stage. gain: decode_gain_s of every batch; None: of none.
    cut: the cut of each row, where it is chosen already.
    """
    memo = Memo() if memo is None else memo
    cells = step.decode_cells(table)
    return _by_depth(
        cells,
        memo,
        lambda primer: step.decode_blocks(s, cells, context, primer),
        lambda pp, rows, sub: _decode(
            s, sub, pp, context, budget, need_tokens[rows], memo, detail, gain, None if cut is None else cut[rows]
        ),
    )


def _decode(
    s: Setting, cells: Table, pp: int, context: int, budget: Budget, need: NDArray[np.float64], memo: Memo,
    detail: bool, gain: bool | None, given: NDArray[Any] | None,
) -> Columns:  # fmt: skip
    n, cuts = size(cells), s.cuts(pp)
    blocks = step.decode_blocks(s, cells, context, memo)
    times, links = _parts(s, blocks, cells, detail, True)
    host = Host(float(s.engine.step_overhead_s))
    memory = Space(s, cells, budget, memo)
    total, slowest_s = all_stages_s(s, pp, times, host), Slowest(times, host)
    m = step.micro_batches(pp, cells["batch"])
    send: Numeric = step.send_times(s, cells, _micro_batch_tokens(cells)) if pp > 1 else 0.0

    best = np.zeros(n, dtype=np.int64)
    round_s = total
    if pp > 1:
        rounds = [pipeline.round_s(slowest_s(cut), total, send, pp, m) for cut in cuts]
        if given is None:
            best, round_s = _fastest_that_holds(memory, cuts, need, rounds)
        else:
            best, round_s = given, np.take_along_axis(np.stack(rounds), given[None], axis=0)[0]
    tokens = memory.tokens_under(cuts, best)
    out = {"decode_s": np.asarray(round_s), "cut": best, "kv_tokens": np.asarray(tokens)}
    core = step.core_times(blocks, cells)
    out["decode_core_s"] = core if pp == 1 else m / pp * core
    out["decode_gain_s"] = np.zeros(n)
    few = (cells["dp"] > 1) & (True if gain else cells["batch"] == 1)
    if gain is not None and few.any():
        rows = np.flatnonzero(few)
        sent = send[rows] if np.ndim(send) else send
        lone_s = _lone_round_s(s, cells.take(rows), pp, best[rows], memo, blocks.take(rows), sent)
        out["decode_gain_s"][rows] = np.maximum(out["decode_s"][rows] - lone_s, 0.0)
    if links is None:
        return out
    link = _under(best, cuts, lambda cut: slowest_link_s(cut, times, links, host))
    return out | {
        "decode_comm_s": m * (link + send),
        "decode_total_s": np.asarray(total),
        "weight_bytes": _under(best, cuts, lambda cut: memory.room(cut).weight_bytes),
        "kv_bytes_per_token": _under(best, cuts, lambda cut: memory.room(cut).kv_bytes_per_token),
        "other_bytes": memory.other,
    }


def _fastest_that_holds(
    memory: Space, cuts: list[pipeline.Cut], need: NDArray[np.float64], rounds: list[NDArray[np.float64]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(the fastest cut of those that hold the tokens needed, or where none does the roomiest; its round)."""
    best, fastest = np.zeros(len(need), dtype=np.int64), rounds[0]
    for c, other in enumerate(rounds[1:], 1):
        np.copyto(best, c, where=other < fastest)
        fastest = np.minimum(fastest, other)
    tight = np.flatnonzero(~memory.ample(need))
    if len(tight):
        space = memory.part(tight)
        held, times = np.stack([space.tokens(cut) for cut in cuts]), np.stack([one[tight] for one in rounds])
        fits = held >= need[tight]
        # a round that no link can do takes forever, but still less than none at all
        ranked = np.where(fits, np.minimum(times, np.finfo(float).max), np.inf)
        best[tight] = chosen = np.where(fits.any(axis=0), ranked.argmin(axis=0), held.argmax(axis=0))
        fastest[tight] = np.take_along_axis(times, chosen[None], axis=0)[0]
    return best, fastest


def _lone_round_s(
    s: Setting, cells: Table, pp: int, cut: NDArray[Any], memo: Memo, blocks: Spread, send: Numeric
) -> Numeric:
    """A round in which one attention-DP rank alone has sequences. [s]"""
    host, cuts = Host(float(s.engine.step_overhead_s)), s.cuts(pp)
    lone, _ = _parts(s, blocks | step.lone_feed_forward(s, cells, True, memo), cells, False, True)
    slowest, total = _under(cut, cuts, Slowest(lone, host)), all_stages_s(s, pp, lone, host)
    return pipeline.round_s(slowest, total, send, pp, step.micro_batches(pp, cells["batch"]))


def _micro_batch_tokens(cells: Table) -> Numeric:
    """Query tokens that a stage passes on: both halves where two batches overlap."""
    return cells["seqs"] * cells["q_len"] * (1 + cells["two_batch_overlap"])


def _under(best: NDArray[Any], cuts: list[pipeline.Cut], of_cut: Callable[[pipeline.Cut], Numeric]) -> Numeric:
    """The value under the cut chosen in each row."""
    out: Numeric = np.zeros(len(best))
    for c, cut in enumerate(cuts):
        chosen = best == c
        if chosen.any():
            out = np.where(chosen, of_cut(cut), out)
    return out


def prefill(
    s: Setting, table: Table, step_tokens: NDArray[np.int64], prompts: Prefill, cut: NDArray[Any],
    memo: Memo | None = None, detail: bool = False,
) -> Spread:  # fmt: skip
    """Prefill columns of every row under the cut that decode chose: prefill_s, prefill_pass_s, prefill_late_s,
    prefill_even_s, prefill_lone_s, prefill_host_s.

    detail: also prefill_comm_s.
    """
    memo = Memo() if memo is None else memo
    cells = table.having(prompt_tokens=step_tokens, cut=cut)

    def price(unique: Table) -> Columns:
        cells = step.prefill_cells(unique, unique["prompt_tokens"])
        return _by_depth(
            cells,
            memo,
            lambda primer: step.prefill_blocks(s, cells, prompts, primer),
            lambda pp, _, sub: _prefill(s, sub, pp, prompts, memo, detail),
        )

    return memo.factored(f"prefill{' in detail' * detail}", cells, (*step.PREFILL_KEYS, "prompt_tokens", "cut"), price)


def _prefill(s: Setting, cells: Table, pp: int, prompts: Prefill, memo: Memo, detail: bool) -> Columns:
    e, cuts, cut = s.engine, s.cuts(pp), cells["cut"]
    host = Host(float(e.step_overhead_s), float(e.prefill_layer_host_s))
    blocks = step.prefill_blocks(s, cells, prompts, memo)
    times, links = _parts(s, blocks, cells, detail, False)
    send: Numeric = step.send_times(s, cells, cells["prompt_tokens"]) if pp > 1 else 0.0
    out = {
        "prefill_s": _under(cut, cuts, Slowest(times, host)) + send,
        "prefill_pass_s": all_stages_s(s, pp, times, host) + pp * send,
    }
    out["prefill_late_s"] = np.zeros(size(cells))
    if pp > 1 and np.any(chunked := cells["prompt_tokens"] < prompts.new):
        last, _ = _parts(s, blocks | step.last_attention(s, cells, prompts, memo), cells, False, False)
        after = all_stages_s(s, pp, last, host) - _under(cut, cuts, Slowest(last, host))
        mean = all_stages_s(s, pp, times, host) - _under(cut, cuts, Slowest(times, host))
        out["prefill_late_s"] = np.where(chunked, np.maximum(after - mean, 0.0), 0.0)
    chip = Host(host.per_pass)
    even = _under(cut, cuts, Slowest(times, chip)) + send
    out |= {"prefill_even_s": even, "prefill_lone_s": even}
    out["prefill_host_s"] = _under(cut, cuts, lambda c: host.per_layer * max(c.layers) + host.per_pass) + send
    if np.any(joint := cells["dp"] > 1):
        lone, _ = _parts(s, blocks | step.lone_feed_forward(s, cells, False, memo), cells, False, False)
        out["prefill_lone_s"] = np.where(joint, np.minimum(_under(cut, cuts, Slowest(lone, chip)) + send, even), even)
    if links is not None:
        out["prefill_comm_s"] = _under(cut, cuts, lambda one: slowest_link_s(one, times, links, host)) + send
    return out


def _by_depth(
    cells: Table, memo: Memo, prime: Callable[[Primer], object], price: Callable[[int, Any, Table], Columns]
) -> Columns:
    """`price(pp, rows, sub_table)` for each pipeline depth, put back in the order of the rows.

    prime: prices what several depths have in common at once.
    """
    depths = rows_by_depth(cells)
    if len(depths) == 1:
        return price(depths[0][0], slice(None), cells)
    with Primer(memo) as primer:
        prime(primer)
    out: Columns = {}
    for pp, rows, sub in depths:
        for name, column in price(pp, rows, sub).items():
            out.setdefault(name, np.zeros(size(cells), dtype=column.dtype))[rows] = column
    return out
