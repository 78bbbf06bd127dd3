"""What fits: bytes per chip of every row, and how many distinct tokens its cache holds.

    kv_tokens = min over stages of floor( (fraction x capacity - weights - everything else) / KV bytes per token )

`kv_tokens` counts distinct tokens of one attention-DP rank: tensor parallelism does not raise it, decode context
parallelism multiplies it. Each candidate cut of the pipeline has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import memory, pipeline
from mlaplan.costs.factor import Columns, Table, by_values, factored, size, take
from mlaplan.costs.roofline import Numeric, ceil_div
from mlaplan.strategy import KV_DTYPES, KV_LAYOUTS, WEIGHT_DTYPES

if TYPE_CHECKING:
    from mlaplan.costs.step import Setting

SHARDS = ("tp", "dp", "ep", "dcp", "cp")


class Budget(NamedTuple):
    """What the memory must serve: the longest sequence, and the user's own fraction and reserve."""

    max_context: int
    memory_fraction: float
    reserve_bytes: float | None = None


def shards(table: Table) -> memory.Shards:
    return memory.Shards(*(table[name] for name in SHARDS))


def usable_bytes(s: Setting, budget: Budget) -> float:
    """fraction x what the driver reports. [B]"""
    return budget.memory_fraction * float(s.chip.memory.capacity)


def weight_columns(s: Setting, table: Table) -> Columns:
    """Weights per chip of one layer of each kind (`w0`, `w1`...), of the MTP layers and of the two vocabularies."""
    kinds = pipeline.layer_kinds(s.model)

    def of(values: dict[str, int], sub: Table) -> Columns:
        target, sh, r = WEIGHT_DTYPES[values["weight_dtype"]], shards(sub), s.redundant_experts
        out = {f"w{i}": memory.layer_weight_bytes(s.model, k, sh, target, r) for i, k in enumerate(kinds)}
        out["w_mtp"] = memory.mtp_weight_bytes(s.model, sh, target, r)
        out["w_embedding"] = memory.vocabulary_bytes(s.model, "embedding", sh)
        out["w_head"] = memory.vocabulary_bytes(s.model, "lm_head", sh)
        return {name: np.broadcast_to(column, size(sub)) for name, column in out.items()}

    precision = ("weight_dtype",)
    return factored(table, (*SHARDS, *precision), lambda u: by_values(u, precision, of))


def kv_columns(s: Setting, table: Table) -> Columns:
    """Cache bytes per distinct token and chip of one layer of each kind (`k0`...), and of the MTP layers."""
    kinds = pipeline.layer_kinds(s.model)
    mtp = s.model.mtp

    def of(values: dict[str, int], sub: Table) -> Columns:
        layout, dtype = KV_LAYOUTS[values["kv_layout"]], KV_DTYPES[values["kv_dtype"]]
        sh = shards(sub)
        out = {f"k{i}": memory.layer_kv_bytes(s.model, k, sh, layout, dtype) for i, k in enumerate(kinds)}
        out["k_mtp"] = 0.0
        if mtp is not None:
            draft = pipeline.LayerKind((mtp.attention,), ())
            out["k_mtp"] = mtp.layers * memory.layer_kv_bytes(s.model, draft, sh, layout, dtype)
        return {name: np.broadcast_to(column, size(sub)) for name, column in out.items()}

    precision = ("kv_layout", "kv_dtype")
    return factored(table, (*SHARDS, *precision), lambda u: by_values(u, precision, of))


def other_items(s: Setting, table: Table, budget: Budget) -> dict[str, Numeric]:
    """Everything that is neither weights nor cache, by name, per row. [B]"""
    e, sh = s.engine, shards(table)
    rows = e.workspace.rows(budget.max_context + 0 * table["batch"], table["batch"], table["block_size"]) if e.workspace else 0.0
    dispatches = (table["ep"] > 1) & (table["dp"] > 1) & e.dispatch
    out: dict[str, Numeric] = {
        "activation_bytes": memory.activation_bytes(
            s.model, sh, table["prefill_chunk"], table["batch"], 1 + table["mtp"], e.hidden_copies, e.routed_copies
        ),
        "workspace_bytes": memory.mla_workspace_bytes(s.model, sh, rows),
        "dispatch_buffer_bytes": np.where(dispatches, e.dispatch_buffer_bytes, 0.0),
    }
    if budget.reserve_bytes is not None:
        return {**out, "reserve_bytes": budget.reserve_bytes}
    return {
        **out,
        "graph_bytes": e.graph_bytes,
        "comm_buffer_bytes": np.where(table["tp"] * table["dp"] * table["pp"] > 1, e.comm_buffer_bytes, 0.0),
        "context_bytes": e.context_bytes,
    }


def other_bytes(s: Setting, table: Table, budget: Budget) -> NDArray[np.float64]:
    """Sum of `other_items` per row."""
    names = (*SHARDS, "pp", "prefill_chunk", "block_size", "batch", "mtp")

    def price(u: Table) -> Columns:
        total: Numeric = np.zeros(size(u))
        for one in other_items(s, u, budget).values():
            total = total + one
        return {"other": total}

    return factored(table, names, price)["other"]


class StageBytes(NamedTuple):
    """Per chip of one stage: weights, and cache bytes per distinct token."""

    weights: Numeric
    kv_per_token: Numeric


def stage_bytes(s: Setting, stage: pipeline.Stage, w: Columns, k: Columns, with_mtp: Numeric, n: int) -> StageBytes:
    """Sum of a stage's layers, with the vocabularies and the MTP layers where they are."""
    weights: Numeric = np.zeros(n)
    kv: Numeric = np.zeros(n)
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


class Fit(NamedTuple):
    """Per row of one pipeline depth: tokens that each cut holds [cuts, rows], its heaviest stage's weights."""

    kv_tokens: NDArray[np.float64]
    weight_bytes: NDArray[np.float64]
    kv_bytes_per_token: NDArray[np.float64]


def fit(s: Setting, table: Table, budget: Budget, cuts: list[pipeline.Cut], other: NDArray[np.float64]) -> Fit:
    """Capacity of every cut for rows of one pipeline depth. Negative tokens say that not even the weights fit."""
    n = size(table)
    w, k = weight_columns(s, table), kv_columns(s, table)
    free = usable_bytes(s, budget) - other
    with_mtp = (table["mtp"] > 0).astype(np.float64)
    tokens = np.full((len(cuts), n), np.inf)
    heaviest, widest = np.zeros((len(cuts), n)), np.zeros((len(cuts), n))
    for c, cut in enumerate(cuts):
        for stage in cut.stages:
            one = stage_bytes(s, stage, w, k, with_mtp, n)
            room = np.floor((free - one.weights) / one.kv_per_token)
            worse = room < tokens[c]
            tokens[c] = np.where(worse, room, tokens[c])
            heaviest[c] = np.where(worse, one.weights, heaviest[c])
            widest[c] = np.where(worse, one.kv_per_token, widest[c])
    return Fit(tokens, heaviest, widest)


def sequence_tokens(table: Table, max_context: int) -> Numeric:
    """Cache tokens that one sequence takes at its end, in whole blocks on every decode-context-parallel rank."""
    block = table["block_size"] * table["dcp"]
    return ceil_div(max_context, block) * block


def rows_by_depth(table: Table) -> list[tuple[int, NDArray[np.intp], Table]]:
    """(pp, row numbers, their table) for every pipeline depth."""
    return [
        (int(pp), rows, take(table, rows))
        for pp in np.unique(table["pp"])
        for rows in [np.flatnonzero(table["pp"] == pp)]
    ]
