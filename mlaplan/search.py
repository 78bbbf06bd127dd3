"""The search behind `recommend`: blocks of structures, each priced as a flat table and reduced.

A block of legal structures is expanded by all choices, cleared of what the engine or the chip cannot do, given
every batch that memory and the workload allow, priced slice by slice, cleared of what misses the service level, and
reduced to the best row of each structure. Then it is forgotten, so memory does not grow with the space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan import pricing, ranking, space
from mlaplan.costs import capacity, prefix, step
from mlaplan.costs.factor import Memo
from mlaplan.costs.pipeline import MOST_CUTS
from mlaplan.costs.precision import weight_targets
from mlaplan.costs.table import Columns, Domain, Table, distinct, domain, size
from mlaplan.engines.profile import attention_kind
from mlaplan.families import Family, best_rows, keep_families
from mlaplan.rules import of_stage
from mlaplan.rules.rule import Question
from mlaplan.serving import steady
from mlaplan.serving.at_rate import nodes
from mlaplan.strategy import KV_DTYPES, WEIGHT_DTYPES, Strategy, from_row

BLOCK_ROWS = 524_288  # rows laid out at once
BATCHES = 12  # rows that one choice becomes, roughly, when its batches are laid out
MOST_SEQUENCES = 4096  # per rank, where neither memory nor the workload sets a limit
DEEPEST_DRAFT = 3


class Misfit(NamedTuple):
    """A rejected strategy and how far it is from feasible: bytes short, or the excess over a limit."""

    kind: str  # capacity or service
    distance: float
    strategy: Strategy


@dataclass(slots=True)
class Found:
    """What is kept of the priced blocks."""

    rows: list[Columns] = field(default_factory=list)
    front: list[Columns] = field(default_factory=list)
    families: dict[str, Family] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    nearest: dict[str, Misfit] = field(default_factory=dict)
    priced: int = 0
    considered: int = 0

    def miss(self, kind: str, distance: float, strategy: Strategy) -> None:
        if kind not in self.nearest or distance < self.nearest[kind].distance:
            self.nearest[kind] = Misfit(kind, distance, strategy)


# ---- the space of a question ----


def axes(q: Question, pins: Mapping[str, Any]) -> space.Axes:
    """The choices within a structure that this engine, chip and model leave, less what is pinned."""
    chip, model, p = q.setting.chip, q.setting.model, q.profile
    kind = attention_kind(model)
    weights = [pins["weight_dtype"]] if "weight_dtype" in pins else weight_targets(chip, model)
    caches = _cache_dtypes(q, pins)
    blocks = [pins.get("block_size") or p.default_block(chip.efficiency_class, kind, d) or 64 for d in caches]
    depth = min(model.mtp.max_draft if model.mtp else 0, p.mtp.max_draft if p.mtp else 0, DEEPEST_DRAFT)
    chunks = [c for c in space.CHUNKS if c < 2 * q.workload.new_tokens] or [space.CHUNKS[0]]

    def pinned(name: str, values: Any) -> tuple[int, ...]:
        return (int(pins[name]),) if name in pins else tuple(values)

    return space.Axes(
        tuple(WEIGHT_DTYPES.index(w) for w in weights),
        tuple(KV_DTYPES.index(d) for d in caches),
        tuple(int(b) for b in blocks),
        pinned("prefill_chunk", chunks),
        # without a dispatch between ranks there is little for a second batch to hide
        pinned("two_batch_overlap", (0, 1) if p.parallel.two_batch and q.setting.engine.dispatch else (0,)),
        pinned("mtp", range(depth + 1)),
    )


def _cache_dtypes(q: Question, pins: Mapping[str, Any]) -> list[str]:
    """Cache dtypes that the engine's kernels read and the chip has; 16 bit once."""
    if "kv_dtype" in pins:
        return [pins["kv_dtype"]]
    chip, kind = q.setting.chip, attention_kind(q.setting.model)
    sixteen = "bf16" if "bf16" in chip.peak else "fp16"
    known = q.profile.kv_dtypes(chip.efficiency_class, kind)
    held = [d for d in known if d == sixteen or (d not in ("bf16", "fp16") and d.split("_")[0] in chip.peak)]
    return held or [sixteen]


def blocks(q: Question, devices: int, pins: Mapping[str, Any], found: Found) -> Iterator[Table]:
    """Legal structures on the chips, with all choices, in blocks of bounded size; what is illegal is counted."""
    model, ax = q.setting.model, axes(q, pins)
    heads = max(a.heads for a in model.attention.values())
    moe = any(f.kind == "moe" for f in model.ffn.values())
    mla = all(a.kind == "mla" and not a.sparse for a in model.attention.values())
    table = space.structures(
        devices, heads, model.layer_count, moe, mla, q.workload.new_tokens >= space.LONG_PROMPT, pins
    )
    found.considered += size(table) * ax.count
    table = Table(apply(q, "structure", table, found, weight=ax.count), domains(q, table, ax, pins))
    # blocks of one pipeline depth: its stages are summed without regrouping rows
    table = table.take(np.argsort(table["pp"], kind="stable"))
    per_block = max(BLOCK_ROWS // (ax.count * BATCHES), 1)
    for start in range(0, size(table), per_block):
        part = space.expand(table.take(slice(start, start + per_block)), ax)
        part = apply(q, "choice", part.having(batch=np.ones(size(part), dtype=np.int64)), found)
        if size(part):
            yield part.take(np.argsort(4 * part["pp"] + pricing.alike(part), kind="stable"))


def domains(q: Question, structures: Table, ax: space.Axes, pins: Mapping[str, Any]) -> dict[str, Domain]:
    """What each column of any block can hold, those derived from batch and chunk included."""
    out = {name: structures.domain(name) for name in space.STRUCTURE}
    out |= {name: domain(getattr(ax, name)) for name in space.CHOICES}
    out["q_len"] = domain([1, *(1 + k for k in ax.mtp)])  # a draft has one
    out["seqs"] = domain(_micro_batches(q, structures, ax, pins))
    out["batch"] = domain([1, int(pins["batch"]), *_beside(q, pins)]) if "batch" in pins else out["seqs"]
    out["tokens"] = domain(np.multiply.outer(out["q_len"].values, out["seqs"].values).ravel())
    out["step_tokens"] = out["prompt_tokens"] = domain(steady.step_token_values(q.workload, ax.prefill_chunk))
    out["cut"] = domain(range(MOST_CUTS))
    return out


def _beside(q: Question, pins: Mapping[str, Any]) -> list[int]:
    """Batches at which rounds are priced beside a pinned one: of one sequence fewer, and those of a request rate."""
    fewer = [max(int(pins.get("batch", 1)) - 1, 1)]
    return fewer if q.workload.rate is None else [*fewer, *nodes(int(pins.get("batch", 1))).tolist()]


def _micro_batches(q: Question, structures: Table, ax: space.Axes, pins: Mapping[str, Any]) -> Any:
    """Every number of sequences that a micro-batch, whole or halved, can have."""
    beside = _beside(q, pins)
    if "batch" not in pins:  # a batch is at most what is offered, and at most the chunk
        most = min(max(MOST_SEQUENCES, q.workload.concurrency or 0), max(ax.prefill_chunk))
        return np.arange(max([most, *beside]) + 1)
    depths = structures.domain("pp").values.tolist()
    whole = {-(-batch // min(pp, batch)) for pp in depths for batch in (int(pins["batch"]), *beside)}
    return sorted(whole | {-(-n // 2) for n in whole})


def survivors(q: Question, stage: str, table: Table, found: Found, weight: int = 1) -> NDArray[np.bool_]:
    """Where no rule of the stage removes the row; the first rule broken counts it."""
    keep = np.ones(size(table), dtype=bool)
    for rule in of_stage(stage):
        bad = np.broadcast_to(rule.violated(q, table), keep.shape) & keep
        removed = int(np.count_nonzero(bad))
        if removed:
            found.rejected[rule.name] += removed * weight
            keep &= ~bad
    return keep


def apply(q: Question, stage: str, table: Table, found: Found, weight: int = 1) -> Table:
    """The rows that no rule of the stage removes."""
    keep = survivors(q, stage, table, found, weight)
    return table if keep.all() else table.take(np.flatnonzero(keep))


# ---- batches ----


def batched(q: Question, table: Table, pins: Mapping[str, Any], found: Found, memo: Memo) -> Table:
    """Rows with every batch that memory and the workload allow; rows that hold no sequence count as misfits."""
    for names in (*step.WITHOUT_BATCH, *capacity.WITHOUT_BATCH, steady.MEETING[:-1]):
        table.key(names)
    room, short = sequences_held(q, table, memo)
    weights, cache = of_stage("capacity")
    for rule, bad in ((weights, room < 0), (cache, room == 0)):
        if n := int(np.count_nonzero(bad)):
            found.rejected[rule.name] += n
    if np.any(room < 1):
        i = int(np.argmin(np.where(room < 1, short, np.inf)))
        found.miss("capacity", float(short[i]), from_row(table, i))
    limit = np.minimum(room, offered(q, table))
    limit = np.minimum(limit, np.maximum(table["prefill_chunk"], 1)).astype(np.int64)
    if "batch" in pins:
        return space.with_batches(table, np.where(room >= 1, 1, 0), int(pins["batch"]))
    # a closed loop with a limit on TTFT leaves no batch below what is offered: the rest would wait for a slot
    whole = q.workload.concurrency is not None and q.workload.ttft_s is not None
    return space.with_batches(table, np.maximum(limit, 0), only_limit=whole)


def offered(q: Question, table: Table) -> NDArray[np.float64]:
    """Sequences per rank that the workload brings."""
    if q.workload.concurrency is None:
        return np.full(size(table), float(MOST_SEQUENCES))
    return np.ceil(q.workload.concurrency / (table["dp"] * table["replicas"]))


def sequences_held(q: Question, table: Table, memo: Memo) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(sequences that fit per rank with the best cut, -1 where not even the weights do; bytes short of one)."""
    shared, longest = q.budget.shared, q.budget.max_context
    per_sequence = np.asarray(prefix.own_tokens(table, longest, shared), dtype=float)
    stored = np.asarray(prefix.stored_tokens(table, shared), dtype=float)
    room, short = np.full(size(table), -1.0), np.full(size(table), np.inf)
    for pp, rows, sub in capacity.rows_by_depth(table):
        memory = capacity.Space(q.setting, sub, q.budget, memo)
        # each further sequence also takes its logits, first from what the engine leaves free for them
        logits = capacity.sequence_logit_bytes(q.setting, sub)
        for cut in q.setting.cuts(pp):
            tokens, _, per_token = memory.room(cut)
            cached, whole = (tokens - stored[rows]) * per_token, per_sequence[rows] * per_token
            held = np.floor(np.minimum(cached / whole, (cached + memory.slack + logits) / (whole + logits)))
            room[rows] = np.maximum(room[rows], np.where(tokens < 0, -1.0, np.maximum(held, 0.0)))
            short[rows] = np.minimum(short[rows], (stored[rows] + per_sequence[rows] - tokens) * per_token)
    return room, short


# ---- search ----


def search(
    q: Question, devices: int, objective: str, pins: Mapping[str, Any], tokens: float | None, found: Found
) -> None:
    """Price every block of the space on so many chips and keep what `recommend` needs of it."""
    memo = Memo()
    for choices in blocks(q, devices, pins, found):
        table = batched(q, choices, pins, found, memo)
        for start in range(0, size(table), BLOCK_ROWS):
            block = table.take(slice(start, start + BLOCK_ROWS))
            found.priced += size(block)
            _keep_best(q, pricing.priced(q, block, tokens, memo), objective, found)


def _keep_best(q: Question, parts: Iterator[Table], objective: str, found: Found) -> None:
    """Keep the best rows of the families and of each structure in a block, from those of its parts."""
    families: list[Table] = []
    structures: list[Table] = []
    for part in parts:
        kept = apply(q, "capacity", part, found)
        if not size(kept):
            continue
        meets = survivors(q, "service", kept, found)
        structure = distinct(kept, space.STRUCTURE)[1]
        # a family is made of whole structures
        families.append(kept.take(np.sort(best_rows(kept, 2 * structure + meets))))
        good = np.flatnonzero(meets)
        if not len(good):
            _note_service_miss(q, kept, found)
            continue
        value, tie = ranking.score(kept, objective, q.workload.osl), ranking.latency(kept, q.workload.osl)
        structures.append(kept.take(good[ranking.best_of_each(structure[good], value[good], tie[good])]))
        if objective == "pareto":
            edge = ranking.pareto(kept["tok_s_chip"][good], np.nan_to_num(kept["tok_s_user"])[good])
            found.front.append({name: column[good[edge]] for name, column in kept.items()})
    if families:
        keep_families(q, joined(families), found.families)
    if structures:
        rows = joined(structures)
        structure = distinct(rows, space.STRUCTURE)[1]
        value = ranking.score(rows, objective, q.workload.osl)
        best = ranking.best_of_each(structure, value, ranking.latency(rows, q.workload.osl))
        found.rows.append({name: column[best] for name, column in rows.items()})


def _note_service_miss(q: Question, table: Table, found: Found) -> None:
    """Keep the row with the least excess over the service level."""
    over = excess(q, table)
    i = int(np.argmin(over))
    found.miss("service", float(over[i]), from_row(table, i))


def excess(q: Question, served: Mapping[str, Any]) -> NDArray[np.float64]:
    """By which part of a limit each row exceeds it, the worst limit counting."""
    w, out = q.workload, np.zeros(size(served))
    for name, limit in (("ttft_s", w.ttft_s), ("tpot_s", w.tpot_s)):
        if limit is not None:
            out = np.maximum(out, np.nan_to_num(served[name]) / limit - 1.0)
    if w.rate is not None:
        out = np.maximum(out, w.rate / served["capacity_per_s"] - 1.0)
    return out


def holds(q: Question, devices: int, pins: Mapping[str, Any]) -> bool:
    """Whether any legal strategy on so many chips holds one sequence."""
    probe, memo = Found(), Memo()
    free = {k: v for k, v in pins.items() if k not in ("tp", "pp", "dp", "ep", "replicas")}
    return any(
        bool(np.any(sequences_held(q, block, memo)[0] >= 1))
        for block in blocks(q, devices, {"two_batch_overlap": 0, "mtp": 0, **free}, probe)
    )


def joined(parts: Sequence[Columns]) -> Table:
    """The rows of several tables as one."""
    domains = parts[0].domains if isinstance(parts[0], Table) else None
    return Table({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, domains)
