"""Time of a decode step and of a prefill step for every row of a strategy table.

The layers are priced once per distinct problem (costs.factor), summed over the layers of each pipeline stage, and
the slowest stage of the best cut decides. Two-batch overlap runs every layer twice on half the tokens and hides
a fraction f of the smaller of chip and link time:   t = chip + link - f min(chip, link).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.costs import collectives as net
from mlaplan.costs import dense, operators, pipeline
from mlaplan.costs.factor import Columns, Table, by_values, factored
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine
from mlaplan.costs.moe import MoeChoice
from mlaplan.costs.operators import Prefill
from mlaplan.costs.roofline import Numeric, ceil_div
from mlaplan.strategy import KV_DTYPES, WEIGHT_DTYPES

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

PRECISION = ("weight_dtype", "kv_dtype", "kv_layout")


@dataclass(frozen=True, slots=True)
class Setting:
    """What all strategies of one question share."""

    chip: Chip
    model: Model
    engine: EngineCosts
    redundant_experts: int = 0

    def machine(self, weight_dtype: int, kv_dtype: int) -> Machine:
        return Machine(
            self.chip,
            self.model,
            self.engine,
            WEIGHT_DTYPES[weight_dtype],
            KV_DTYPES[kv_dtype],
        )

    @property
    def moe(self) -> MoeChoice:
        e = self.engine
        return MoeChoice(e.dispatch, e.gather, float(e.imbalance), self.redundant_experts, "fp8" in self.chip.peak)


def micro_batches(pp: Numeric, batch: Numeric) -> Numeric:
    """Decode micro-batches in flight: one per stage, as long as there are sequences."""
    return np.minimum(pp, batch)


def decode_cells(table: Table) -> Table:
    """The table with the columns that decode operators depend on: sequences, tokens, queries of a micro-batch."""
    m = micro_batches(table["pp"], table["batch"])
    halves = 1 + table["two_batch_overlap"]
    seqs = ceil_div(ceil_div(table["batch"], m), halves)
    q_len = 1 + table["mtp"]
    return {**table, "seqs": seqs, "q_len": q_len, "tokens": seqs * q_len}


def prefill_cells(table: Table, step_tokens: Numeric) -> Table:
    """The table with the tokens of one prefill step, halved where two batches overlap."""
    tokens = ceil_div(np.asarray(step_tokens), 1 + table["two_batch_overlap"])
    return {**table, "step_tokens": tokens, "tokens": tokens}


# ---- blocks: columns `name.chip` and `name.link` [s] for one micro-batch ----


def decode_blocks(s: Setting, cells: Table, context: int) -> Columns:
    """Time of every block kind of a decode micro-batch, per row."""
    out: Columns = {}
    attention = ("tp", "cp", "dcp", "seqs", "q_len")
    ffn = ("tp", "dp", "ep", "cp", "tokens")
    for name in s.model.attention:
        out |= _priced(s, cells, attention, PRECISION, name, lambda m, c, n: operators.attention_decode(m, n, c, context))
    for name in s.model.ffn:
        out |= _priced(s, cells, ffn, PRECISION[:1], name, lambda m, c, n: operators.feed_forward(m, n, c, True, s.moe))
    edge = ("tp", "tokens")
    out |= _priced(s, cells, edge, PRECISION[:1], "@embedding", lambda m, c, _: dense.embedding_ops(m, c["tokens"], c["tp"]))
    out |= _priced(s, cells, edge, PRECISION[:1], "@head", lambda m, c, _: dense.head_ops(m, c["tokens"], c["tp"]))
    if np.any(cells["mtp"] > 0):
        columns = ("tp", "dp", "ep", "cp", "dcp", "seqs")
        out |= _priced(s, cells, columns, PRECISION, "@mtp", lambda m, c, _: operators.mtp_draft(m, c, context, s.moe))
    return out


def prefill_blocks(s: Setting, cells: Table, prompts: Prefill) -> Columns:
    """Time of every block kind of a prefill step, per row. The head sees one position per finished prompt."""
    out: Columns = {}
    attention = ("tp", "cp", "step_tokens")
    ffn = ("tp", "dp", "ep", "cp", "tokens")
    for name in s.model.attention:
        out |= _priced(
            s, cells, attention, PRECISION[:2], name, lambda m, c, n: operators.attention_prefill(m, n, c, prompts)
        )
    for name in s.model.ffn:
        out |= _priced(s, cells, ffn, PRECISION[:1], name, lambda m, c, n: operators.feed_forward(m, n, c, False, s.moe))
    edge = ("tp", "tokens")
    out |= _priced(s, cells, edge, PRECISION[:1], "@embedding", lambda m, c, _: dense.embedding_ops(m, c["tokens"], c["tp"]))
    out |= _priced(
        s, cells, edge, PRECISION[:1], "@head",
        lambda m, c, _: dense.head_ops(m, finished(c["tokens"], prompts), c["tp"]),
    )  # fmt: skip
    return out


def finished(tokens: Numeric, prompts: Prefill) -> Numeric:
    """Prompts that a step of so many tokens completes, at least one row for the head."""
    return np.maximum(tokens / prompts.new, 1.0)


def _priced(s: Setting, cells: Table, columns, precision, name, ops) -> Columns:  # type: ignore[no-untyped-def]
    """Chip and link time of one block over the distinct rows of the columns it depends on."""

    def of_precision(values: dict[str, int], sub: Table) -> Columns:
        m = s.machine(values["weight_dtype"], values.get("kv_dtype", 0))
        chip, link = operators.split(ops(m, sub, name))
        n = len(sub["tp"])
        return {f"{name}.chip": np.broadcast_to(chip, n), f"{name}.link": np.broadcast_to(link, n)}

    names = tuple(columns) + tuple(precision)
    return factored(cells, names, lambda unique: by_values(unique, precision, of_precision))


# ---- stages ----


def layer_times(s: Setting, blocks: Columns, table: Table) -> tuple[list[Numeric], list[Numeric]]:
    """(time, exposed link time) of one layer of each kind for one micro-batch, two-batch overlap applied."""
    times, links = [], []
    calls = 1.0 + table["two_batch_overlap"]
    hidden_part = float(s.engine.overlap_fraction) * table["two_batch_overlap"]
    for kind in pipeline.layer_kinds(s.model):
        names = (*kind.attention, *kind.ffn)
        chip = calls * sum(blocks[f"{n}.chip"] for n in names)
        link = calls * sum(blocks[f"{n}.link"] for n in names)
        saved = hidden_part * np.minimum(chip, link)
        times.append(chip + link - saved)
        links.append(link - saved)
    return times, links


def edge_times(blocks: Columns, name: str, table: Table) -> tuple[Numeric, Numeric]:
    """(time, link time) of the embedding or the head, both halves of a batch."""
    calls = 1.0 + table["two_batch_overlap"]
    link = calls * blocks[f"{name}.link"]
    return calls * blocks[f"{name}.chip"] + link, link


def mtp_times(blocks: Columns, table: Table) -> tuple[Numeric, Numeric]:
    """(time, link time) of all drafts of one micro-batch: `mtp` passes one after the other."""
    if "@mtp.chip" not in blocks:
        return 0.0, 0.0
    passes = table["mtp"] * (1.0 + table["two_batch_overlap"])
    link = passes * blocks["@mtp.link"]
    return passes * blocks["@mtp.chip"] + link, link


def stage_times(
    stage: pipeline.Stage,
    layers: list[Numeric],
    embedding: Numeric,
    tail: Numeric,
    rows: slice | np.ndarray,
) -> Numeric:
    """Time of one stage for one micro-batch: its layers, the embedding if first, head and drafts if last."""
    total: Numeric = 0.0
    for count, one in zip(stage.counts, layers, strict=True):
        if count:
            total = total + count * one[rows]
    if stage.first:
        total = total + embedding[rows]
    if stage.last:
        total = total + tail[rows]
    return total


def send_times(s: Setting, table: Table, tokens: Numeric) -> Numeric:
    """Residual stream and its norm to the next stage, over the link that joins the stages."""
    crosses = table["tp"] * table["dp"] * 2 > s.chip.scale_up.chips_per_node
    return net.send_s(s.chip, 2.0 * tokens * s.model.hidden_size * ACTIVATION_BYTES / table["tp"], crosses)
