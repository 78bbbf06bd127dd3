"""What fits: bytes per chip of every row, and how many distinct tokens its cache holds.

    kv_tokens = min over stages of floor( (fraction x capacity - weights - everything else) / KV bytes per token )

`kv_tokens` counts distinct tokens of one attention-DP rank: tensor parallelism does not raise it, decode context
parallelism multiplies it. Each candidate cut of the pipeline has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import memory, pipeline, placement
from mlaplan.costs.factor import Columns, Memo, Table, by_values, distinct, size
from mlaplan.costs.prefix import Shared
from mlaplan.costs.roofline import Numeric, ceil_div
from mlaplan.strategy import KV_DTYPES, KV_LAYOUTS, WEIGHT_DTYPES

if TYPE_CHECKING:
    from mlaplan.costs.step import Setting

SHARDS = ("tp", "dp", "ep", "dcp", "cp")
# what weights, cache and activations depend on
WEIGHTS, CACHE = (*SHARDS, "weight_dtype"), (*SHARDS, "kv_layout", "kv_dtype")
ACTIVATIONS = (*SHARDS, "prefill_chunk")


class Budget(NamedTuple):
    """What the memory must serve: the longest sequence, shared prefixes, and the user's own fraction and reserve."""

    max_context: int
    memory_fraction: float
    reserve_bytes: float | None = None
    shared: Shared | None = None


def shards(s: Setting, table: Table) -> memory.Shards:
    tp, dp, ep, dcp, cp = (table[name] for name in SHARDS)
    return memory.Shards(tp, dp, ep, dcp, cp, *placement.ranks(s.engine, tp, dp, ep))


def usable_bytes(s: Setting, budget: Budget) -> float:
    """fraction x what the driver reports, or all of it where the fraction is the cache's share of the rest. [B]"""
    return (1.0 if s.engine.of_free else budget.memory_fraction) * float(s.chip.memory.capacity)


def weight_columns(s: Setting, table: Table, memo: Memo) -> Columns:
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


def kv_columns(s: Setting, table: Table, memo: Memo) -> Columns:
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


def other_items(s: Setting, table: Table, budget: Budget, memo: Memo) -> dict[str, Numeric]:
    """Everything that is neither weights nor cache, by name, per row. [B]

    `outside_fraction_bytes`, negative: what lies in the memory that the engine's fraction leaves free. There the
    fraction covers weights, cache, context and communication buffers only.
    """
    e, heads = s.engine, _per_rank(s, table, memo)
    dispatches = placement.dispatches(e, table["tp"], table["dp"], table["ep"])
    out: dict[str, Numeric] = {
        "activation_bytes": heads["activation"] + table["batch"] * sequence_logit_bytes(s, table),
        "dispatch_buffer_bytes": np.where(dispatches, e.dispatch_buffer_bytes, 0.0),
    }
    if e.workspace is not None:
        longest = np.full(size(table), budget.max_context)
        rows = e.workspace.rows(longest, table["batch"], table["block_size"])
        out["workspace_bytes"] = heads["workspace_row"] * rows
    if budget.reserve_bytes is None:
        out["graph_bytes"] = e.graph_bytes
    if e.reserve_holds_activations:
        out["outside_fraction_bytes"] = -np.minimum(sum(out.values()), left_free_bytes(s, budget))
    if budget.reserve_bytes is not None:
        return {**out, "reserve_bytes": budget.reserve_bytes}
    return {
        **out,
        "comm_buffer_bytes": np.where(table["tp"] * table["dp"] * table["pp"] > 1, e.comm_buffer_bytes, 0.0),
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


def _per_rank(s: Setting, table: Table, memo: Memo) -> Columns:
    """Activations of a prefill step and one row of the MLA workspace, by shards and chunk. [B]"""
    e = s.engine

    def price(u: Table) -> Columns:
        sh = shards(s, u)
        gathers = placement.gathers(s.engine, u["tp"], u["dp"], u["ep"])
        active = memory.activation_bytes(s.model, sh, u["prefill_chunk"], e.hidden_copies, e.routed_copies, gathers)
        row = memory.mla_workspace_bytes(s.model, sh, np.ones(size(u)))
        return {"activation": active, "workspace_row": np.broadcast_to(row, size(u))}

    return memo.factored("activations", table, ACTIVATIONS, price)


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


def stage_bytes(s: Setting, stage: pipeline.Stage, w: Columns, k: Columns, with_mtp: Numeric) -> StageBytes:
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
    """Memory of rows of one pipeline depth, from which the room under any cut follows."""

    def __init__(self, s: Setting, table: Table, budget: Budget, memo: Memo) -> None:
        self.setting = s
        self.weights, self.cache = weight_columns(s, table, memo), kv_columns(s, table, memo)
        items = other_items(s, table, budget, memo)
        self.other = total_bytes(items, size(table))
        self.free = usable_bytes(s, budget) - self.other
        outside = items.get("outside_fraction_bytes")
        self.slack: Numeric = 0.0 if outside is None else left_free_bytes(s, budget) + outside
        self.cache_share = budget.memory_fraction if s.engine.of_free else 1.0
        self.with_mtp = (table["mtp"] > 0).astype(np.float64)
        self._stages: dict[pipeline.Stage, Room] = {}  # cuts share most of their stages

    def _room(self, stage: pipeline.Stage) -> Room:
        """Tokens that one stage has room for, fractions kept."""
        known = self._stages.get(stage)
        if known is None:
            one = stage_bytes(self.setting, stage, self.weights, self.cache, self.with_mtp)
            known = self._stages[stage] = Room(self.cache_share * (self.free - one.weights) / one.kv_per_token, *one)
        return known

    def tokens(self, cut: pipeline.Cut) -> Numeric:
        """Distinct tokens that the fullest stage holds; negative where not even the weights fit."""
        least, *others = (self._room(stage).kv_tokens for stage in cut.stages)
        for room in others:
            least = np.minimum(least, room)
        return np.floor(least)

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
    depths, index = distinct(table, ("pp",))
    if size(depths) == 1:
        return [(int(depths["pp"][0]), np.arange(size(table)), table)]
    by_depth = [np.flatnonzero(index == i) for i in range(size(depths))]
    return [(int(pp), rows, table.take(rows)) for pp, rows in zip(depths["pp"], by_depth, strict=True)]
