"""Time of a decode step and of a prefill step for every row of a strategy table.

The layers are priced once per distinct problem (costs.factor), summed over the layers of each pipeline stage, and
the slowest stage of the best cut decides. Two-batch overlap runs every layer twice on half the tokens and hides
a fraction f of the smaller of chip and link time:   t = chip + link - f min(chip, link).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs import collectives as net
from mlaplan.costs import dense, operators, pipeline
from mlaplan.costs.factor import Memo, Spread
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine, Op
from mlaplan.costs.moe import MoeChoice
from mlaplan.costs.operators import Prefill
from mlaplan.costs.precision import draft_model
from mlaplan.costs.roofline import Numeric, ceil_div
from mlaplan.costs.table import Columns, Table, by_values, size, uniform
from mlaplan.strategy import KV_DTYPES, WEIGHT_DTYPES

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

PRECISION = ("weight_dtype", "kv_dtype", "kv_layout")
# columns that a memo tells apart
KEYS = ("pp", "tp", "dp", "ep", "dcp", "cp", "prefill_chunk", "mtp", *PRECISION)
PREFILL_KEYS = ("pp", "weight_dtype", "kv_dtype", "tp", "dp", "ep", "cp", "two_batch_overlap")
Blocks = dict[str, list[Op]]  # operators of each block of one kind


@dataclass(frozen=True, slots=True)
class Setting:
    """What all strategies of one question share."""

    chip: Chip
    model: Model
    engine: EngineCosts
    redundant_experts: int = 0
    # what follows from the above alone, each found once
    _machines: dict[tuple[int, int, bool], Machine] = field(default_factory=dict, init=False, repr=False, compare=False)
    _cuts: dict[int, list[pipeline.Cut]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def machine(self, weight_dtype: int, kv_dtype: int, draft: bool = False) -> Machine:
        """The chip under one choice of precision; the same object each time, for it remembers its constants.

        draft: with the weights of the MTP layer, where the checkpoint has those in a dtype of their own.
        """
        key = weight_dtype, kv_dtype, draft and self.own_draft
        known = self._machines.get(key)
        if known is None:
            model, weights = self.model, WEIGHT_DTYPES[weight_dtype]
            if key[2]:
                model, weights = draft_model(model, weights)
            known = self._machines[key] = Machine(self.chip, model, self.engine, weights, KV_DTYPES[kv_dtype])
        return known

    @property
    def own_draft(self) -> bool:
        """Whether the MTP layer has a dtype of its own."""
        return self.model.weights.mtp is not None

    def cuts(self, pp: int) -> list[pipeline.Cut]:
        """Candidate cuts of the model into `pp` stages."""
        known = self._cuts.get(pp)
        if known is None:
            known = self._cuts[pp] = pipeline.cuts(self.model, pp)
        return known

    @property
    def moe(self) -> MoeChoice:
        e, peak = self.engine, self.chip.peak
        # kernels send what the experts multiply: fp8, or int8 where a chip has that instead (arXiv:2506.12708)
        eight_bit = "fp8" in peak or "int8" in peak
        return MoeChoice(
            e.dispatch, e.dispatch_whole, e.gather, float(e.imbalance), e.balanced, self.redundant_experts, eight_bit,
            e.beside, float(e.load_spread), float(e.rank_spread), e.dispatch_rule,
        )  # fmt: skip


def micro_batches(pp: Numeric, batch: Numeric) -> Numeric:
    """Decode micro-batches in flight: one per stage, as long as there are sequences."""
    return np.minimum(pp, batch)


def decode_cells(table: Table) -> Table:
    """The table with the columns that decode operators depend on: sequences of a micro-batch, queries of each and all.

    A draft has one query for each sequence, so `q_len` may also become 1 and `tokens` `seqs`. A table that has them
    stays as it is, with the keys it knows.
    """
    if "seqs" in table:
        return table
    seqs = ceil_div(table["batch"], table["pp"] * (1 + table["two_batch_overlap"]))
    q_len = 1 + table["mtp"]
    cells = table.having(seqs=seqs, q_len=q_len, tokens=seqs * q_len).settled((*KEYS, "replicas", "batch", "seqs"))
    one = np.ones(1, dtype=np.int64)
    return cells.settled(("q_len",), also=one).settled(("tokens",), also=cells.domain("seqs").values)


def prefill_cells(table: Table, step_tokens: Numeric) -> Table:
    """The table with the tokens of one prefill step, halved where two batches overlap."""
    tokens = ceil_div(np.asarray(step_tokens), 1 + table["two_batch_overlap"])
    return table.having(step_tokens=tokens).settled((*PREFILL_KEYS, "step_tokens"))


# ---- blocks: columns `name.chip` and `name.link` [s] for one micro-batch ----

# what changes fastest from row to row comes last: neighbouring rows then look up neighbouring prices
ATTENTION = (*PRECISION, "tp", "cp", "dcp", "seqs", "q_len")
FEED_FORWARD = ("weight_dtype", "tp", "dp", "ep", "tokens")
EDGES = ("weight_dtype", "tp", "tokens")
DRAFT_HEAD = ("weight_dtype", "tp", "seqs")
PREFILL_ATTENTION = ("weight_dtype", "kv_dtype", "tp", "cp", "step_tokens")
PREFILL_FEED_FORWARD = ("weight_dtype", "tp", "dp", "ep", "cp", "step_tokens")
PREFILL_EDGES = ("weight_dtype", "tp", "step_tokens")
ROUTED = "decode feed-forward"  # how the names of those decode prices begin that depend on how experts are chosen
OF_DRAFTS = " of drafts"  # of an MTP layer in a dtype of its own; any other has the prices of the layers
# what these have in common and no batch changes: worth knowing before batches are laid out
WITHOUT_BATCH = (ATTENTION[:-2], FEED_FORWARD[:-1], EDGES[:-1], PREFILL_KEYS)


def _with_head(s: Setting, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a block with the head: attention DP plays a part where the engine divides the head over it."""
    if not s.engine.placement.head:
        return names
    after = names.index("tp") + 1
    return (*names[:after], "dp", "ep", *names[after:])


def decode_blocks(s: Setting, cells: Table, context: int, memo: Memo) -> Spread:
    """Time of every block kind of a decode micro-batch, per row, with those of drafts where a row has any."""

    def edges(m: Machine, c: Table) -> Blocks:
        tokens = c["tokens"]
        return {"@embedding": dense.embedding_ops(m, tokens, c["tp"]), "@head": operators.head(m, tokens, c)}

    out = _attention(s, cells, context, memo) | _feed_forward(s, cells, memo)
    out |= _priced(s, memo, "decode edges", cells, _with_head(s, EDGES), edges)
    if s.model.mtp is not None and np.any(cells["mtp"] > 0):
        out |= _draft_blocks(s, cells, context, memo)
    return out


def _attention(s: Setting, cells: Table, context: int, memo: Memo, draft: bool = False) -> Spread:
    """Time of the attention blocks of a decode micro-batch, `q_len` queries for each sequence.

    `core`: what the cached context adds in all of them, the sum over layers of t(context) - t(1). [s]
    """

    def price(m: Machine, c: Table) -> Blocks:
        return {n: operators.attention_decode(m, n, c, context) for n in s.model.attention}

    def core(m: Machine, c: Table, blocks: Blocks) -> Numeric:
        total: Numeric = 0.0
        for name, count in pipeline.attention_counts(s.model).items():
            bare = operators.attention_decode(m, name, c, 1, core=True)
            names = {op.name for op in bare}
            whole = sum(op.time_s for op in blocks[name] if op.name in names)
            total = total + count * (whole - sum(op.time_s for op in bare))
        return total

    kind = "decode attention" + OF_DRAFTS * (draft and s.own_draft)
    return _priced(s, memo, kind, cells, attention_keys(s, ATTENTION, 2), price, draft, core=core)


def attention_keys(s: Setting, names: tuple[str, ...], own: int) -> tuple[str, ...]:
    """The columns of an attention block, the last `own` of its step; with attention DP where kernels depend on it."""
    return (*names[:-own], "dp", *names[-own:]) if s.engine.fused_sum.alone else names


def core_times(blocks: Spread, table: Table) -> Numeric:
    """What the cached context adds to a decode micro-batch in all attention blocks, drafts left out. [s]

    In a step that decodes beside a prompt the rest is shared with the prompt.
    """
    return _both_halves(uniform(table["two_batch_overlap"]), blocks["core"])


def _feed_forward(s: Setting, cells: Table, memo: Memo, draft: bool = False) -> Spread:
    """Time of the feed-forward blocks of a decode micro-batch of `tokens` queries."""
    choice = s.moe

    def price(m: Machine, c: Table) -> Blocks:
        return {n: operators.feed_forward(m, n, c, True, choice) for n in s.model.ffn}

    return _priced(s, memo, ROUTED + OF_DRAFTS * (draft and s.own_draft), cells, FEED_FORWARD, price, draft)


def _draft_blocks(s: Setting, cells: Table, context: int, memo: Memo) -> Spread:
    """Passes of the MTP layer in parts that depend on different columns; `mtp_times` adds them.

    `@first` is over the tokens just verified, whose keys the layer's cache wants, `@next` over one for each sequence.
    """

    def head(m: Machine, c: Table) -> Blocks:
        return {"@mtp": operators.head(m, c["seqs"], c)}

    one = cells.kin(
        "draft", lambda: cells.with_values(q_len=np.ones_like(cells["seqs"]), tokens=cells["seqs"])
    )  # fmt: skip
    out = _priced(s, memo, "draft head", cells, _with_head(s, DRAFT_HEAD), head)
    return out | _draft_pass(s, cells, "@first", context, memo) | _draft_pass(s, one, "@next", context, memo)


def _draft_pass(s: Setting, cells: Table, name: str, context: int, memo: Memo) -> Spread:
    """One pass of the MTP layer over `q_len` tokens of each sequence, all but the head."""
    mtp = s.model.mtp
    assert mtp is not None

    def entry(m: Machine, c: Table) -> Blocks:
        tokens = c["tokens"]
        return {"@mtp": [*dense.embedding_ops(m, tokens, c["tp"]), dense.mtp_projection(m, tokens)]}

    blocks = _attention(s, cells, context, memo, draft=True) | _feed_forward(s, cells, memo, draft=True)
    blocks = blocks | _priced(s, memo, "draft entry", cells, EDGES, entry, True)
    return blocks.renamed({f"{n}.": f"{name} {n}." for n in ("@mtp", mtp.attention, mtp.ffn)})


def prefill_blocks(s: Setting, cells: Table, prompts: Prefill, memo: Memo) -> Spread:
    """Time of every block kind of a prefill step, per row. The head sees one position per finished prompt."""
    choice = s.moe

    def attention(m: Machine, c: Table) -> Blocks:
        return {n: operators.attention_prefill(m, n, c, prompts) for n in s.model.attention}

    def feed_forward(m: Machine, c: Table) -> Blocks:
        cells = c.having(tokens=c["step_tokens"])
        return {n: operators.feed_forward(m, n, cells, False, choice) for n in s.model.ffn}

    def edges(m: Machine, c: Table) -> Blocks:
        tokens = c["step_tokens"]
        rows = finished(tokens, prompts)
        return {"@embedding": dense.embedding_ops(m, tokens, c["tp"]), "@head": operators.head(m, rows, c)}

    out = _priced(s, memo, "prefill attention", cells, attention_keys(s, PREFILL_ATTENTION, 1), attention)
    out |= _priced(s, memo, "prefill feed-forward", cells, PREFILL_FEED_FORWARD, feed_forward)
    return out | _priced(s, memo, "prefill edges", cells, _with_head(s, PREFILL_EDGES), edges)


def lone_feed_forward(s: Setting, cells: Table, decode: bool, memo: Memo) -> Spread:
    """Feed-forward blocks of a step in which one attention-DP rank alone has tokens: experts see those of no other."""
    choice = s.moe
    phase, name = ("decode", "tokens") if decode else ("prefill", "step_tokens")

    def price(m: Machine, c: Table) -> Blocks:
        one = c.having(tokens=c[name], mean_tokens=c[name] / c["dp"])
        return {n: operators.feed_forward(m, n, one, decode, choice) for n in s.model.ffn}

    return _priced(
        s, memo, f"{phase} feed-forward of one rank", cells, FEED_FORWARD if decode else PREFILL_FEED_FORWARD, price
    )


def last_attention(s: Setting, cells: Table, prompts: Prefill, memo: Memo) -> Spread:
    """Attention blocks of the last chunk of a prompt, which attends to all chunks before it."""

    def price(m: Machine, c: Table) -> Blocks:
        new = c["step_tokens"] * (1 + c["two_batch_overlap"])
        last = Prefill(np.minimum(new, prompts.new), np.maximum(prompts.past + prompts.new - new, prompts.past))
        return {n: operators.attention_prefill(m, n, c, last) for n in s.model.attention}

    names = (*PREFILL_ATTENTION[:-1], "two_batch_overlap", PREFILL_ATTENTION[-1])
    return _priced(s, memo, "prefill attention of last chunks", cells, attention_keys(s, names, 2), price)


def finished(tokens: Numeric, prompts: Prefill) -> Numeric:
    """Prompts that a step of so many tokens completes, at least one row for the head."""
    return np.maximum(tokens / prompts.new, 1.0)


def _priced(
    s: Setting, memo: Memo, kind: str, cells: Table, names: tuple[str, ...], ops: Callable[[Machine, Table], Blocks],
    draft: bool = False, **more: Callable[[Machine, Table, Blocks], Numeric],
) -> Spread:  # fmt: skip
    """Chip and link time of blocks, and both together, over the distinct combinations of what they depend on.

    more: further columns by name, from the operators of the blocks.
    """
    precision = tuple(name for name in PRECISION if name in names)

    def of_precision(values: dict[str, int], sub: Table) -> Columns:
        machine = s.machine(values["weight_dtype"], values.get("kv_dtype", 0), draft)
        blocks = ops(machine, sub)
        out: Columns = {name: np.broadcast_to(of(machine, sub, blocks), size(sub)) for name, of in more.items()}
        for name, operators_of in blocks.items():
            chip, link = operators.split(operators_of)
            out[f"{name}.chip"] = np.broadcast_to(chip, size(sub))
            out[f"{name}.link"] = np.broadcast_to(link, size(sub))
            out[f"{name}.time"] = np.broadcast_to(chip + link, size(sub))
        return out

    return memo.factored(kind, cells, names, lambda one: by_values(one, precision, of_precision))


# ---- stages ----


def hidden_s(s: Setting, chip_s: Numeric, link_s: Numeric, decode: bool, on: Numeric = 1.0) -> Numeric:
    """What two-batch overlap, where it is on, hides of one batch's communication under the other's compute. [s]

        f min(chip, (1 - c / cores) link)

    c: cores that the dispatch holds meanwhile, so that compute beside it goes on at (cores - c) / cores.
    """
    held = 0.0 if decode else s.engine.dispatch_cores / float(s.chip.cores)
    return float(s.engine.overlap_fraction) * on * np.minimum(chip_s, (1.0 - held) * link_s if held else link_s)


def layer_times(
    s: Setting, blocks: Spread, table: Table, decode: bool, detail: bool
) -> tuple[list[Numeric], list[Numeric]]:
    """(time, with `detail` exposed link time) of one layer of each kind and micro-batch, two-batch overlap applied."""
    times, links = [], []
    overlaps = uniform(table["two_batch_overlap"])
    overlapped = np.ndim(overlaps) > 0 or overlaps > 0
    for kind in pipeline.layer_kinds(s.model):

        def all_of(part: str, names: tuple[str, ...] = (*kind.attention, *kind.ffn)) -> Numeric:
            return _both_halves(overlaps, reduce(add, [blocks[f"{name}.{part}"] for name in names]))

        time, link = all_of("time"), all_of("link") if overlapped or detail else 0.0
        if overlapped:
            saved = hidden_s(s, all_of("chip"), link, decode, overlaps)
            time, link = time - saved, link - saved
        times.append(time)
        links.append(link)
    return times, links


def _both_halves(overlaps: Numeric, one: Numeric) -> Numeric:
    """The time of a half, twice where two batches overlap."""
    return one if np.ndim(overlaps) == 0 and overlaps == 0 else (1.0 + overlaps) * one


def edge_times(blocks: Spread, name: str, table: Table, part: str) -> Numeric:
    """`time` or `link` time of the embedding or the head, both halves of a batch."""
    return _both_halves(uniform(table["two_batch_overlap"]), blocks[f"{name}.{part}"])


def mtp_times(s: Setting, blocks: Spread, table: Table, part: str) -> Numeric:
    """`time` or `link` time of all drafts of one micro-batch: k passes one after the other.

    first + (k - 1) next + k head
    """
    mtp = s.model.mtp
    if mtp is None or f"@mtp.{part}" not in blocks:
        return 0.0
    kinds = ("@mtp", mtp.attention, mtp.ffn)
    first, after = (reduce(add, [blocks[f"{one} {n}.{part}"] for n in kinds]) for one in ("@first", "@next"))
    depth = table["mtp"]
    drafts = np.minimum(depth, 1) * first + np.maximum(depth - 1, 0) * after + depth * blocks[f"@mtp.{part}"]
    return _both_halves(uniform(table["two_batch_overlap"]), drafts)


def stage_times(
    stage: pipeline.Stage,
    layers: list[Numeric],
    embedding: Numeric,
    tail: Numeric,
) -> Numeric:
    """Time of one stage for one micro-batch: its layers, the embedding if first, head and drafts if last."""
    parts = [count * one for count, one in zip(stage.counts, layers, strict=True) if count]
    parts += [embedding] * stage.first + [tail] * stage.last
    return reduce(add, parts)


def send_times(s: Setting, table: Mapping[str, Any], tokens: Numeric) -> Numeric:
    """Residual stream and its norm to the next stage, over the link that joins the stages."""
    crosses = table["pp"] * table["tp"] * table["dp"] > s.chip.scale_up.chips_per_node
    return net.send_s(s.chip, send_bytes(s, table, tokens), crosses)


def send_bytes(s: Setting, table: Mapping[str, Any], tokens: Numeric) -> Numeric:
    """Residual stream and its norm, each TP rank its part: 2 T d 2 / tp. [B]"""
    return 2.0 * tokens * s.model.hidden_size * ACTIVATION_BYTES / table["tp"]
