"""`recommend`: specs -> workload -> strategies -> costs -> serving -> rules -> ranking, in one straight line.

Structures are taken block by block, each block is priced as a flat table, reduced to its best row per structure,
and forgotten, so memory does not grow with the space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlaplan import ranking, space
from mlaplan.costs import capacity, params, phases
from mlaplan.costs.engine import from_profile
from mlaplan.costs.factor import Columns, Table, size, take
from mlaplan.costs.operators import Prefill
from mlaplan.costs.precision import weight_targets
from mlaplan.costs.step import Setting
from mlaplan.engines.profile import attention_kind
from mlaplan.explain import acceptance, explain
from mlaplan.rules import of_stage
from mlaplan.rules.rule import Question
from mlaplan.serving import steady
from mlaplan.strategy import CODED, KV_DTYPES, WEIGHT_DTYPES, Strategy, from_row

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model
    from mlaplan.workload import Overrides, Workload

BLOCK_ROWS = 200_000
BATCHES = 16  # rows that one choice becomes, roughly, when its batches are laid out


@dataclass(frozen=True, slots=True)
class Miss:
    """The rejected strategy closest to feasible, why it fails, and the smallest change that would admit it."""

    strategy: Strategy
    code: str
    slug: str
    detail: str
    change: str | None


@dataclass(frozen=True, slots=True)
class Family:
    """The best strategy of one family of structures, feasible or not: what the others would give."""

    name: str
    strategy: Strategy
    figures: dict[str, float]
    reason: str | None  # the service rule it misses


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Plans, best first, each of another shape; what was removed, by rule; the nearest miss; other families."""

    plans: list[Explanation]
    front: list[tuple[Strategy, dict[str, float]]]
    families: list[Family]
    rejected: dict[str, int]
    priced: int
    considered: int
    nearest_miss: Miss | None
    notes: list[str] = field(default_factory=list)


def question(chip: Chip, model: Model, profile: Any, work: Workload, given: Overrides) -> Question:
    """The question in the form that costs and rules read, with the user's overrides in place."""
    engine = from_profile(profile, chip, attention_kind(model))
    if given.imbalance is not None:
        engine = engine.with_imbalance(given.imbalance)
    fraction = given.memory_fraction if given.memory_fraction is not None else engine.memory_fraction
    budget = capacity.Budget(work.max_context, fraction, given.reserve_bytes)
    return Question(Setting(chip, model, engine, given.redundant_experts), profile, work, budget)


def axes(q: Question, fixed: Mapping[str, Any]) -> space.Axes:
    """The choices within a structure that this engine, chip and model leave, less what is fixed."""
    chip, model, p = q.setting.chip, q.setting.model, q.profile
    kind = attention_kind(model)
    weights = [fixed["weight_dtype"]] if "weight_dtype" in fixed else weight_targets(chip, model)
    caches = [fixed["kv_dtype"]] if "kv_dtype" in fixed else p.kv_dtypes(chip.efficiency_class, kind)
    caches = [d for d in caches if d != "fp16" or "bf16" not in chip.peak or "kv_dtype" in fixed]
    caches = [d for d in caches if "kv_dtype" in fixed or _cache_on_chip(chip, d)] or list(caches)[:1] or ["bf16"]
    blocks = [fixed.get("block_size") or p.default_block(chip.efficiency_class, kind, d) or 64 for d in caches]
    depth = min(model.mtp.max_draft if model.mtp else 0, p.mtp.max_draft if p.mtp else 0, 3)
    chunks = [c for c in space.CHUNKS if c < 2 * q.workload.new_tokens] or [space.CHUNKS[0]]

    def pinned(name: str, values: Any) -> tuple[int, ...]:
        return (int(fixed[name]),) if name in fixed else tuple(values)

    return space.Axes(
        tuple(WEIGHT_DTYPES.index(w) for w in weights),
        tuple(KV_DTYPES.index(d) for d in caches),
        tuple(int(b) for b in blocks),
        pinned("prefill_chunk", chunks),
        pinned("two_batch_overlap", (0, 1) if p.parallel.two_batch else (0,)),
        pinned("mtp", range(depth + 1)),
    )


def _cache_on_chip(chip: Chip, dtype: str) -> bool:
    return ("fp8" if dtype == "fp8_ds_mla" else dtype) in chip.peak


@dataclass(slots=True)
class _Found:
    """What is kept of the priced blocks."""

    rows: list[tuple[Table, Columns]] = field(default_factory=list)
    front: list[tuple[Table, Columns]] = field(default_factory=list)
    families: dict[str, Family] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    misses: list[tuple[float, Strategy, str]] = field(default_factory=list)
    priced: int = 0
    considered: int = 0


def recommend(
    q: Question, devices: int, *, objective: str = "throughput", fixed: Mapping[str, Any] | None = None,
    top: int = 5, given: Overrides | None = None,
) -> Recommendation:  # fmt: skip
    """The best strategies on `devices` chips. `fixed` pins strategy columns; `given` are the user's own values."""
    pins = dict(fixed or {})
    tokens = given.tokens_per_step if given else None
    price = given.price_usd_per_hour if given else None
    if price is None and q.setting.chip.price is not None:
        price = float(q.setting.chip.price)
    found = _Found()
    counts = [devices] if objective != "cost" or q.workload.rate is None and q.workload.concurrency is None else [
        d for d in space.divisors(devices)
    ]  # fmt: skip
    for count in counts:
        for block in blocks(q, count, pins, found):
            _price_block(q, block, objective, tokens, pins, found)
    best = _ranked(q, found, objective, top)
    plans = [explain(q, s, tokens_given=tokens, price=price) for s in best]
    front = _front(found) if objective == "pareto" else []
    miss = _nearest(q, found, devices, pins, tokens) if not plans else None
    families = sorted(found.families.values(), key=lambda f: -f.figures["tok_s_chip"])
    return Recommendation(
        plans, front, families, dict(found.rejected.most_common()), found.priced, found.considered, miss
    )


def blocks(q: Question, devices: int, pins: Mapping[str, Any], found: _Found) -> Iterator[Table]:
    """Legal structures on the chips, with all choices, in blocks of bounded size; what is illegal is counted."""
    model, ax = q.setting.model, axes(q, pins)
    heads = max(a.heads for a in model.attention.values())
    moe = any(f.kind == "moe" for f in model.ffn.values())
    mla = all(a.kind == "mla" and not a.sparse for a in model.attention.values())
    table = space.structures(
        devices, heads, model.layer_count, moe, mla, q.workload.new_tokens >= space.LONG_PROMPT, pins
    )
    found.considered += size(table) * ax.count
    table = _apply(q, "structure", table, found, weight=ax.count)
    per_block = max(BLOCK_ROWS // (ax.count * BATCHES), 1)
    for start in range(0, size(table), per_block):
        yield space.expand(take(table, slice(start, start + per_block)), ax)


def _apply(q: Question, stage: str, table: Any, found: _Found, weight: int = 1) -> Any:
    """Rows that no rule of the stage removes; the first rule broken counts the row."""
    keep = np.ones(size(table), dtype=bool)
    for rule in of_stage(stage):
        bad = np.broadcast_to(rule.violated(q, table), keep.shape) & keep
        removed = int(bad.sum())
        if removed:
            found.rejected[rule.name] += removed * weight
            keep &= ~bad
    return table if keep.all() else {name: column[keep] for name, column in table.items()}


def _price_block(
    q: Question, table: Table, objective: str, tokens: float | None, pins: Mapping[str, Any], found: _Found
) -> None:
    table = _apply(q, "choice", table | {"batch": np.ones(size(table), dtype=np.int64)}, found)
    if not size(table):
        return
    table = _batched(q, table, pins, found)
    if not size(table):
        return
    columns = price(q, table, tokens)
    found.priced += size(table)
    both: dict[str, Any] = {**table, **columns}
    kept = _apply(q, "capacity", both, found)
    _keep_families(q, kept, found)
    good = _apply_service(q, kept, found)
    if not size(good):
        return
    chips = (good["tp"] * good["dp"] * good["pp"] * good["replicas"]).astype(float)
    value = ranking.score(good, objective, q.workload.osl, chips)
    structure = _structure_codes(good)
    rows = ranking.best_of_each(structure, value, np.nan_to_num(good["tpot_s"]))
    found.rows.append(({}, {name: column[rows] for name, column in good.items()}))
    if objective == "pareto":
        edge = ranking.pareto(good["tok_s_chip"], np.nan_to_num(good["tok_s_user"]))
        found.front.append(({}, {name: column[edge] for name, column in good.items()}))


def _structure_codes(table: Mapping[str, Any]) -> NDArray[np.intp]:
    from mlaplan.costs.factor import distinct

    return distinct({n: table[n] for n in space.STRUCTURE}, space.STRUCTURE)[1]


def price(q: Question, table: Table, tokens_given: float | None = None) -> Columns:
    """All cost and serving columns of a table with batches: what `recommend`, `explain` and `sweep` share."""
    s, work = q.setting, q.workload
    need = (capacity.sequence_tokens(table, q.budget.max_context) * table["batch"]).astype(float)
    columns = phases.decode(s, table, work.mean_context, q.budget, need)
    per_step = np.array([acceptance(q, d, tokens_given).value for d in range(int(table["mtp"].max()) + 1)])
    tokens = per_step[table["mtp"]]
    step_tokens = steady.prefill_step_tokens(table, work, tokens)
    columns |= phases.prefill(s, table, step_tokens, Prefill(work.new_tokens, work.prefix_tokens), columns["cut"])
    columns |= steady.served(
        table, work, s.engine, tokens, columns["decode_s"], columns["prefill_s"], columns["prefill_pass_s"], step_tokens
    )
    return columns


def _batched(q: Question, table: Table, pins: Mapping[str, Any], found: _Found) -> Table:
    """Rows with every batch that memory and the workload allow; rows that hold no sequence are counted as misfits."""
    work, per_sequence = q.workload, capacity.sequence_tokens(table, q.budget.max_context)
    other = capacity.other_bytes(q.setting, table, q.budget)
    room = np.full(size(table), -np.inf)
    for pp, rows, sub in capacity.rows_by_depth(table):
        cuts = _cuts(q, pp)
        one = capacity.fit(q.setting, sub, q.budget, cuts, other[rows])
        # each further sequence also takes its logits
        logits = (1 + sub["mtp"]) * q.setting.model.vocab_size * 6.0
        cost = per_sequence[rows] * one.kv_bytes_per_token + logits
        held = np.floor((one.kv_tokens * one.kv_bytes_per_token + logits) / cost)
        held = np.where(one.kv_tokens < 0, -1.0, held)
        room[rows] = held.max(axis=0)
    for code, bad in (("MLA201", room < 0), ("MLA202", room == 0)):
        if n := int(bad.sum()):
            rule = next(r for r in of_stage("capacity") if r.code == code)
            found.rejected[rule.name] += n
            _note_misses(q, table, bad, rule.code, found)
    most = np.full(size(table), 4096.0)
    if work.concurrency is not None:
        most = np.ceil(work.concurrency / (table["dp"] * table["replicas"]))
    limit = np.minimum(room, most)
    limit = np.where(table["prefill_chunk"] < limit, table["prefill_chunk"], limit)
    if "batch" in pins:
        limit = np.where(room >= 1, np.maximum(limit, 1), 0)
        return space.with_batches(table, limit.astype(np.int64), int(pins["batch"]))
    return space.with_batches({n: c for n, c in table.items() if n != "batch"}, np.maximum(limit, 0).astype(np.int64))


def _cuts(q: Question, pp: int) -> list[Any]:
    from mlaplan.costs.pipeline import cuts

    return cuts(q.setting.model, pp)


def _note_misses(q: Question, table: Table, bad: NDArray[np.bool_], code: str, found: _Found) -> None:
    """Keep the misfit with the least weights and buffers per chip."""
    rows = take(table, np.flatnonzero(bad))
    other = capacity.other_bytes(q.setting, rows, q.budget)
    short = np.full(size(rows), np.inf)
    for pp, index, sub in capacity.rows_by_depth(rows):
        one = capacity.fit(q.setting, sub, q.budget, _cuts(q, pp), other[index])
        need = capacity.sequence_tokens(sub, q.budget.max_context)
        gap = (need - one.kv_tokens) * one.kv_bytes_per_token
        short[index] = gap.min(axis=0)
    i = int(np.argmin(short))
    found.misses.append((float(short[i]), from_row({**rows, "batch": np.ones(size(rows), dtype=np.int64)}, i), code))


def _apply_service(q: Question, table: Any, found: _Found) -> Any:
    """Rows within the service level; of those that miss it the nearest is kept."""
    if not size(table):
        return table
    good = _apply(q, "service", table, found)
    if size(good) == 0:
        w = q.workload
        excess = np.zeros(size(table))
        for name, limit in (("ttft_s", w.ttft_s), ("tpot_s", w.tpot_s)):
            if limit is not None:
                excess = np.maximum(excess, np.nan_to_num(table[name]) / limit - 1.0)
        if w.rate is not None:
            excess = np.maximum(excess, w.rate / table["capacity_per_s"] - 1.0)
        i = int(np.argmin(excess))
        # service misses are nearer than anything that does not fit
        found.misses.append((float(excess[i]) - 1e18, from_row(table, i), "service"))
    return good


def family(row: Mapping[str, int], per_node: int) -> str:
    """A name for the way a structure divides attention and experts."""
    tp = "TP across nodes" if row["tp"] > per_node else "TP in a node" if row["tp"] > 1 else ""
    parts = [tp, "DP attention" if row["dp"] > 1 else "", "EP" if row["ep"] > 1 else "", "PP" if row["pp"] > 1 else ""]
    parts += ["decode context parallel" if row["dcp"] > 1 else "", "latent-sharded KV" if row["kv_layout"] == 1 else ""]
    parts += ["prefill context parallel" if row["cp"] > 1 else ""]
    return " + ".join(p for p in parts if p) or "one chip a replica"


def _keep_families(q: Question, table: Any, found: _Found) -> None:
    """The best row of each family by throughput among those that keep the service level, else among all."""
    if not size(table):
        return
    per_node = q.setting.chip.scale_up.chips_per_node
    keys = ("tp", "dp", "ep", "pp", "dcp", "kv_layout", "cp")
    traits = np.stack(
        [np.where(table["tp"] > per_node, 2, (table["tp"] > 1) * 1)]
        + [(table[k] > 1) * 1 if k != "kv_layout" else (table[k] == 1) * 1 for k in keys[1:]]
    )
    code = np.zeros(size(table), dtype=np.int64)
    for row in traits:
        code = code * 3 + row
    meets = np.ones(size(table), dtype=bool)
    for rule in of_stage("service"):
        meets &= ~np.broadcast_to(rule.violated(q, table), meets.shape)
    rows = ranking.best_of_each(code, table["tok_s_chip"] + 1e12 * meets, np.nan_to_num(table["tpot_s"]))
    for i in rows:
        cells = {k: int(table[k][i]) for k in keys}
        name = family(cells, per_node)
        figures = {k: float(table[k][i]) for k in ("tok_s_chip", "tpot_s", "ttft_s", "decode_s", "prefill_s")}
        figures["comm_share"] = float(table["decode_comm_s"][i] / table["decode_s"][i])
        figures["prefill_comm_share"] = float(table["prefill_comm_s"][i] / table["prefill_s"][i])
        reason = None
        if not meets[i]:
            at = {k: column[i] for k, column in table.items()}
            reason = next(r.detail(q, at) for r in of_stage("service") if bool(np.any(r.violated(q, at))))
        new = Family(name, from_row(table, i), figures, reason)
        old = found.families.get(name)
        key = lambda f: (f.reason is None, f.figures["tok_s_chip"])  # noqa: E731
        if old is None or key(new) > key(old):
            found.families[name] = new


def _ranked(q: Question, found: _Found, objective: str, top: int) -> list[Strategy]:
    """The best strategies, one per shape."""
    if not found.rows:
        return []
    rows = _joined([c for _, c in found.rows])
    chips = (rows["tp"] * rows["dp"] * rows["pp"] * rows["replicas"]).astype(float)
    value = ranking.score(rows, objective, q.workload.osl, chips)
    most = np.argsort(-value, kind="stable")[: 50 * top]
    knobs = np.array([ranking.complexity({k: int(rows[k][i]) for k in _KNOBS}) for i in most])
    order = most[ranking.in_order(value[most], knobs)]
    return [from_row(rows, int(i)) for i in order[:top]]


_KNOBS = ("pp", "dp", "dcp", "cp", "kv_layout", "two_batch_overlap", "tp", "ep")


def _front(found: _Found) -> list[tuple[Strategy, dict[str, float]]]:
    """The Pareto front of tok/s/chip and tok/s/user over everything feasible."""
    if not found.front:
        return []
    rows = _joined([c for _, c in found.front])
    edge = ranking.pareto(rows["tok_s_chip"], np.nan_to_num(rows["tok_s_user"]))
    names = ("tok_s_chip", "tok_s_user", "ttft_s", "tpot_s")
    return [(from_row(rows, int(i)), {n: float(rows[n][i]) for n in names}) for i in edge]


def _joined(parts: list[Any]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _nearest(
    q: Question, found: _Found, devices: int, pins: Mapping[str, Any], tokens: float | None
) -> Miss | None:
    """The nearest miss in words, with the smallest change that admits something."""
    if not found.misses:
        return None
    _, strategy, _ = min(found.misses, key=lambda m: m[0])
    e = explain(q, strategy, tokens_given=tokens)
    code, slug, detail = e.reasons[0] if e.reasons else ("", "", "")
    return Miss(strategy, code, slug, detail, _change(q, devices, pins, code))


def _change(q: Question, devices: int, pins: Mapping[str, Any], code: str) -> str | None:
    """More chips for what does not fit; a longer limit or more chips for what is too slow."""
    if code.startswith("MLA2"):
        for factor in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
            if _holds(q, devices * factor, pins):
                return f"{devices * factor} chips would hold it"
        return None
    return "more chips, a looser limit or fewer requests in flight" if code.startswith("MLA3") else None


def _holds(q: Question, devices: int, pins: Mapping[str, Any]) -> bool:
    """Whether any legal strategy on so many chips holds one sequence."""
    probe = _Found()
    free = {k: v for k, v in pins.items() if k not in ("tp", "pp", "dp", "ep", "replicas")}
    for block in blocks(q, devices, {"two_batch_overlap": 0, "mtp": 0, **free}, probe):
        table = _apply(q, "choice", block | {"batch": np.ones(size(block), dtype=np.int64)}, probe)
        if size(table) and size(_batched(q, table, {"batch": 1}, probe)):
            return True
    return False


def weights_note(q: Question, strategy: Strategy) -> str | None:
    """Says aloud that the checkpoint must be converted for this chip."""
    from mlaplan.costs.precision import quantised

    own = quantised(q.setting.model)
    if strategy.weight_dtype == own:
        return None
    total = params.params_total(q.setting.model)
    return f"{q.setting.chip.name} has no {own}: the plan converts the {total / 1e9:.0f}B weights to {strategy.weight_dtype}"


__all__ = ["CODED", "Family", "Miss", "Recommendation", "price", "question", "recommend", "weights_note"]
