"""What fits: bytes per chip of every row, and how many distinct tokens its cache holds.

    kv_tokens = min over stages of floor( (fraction x capacity - weights - everything else) / KV bytes per token )

`kv_tokens` counts distinct tokens of one attention-DP rank: tensor parallelism does not raise it, decode context
parallelism multiplies it. Each candidate cut of the pipeline has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import memory, pipeline, placement
from mlaplan.costs.factor import Memo, Primer, Spread
from mlaplan.costs.prefix import Shared
from mlaplan.costs.roofline import ROUNDING, Numeric, ceil_div
from mlaplan.costs.table import Columns, Table, by_values, distinct, size, unique
from mlaplan.strategy import KV_DTYPES, KV_LAYOUTS, WEIGHT_DTYPES

if TYPE_CHECKING:
    from mlaplan.costs.step import Setting

SHARDS = ("tp", "dp", "ep", "dcp", "cp")
# what weights, cache and activations depend on
WEIGHTS, CACHE = (*SHARDS, "weight_dtype"), (*SHARDS, "kv_layout", "kv_dtype")
BUFFERS = (*SHARDS, "pp", "prefill_chunk", "mtp")
PER_STAGE = (*SHARDS, "weight_dtype", "kv_layout", "kv_dtype", "mtp")
# none of it changes with the batch: worth knowing before batches are laid out
WITHOUT_BATCH = (PER_STAGE, BUFFERS)


class Budget(NamedTuple):
    """What the memory must serve: the longest sequence, shared prefixes, and the user's own fraction and reserve."""

    max_context: int
    memory_fraction: float
    reserve_bytes: float | None = None
    shared: Shared | None = None


def shards(s: Setting, table: Table) -> memory.Shards:
    tp, dp, ep, dcp, cp = (table[name] for name in SHARDS)
    own = placement.ranks(s.engine, tp, dp, ep)
    return memory.Shards(tp, dp, ep, dcp, cp, *own, shared_ranks=s.engine.beside.ranks)


def usable_bytes(s: Setting, budget: Budget) -> float:
    """fraction x what the driver reports, or all of it where the fraction is the cache's share of the rest. [B]"""
    return (1.0 if s.engine.of_free else budget.memory_fraction) * float(s.chip.memory.capacity)


def weight_columns(s: Setting, table: Table, memo: Memo) -> Spread:
    """Weights per chip of one layer of each kind (`w0`, `w1`...), of the MTP layers and of the two vocabularies."""
    kinds = pipeline.layer_kinds(s.model)

    def of(values: dict[str, int], sub: Table) -> Columns:
        target, sh, r = WEIGHT_DTYPES[values["weight_dtype"]], shards(s, sub), s.redundant_experts
        out = {f"w{i}": memory.layer_weight_bytes(s.model, k, sh, target, r) for i, k in enumerate(kinds)}
        out["w_mtp"] = memory.mtp_weight_bytes(s.model, sh, target, r)
        out["w_embedding"] = memory.vocabulary_bytes(s.model, "embedding", sh)
        out["w_head"] = memory.vocabulary_bytes(s.model, "lm_head", sh)
        return {name: np.broadcast_to(column, size(sub)) for name, column in out.items()}

    return memo.factored("weights", table, WEIGHTS, lambda u: by_values(u, ("weight_dtype",), of))


def kv_columns(s: Setting, table: Table, memo: Memo) -> Spread:
    """Cache bytes per distinct token and chip of one layer of each kind (`k0`...), and of the MTP layers."""
    kinds = pipeline.layer_kinds(s.model)
    mtp = s.model.mtp

    def of(values: dict[str, int], sub: Table) -> Columns:
        layout, dtype = KV_LAYOUTS[values["kv_layout"]], KV_DTYPES[values["kv_dtype"]]
        sh = shards(s, sub)
        out = {f"k{i}": memory.layer_kv_bytes(s.model, k, sh, layout, dtype) for i, k in enumerate(kinds)}
        out["k_mtp"] = 0.0
        if mtp is not None:
            draft = pipeline.LayerKind((mtp.attention,), ())
            out["k_mtp"] = mtp.layers * memory.layer_kv_bytes(s.model, draft, sh, layout, dtype)
        return {name: np.broadcast_to(column, size(sub)) for name, column in out.items()}

    return memo.factored("cache", table, CACHE, lambda u: by_values(u, ("kv_layout", "kv_dtype"), of))


def prime(s: Setting, table: Table, memo: Primer) -> None:
    """Teaches the memo the sizes that the table's rows are made of, at once and not part by part."""
    parts = unique(table, PER_STAGE)
    weight_columns(s, parts, memo)
    kv_columns(s, parts, memo)
    _per_rank(s, table, memo)


def other_items(s: Setting, table: Table, budget: Budget, memo: Memo) -> dict[str, Numeric]:
    """Everything that is neither weights nor cache, by name, per row. [B]

    `outside_fraction_bytes`, negative: what lies in the memory that the engine's fraction leaves free. There the
    fraction covers weights, cache, context and communication buffers only.
    """
    e, one = s.engine, _per_rank(s, table, memo)
    out: dict[str, Numeric] = {
        "activation_bytes": one["activation"] + table["batch"] * one["logits"],
        "dispatch_buffer_bytes": one["dispatch"],
    }
    if e.workspace is not None:
        rows = e.workspace.rows(np.array(budget.max_context), table["batch"], table["block_size"])
        out["workspace_bytes"] = one["workspace_row"] * rows
    if budget.reserve_bytes is None:
        out["graph_bytes"] = e.graph_bytes
    if e.reserve_holds_activations:
        out["outside_fraction_bytes"] = -np.minimum(sum(out.values()), left_free_bytes(s, budget))
    if budget.reserve_bytes is not None:
        return {**out, "reserve_bytes": budget.reserve_bytes}
    return {
        **out,
        "comm_buffer_bytes": one["communication"],
        "context_bytes": e.context_bytes,
    }


def left_free_bytes(s: Setting, budget: Budget) -> float:
    """What the engine's fraction leaves of the device. [B]"""
    return (1.0 - budget.memory_fraction) * float(s.chip.memory.capacity)


def sequence_logit_bytes(s: Setting, table: Table) -> Numeric:
    """Logits of one sequence of a decode step; of one sequence of every DP rank where the head spans them. [B]"""
    e = s.engine
    gathers = placement.gathers(e, table["tp"], table["dp"], table["ep"])
    seen = np.where(gathers, table["dp"], 1) if e.placement.head else 1
    return memory.logit_bytes(s.model, 1, 1 + table["mtp"], seen)


def _per_rank(s: Setting, table: Table, memo: Memo) -> Spread:
    """What no batch changes. [B]

    Activations of a prefill step, a row of the MLA workspace, logits of a sequence, buffers.
    """
    e = s.engine

    def price(u: Table) -> Columns:
        sh, (tp, dp, ep) = shards(s, u), (u["tp"], u["dp"], u["ep"])
        gathers, dispatches = placement.gathers(e, tp, dp, ep), placement.dispatches(e, tp, dp, ep)
        parts = {
            "activation": memory.activation_bytes(
                s.model, sh, u["prefill_chunk"], e.hidden_copies, e.routed_copies, gathers
            ),
            "workspace_row": memory.mla_workspace_bytes(s.model, sh, np.ones(size(u))),
            "logits": sequence_logit_bytes(s, u),
            "dispatch": np.where(dispatches, e.dispatch_buffer_bytes, 0.0),
            "communication": np.where(tp * dp * u["pp"] > 1, e.comm_buffer_bytes, 0.0),
        }
        return {name: np.broadcast_to(column, size(u)) for name, column in parts.items()}

    return memo.factored("buffers", table, BUFFERS, price)


def total_bytes(items: dict[str, Numeric], rows: int) -> NDArray[np.float64]:
    """Sum of `other_items` per row."""
    total: Numeric = np.zeros(rows)
    for one in items.values():
        total = total + one
    return total


class StageBytes(NamedTuple):
    """Per chip of one stage: weights, and cache bytes per distinct token."""

    weights: Numeric
    kv_per_token: Numeric


def _stage_columns(s: Setting, pp: int, stages: Sequence[pipeline.Stage], table: Table, memo: Memo) -> Spread:
    """`weights0`, `kv0`, ...: bytes of these stages, all that pipelines of this depth have; the most of each."""

    def price(u: Table) -> Columns:
        w, k = weight_columns(s, u, memo), kv_columns(s, u, memo)
        with_mtp = (u["mtp"] > 0).astype(np.float64)
        out: Columns = {}
        for i, stage in enumerate(stages):
            one = stage_bytes(s, stage, w, k, with_mtp)
            out |= {f"weights{i}": np.asarray(one.weights), f"kv{i}": np.asarray(one.kv_per_token)}
        for name in ("weights", "kv"):
            out[f"most {name}"] = np.max([out[f"{name}{i}"] for i in range(len(stages))], axis=0)
        return out

    return memo.factored(f"stages of {pp}", table, PER_STAGE, price)


def stage_bytes(s: Setting, stage: pipeline.Stage, w: Spread, k: Spread, with_mtp: Numeric) -> StageBytes:
    """Sum of a stage's layers, with the vocabularies and the MTP layers where they are."""
    weights: Numeric = 0.0
    kv: Numeric = 0.0
    for i, count in enumerate(stage.counts):
        if count:
            weights = weights + count * w[f"w{i}"]
            kv = kv + count * k[f"k{i}"]
    if stage.first or (stage.last and s.model.tied_embeddings):
        weights = weights + w["w_embedding"]
    if stage.last:
        weights = weights + with_mtp * w["w_mtp"]
        kv = kv + with_mtp * k["k_mtp"]
        if not s.model.tied_embeddings:
            weights = weights + w["w_head"]
    return StageBytes(weights, kv)


class Room(NamedTuple):
    """Tokens that one cut holds; weights and cache bytes per token of its fullest stage. Per row."""

    kv_tokens: Numeric
    weight_bytes: Numeric
    kv_bytes_per_token: Numeric


class Space:
    """Memory of rows of one pipeline depth, from which the room under any of its cuts follows."""

    def __init__(self, s: Setting, table: Table, budget: Budget, memo: Memo) -> None:
        # cuts share most of their stages
        pp = int(table["pp"][0])
        stages = list(dict.fromkeys(stage for cut in s.cuts(pp) for stage in cut.stages))
        self._number = {stage: i for i, stage in enumerate(stages)}
        self._bytes = _stage_columns(s, pp, stages, table, memo)
        items = other_items(s, table, budget, memo)
        self.other = total_bytes(items, size(table))
        self.free = usable_bytes(s, budget) - self.other

        outside = items.get("outside_fraction_bytes")
        self.slack: Numeric = 0.0 if outside is None else left_free_bytes(s, budget) + outside
        self.cache_share = budget.memory_fraction if s.engine.of_free else 1.0
        self._stages: dict[pipeline.Stage, Room] = {}

    def _room(self, stage: pipeline.Stage) -> Room:
        """Tokens that one stage has room for, fractions kept."""
        known = self._stages.get(stage)
        if known is None:
            i = self._number[stage]
            weights, kv = self._bytes[f"weights{i}"], self._bytes[f"kv{i}"]
            left = self.free - weights
            left = left if self.cache_share == 1.0 else self.cache_share * left
            known = self._stages[stage] = Room(left / kv, weights, kv)
        return known

    def ample(self, tokens: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Where a stage with the weights of the heaviest and the cache of the largest would hold so many tokens.

        There every cut does; elsewhere some may.
        """
        left = self.cache_share * (self.free - self._bytes["most weights"])
        return left > (1.0 + ROUNDING) * tokens * self._bytes["most kv"]

    def part(self, rows: NDArray[np.intp]) -> Space:
        """The memory of some of the rows."""
        one = copy(self)
        one._bytes, one.free, one._stages = self._bytes.take(rows), self.free[rows], {}
        return one

    def tokens(self, cut: pipeline.Cut) -> Numeric:
        """Distinct tokens that the fullest stage holds; negative where not even the weights fit."""
        least, *others = (self._room(stage).kv_tokens for stage in cut.stages)
        for room in others:
            least = np.minimum(least, room)
        return np.floor(least)

    def tokens_under(self, cuts: Sequence[pipeline.Cut], chosen: NDArray[np.int64]) -> Numeric:
        """The same under the cut chosen in each row."""
        out = np.zeros(len(chosen))
        for c, cut in enumerate(cuts):
            rows = np.flatnonzero(chosen == c)
            if len(rows) == len(chosen):
                return self.tokens(cut)
            if len(rows):
                out[rows] = self.part(rows).tokens(cut)
        return out

    def room(self, cut: pipeline.Cut) -> Room:
        """The same with what the fullest stage holds besides."""
        out, *others = (self._room(stage) for stage in cut.stages)
        for one in others:
            fuller = one.kv_tokens < out.kv_tokens
            out = Room(*(np.where(fuller, a, b) for a, b in zip(one, out, strict=True)))
        return out._replace(kv_tokens=np.floor(out.kv_tokens))


def sequence_tokens(table: Table, max_context: int) -> Numeric:
    """Cache tokens that one sequence takes at its end, in whole blocks on every decode-context-parallel rank."""
    block = table["block_size"] * table["dcp"]
    return ceil_div(max_context, block) * block


def rows_by_depth(table: Table) -> list[tuple[int, NDArray[np.intp], Table]]:
    """(pp, row numbers, their table) for every pipeline depth."""
    pp = table["pp"]
    if np.all(pp == pp[:1]):  # as in every part of a search
        return [(int(one), np.arange(size(table)), table) for one in pp[:1]]
    depths, index = distinct(table, ("pp",))
    by_depth = [np.flatnonzero(index == i) for i in range(size(depths))]
    return [(int(pp), rows, table.take(rows)) for pp, rows in zip(depths["pp"], by_depth, strict=True)]
