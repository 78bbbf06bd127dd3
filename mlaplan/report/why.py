"""Why a plan wins, as numbers: what a token costs, what other layouts would hold, TP against DP of attention.

Cost of a token: a chip works 1 / (tok/s/chip) seconds for each output token. Of a decode round that serves b
sequences of a rank for a tokens each, n = (OSL - 1) / a rounds belong to a request, and of prefill its own steps:

    chip-seconds per output token = tp pp ( n t_d / b + t_p ) / OSL

so every operator's time becomes a share of that cost, and two plans can be compared term by term.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs import kv, mla
from mlaplan.costs.precision import SIXTEEN_BIT, part_dtype, sixteen_bit
from mlaplan.costs.table import Table
from mlaplan.report import cache
from mlaplan.serving import steady
from mlaplan.strategy import Strategy, to_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlaplan.costs.machine import Op
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question

CORE = ("attention_core", "kv_cache_cast", "kv_dequantise", "indexer_scores", "indexer_top_k")
EXPERTS = ("routed_experts", "expert_activation", "expert_layout")
PROJECTIONS = (
    "qkv_a", "q_a", "q_b", "q_proj", "kv_a", "kv_b", "qkv_proj", "absorb_q", "absorb_o", "o_proj", "indexer_q",
    "indexer_k",
)  # fmt: skip
PREFILL, PREFILL_LINK, UNEVEN, IDLE = "prefill compute", "prefill communication", "uneven prefill", "idle"
SHARED = "shared in mixed steps"  # below zero: what a prompt and decode read once in one step is counted to both
WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class Held:
    """What the cache of the plan's chips holds in one layout; tokens are distinct."""

    strategy: Strategy
    kv_bytes_per_token: float
    rank_tokens: int
    all_tokens: int
    all_sequences: int


@dataclass(frozen=True, slots=True)
class BreakEven:
    """TP against DP over a group of chips, for one part of the MLA weights in one dtype, in bytes of one block.

    tokens_bf16: cached tokens of the group where both move the same with a 16-bit cache; tokens: with the plan's.
    """

    part: str
    dtype: str
    weight_bytes: float
    tokens_bf16: float
    tokens: float
    tp_bytes: float
    dp_bytes: float

    @property
    def fewer(self) -> str:
        return "DP" if self.dp_bytes < self.tp_bytes else "TP"


@dataclass(frozen=True, slots=True)
class Priced:
    """One decode step with attention TP, and with DP, over the same chips and sequences."""

    weight_dtype: str
    tp: Strategy
    dp: Strategy
    tp_step_s: float
    dp_step_s: float
    tp_fits: bool
    dp_fits: bool
    change: dict[str, float]  # seconds that DP adds to each group of operators; empty where not looked at

    @property
    def faster(self) -> str:
        return "DP" if self.dp_step_s < self.tp_step_s else "TP"


@dataclass(frozen=True, slots=True)
class Sides:
    """TP against DP of attention for this workload: `group` chips hold `sequences` of `context` tokens each."""

    group: int
    sequences: float
    context: int
    row_bytes: float
    kv_dtype: str
    even: tuple[BreakEven, ...]
    all_divided_tokens: float  # the break-even of all weights if q_a and kv_a were divided too, bf16 cache
    priced: tuple[Priced, ...]

    @property
    def cached_tokens(self) -> float:
        return self.sequences * self.context


@dataclass(frozen=True, slots=True)
class Why:
    """All of it for the best plan; `other` is the next best shape."""

    cost: dict[str, float]
    other: Explanation | None
    other_cost: dict[str, float]
    held: tuple[Held, ...]
    sides: Sides | None
    crossover: tuple[float, float] | None  # tokens: 16-bit outputs without LSE, fp32 with


def why(q: Question, plans: list[Explanation], tokens_given: float | None) -> Why:
    """The reasons for the first of the plans."""
    from mlaplan.plan import price

    best = plans[0]
    other = plans[1] if len(plans) > 1 else None
    layouts = _layouts(q, best.strategy)
    group = _group(q, best.strategy)
    latent = next((a for a in q.setting.model.attention.values() if a.kind == "mla"), None)
    pairs = _pairs(q, best, group) if latent is not None and group > 1 else []
    rows = [*layouts, *(s for pair in pairs for s in pair)]
    columns = price(q, to_table(rows), tokens_given)
    held = tuple(_held(q, s, columns, i) for i, s in enumerate(layouts))
    sides = None
    if latent is not None and group > 1:
        priced = [_priced(q, pair, columns, len(layouts) + 2 * i) for i, pair in enumerate(pairs)]
        sides = _sides(q, best, latent, group, tuple(_explained(q, priced)))
    crossover = None
    if latent is not None:
        crossover = (mla.gather_crossover_tokens(latent, 2.0, 0.0), mla.gather_crossover_tokens(latent))
    return Why(token_cost(q, best), other, token_cost(q, other) if other else {}, held, sides, crossover)


# ---- what a token costs ----


def group_of(op: Op) -> str:
    """The group of operators that a decode operator counts to."""
    if op.name.startswith("mtp_"):
        return "MTP drafts"
    if op.is_link or op.group == "overlap":
        return "communication"
    if op.group in ("host", "bubble"):
        return "host" if op.group == "host" else "pipeline bubble"
    if op.name in CORE:
        return "attention core"
    if op.name in PROJECTIONS:
        return "attention weights"
    if op.name in EXPERTS:
        return "routed experts"
    if op.name.startswith(("dense_", "shared_")):
        return "dense and shared FFN"
    return "norms, router, head"


def sequences_per_rank(q: Question, e: Explanation) -> float:
    """Sequences in flight on one attention-DP rank: at a request rate, as many as it keeps there."""
    s, offered = e.strategy, q.workload.concurrency
    return e.decoding if offered is None else min(e.decoding, offered / (s.dp * s.replicas))


def part_of(op: Op, phase: str) -> str:
    """The part of a token's cost that an operator of a decode or prefill step counts to."""
    if phase == "decode":
        return group_of(op)
    return PREFILL_LINK if op.is_link or op.group == "overlap" else PREFILL


def token_cost(q: Question, e: Explanation, of: Callable[[Op, str], str] = part_of) -> dict[str, float]:
    """Chip-seconds per output token by part; they add up to 1 / (tok/s/chip).

    of: the part that an operator of a phase counts to.
    """
    s, served, work = e.strategy, e.served, q.workload
    if served is None or e.decode is None or e.prefill is None:
        return {}
    chips = s.tp * s.pp
    a = served.tokens_per_step.value
    per_round = max(work.osl - 1, 0) / a / max(sequences_per_rank(q, e), 1.0) / work.osl * chips
    out: dict[str, float] = {}
    for op in e.decode.ops:
        name = of(op, "decode")
        out[name] = out.get(name, 0.0) + op.time_s * per_round
    step_tokens = int(steady.prefill_step_tokens(Table(to_table([s])), work, np.array([a]))[0])
    per_step = work.new_tokens / step_tokens / work.osl * chips
    prefill = 0.0
    for op in e.prefill.ops:
        if op.group != "bubble":  # other requests fill the pipeline
            name = of(op, "prefill")
            out[name] = out.get(name, 0.0) + op.time_s * per_step
            prefill += op.time_s * per_step
    whole = 1.0 / served.tok_s_chip.value
    idle = whole - sum(out.values())
    if idle < -1e-6 * whole:
        out[SHARED] = idle
    elif s.dp > 1 and idle > 0:
        # steps that are long for prompts on other ranks
        out[UNEVEN] = min(max(served.prefill_share * whole - prefill, 0.0), idle)
        idle -= out[UNEVEN]
    if idle > 1e-6 * whole:
        out[IDLE] = idle
    return out


# ---- what the same chips hold in other layouts ----


def _group(q: Question, s: Strategy) -> int:
    """Chips of a stage over which attention may be TP or DP: as many as share a node and divide the heads."""
    heads = max(a.heads for a in q.setting.model.attention.values())
    width, per_node = s.tp * s.dp, q.setting.chip.scale_up.chips_per_node
    return max(n for n in range(1, min(width, per_node) + 1) if width % n == 0 and heads % n == 0)


def _layouts(q: Question, s: Strategy) -> list[Strategy]:
    """The plan, and attention TP of its chips with each layout of the cache, and DP."""
    n, width = _group(q, s), s.tp * s.dp
    base = replace(s, cp=1, dcp=1, kv_layout="replicated", two_batch_overlap=0)
    found = [s]
    if n > 1:
        tp = replace(base, tp=n, dp=width // n)
        found.append(tp)
        ranks = _sequence_ranks(q, n)
        if ranks > 1:
            found.append(replace(tp, dcp=ranks, kv_layout="sequence_sharded"))
        if _has_latent_layout(q, n):
            found.append(replace(tp, kv_layout="latent_sharded"))
        found.append(replace(base, tp=1, dp=width))
    return list(dict.fromkeys(found))


def _sequence_ranks(q: Question, tp: int) -> int:
    """Ranks of a TP group that would hold the same cache."""
    shared = [tp if a.kind == "mla" else max(tp // a.kv_heads, 1) for a in q.setting.model.attention.values()]
    return min(shared)


def _has_latent_layout(q: Question, tp: int) -> bool:
    return all(
        a.kind == "mla" and not a.sparse and a.kv_lora_rank % tp == 0 for a in q.setting.model.attention.values()
    )


def _held(q: Question, s: Strategy, columns: Any, row: int) -> Held:
    tokens = max(int(columns["kv_tokens"][row]), 0)
    ranks = s.dp * s.replicas
    return Held(s, cache.bytes_per_token(q, s), tokens, tokens * ranks, cache.sequences(q, s, tokens) * ranks)


# ---- TP against DP of attention ----


def _in_flight(q: Question, e: Explanation) -> float:
    """Sequences in flight on one stage's worth of chips: those of one copy of the model."""
    return sequences_per_rank(q, e) * e.strategy.dp


def _dtypes(q: Question, s: Strategy) -> tuple[str, str]:
    """(the dtype of the attention weights in the plan, the other width to compare with)."""
    chip = q.setting.chip
    own = part_dtype(q.setting.model, "attention", s.weight_dtype)
    eight = "fp8" if "fp8" in chip.peak else "int8" if "int8" in chip.peak else "fp8"
    return own, eight if own in SIXTEEN_BIT else sixteen_bit(chip)


def _pairs(q: Question, e: Explanation, n: int) -> list[tuple[Strategy, Strategy]]:
    """(TP, DP) over groups of n chips with the plan's sequences, for its weights and for 16 bit."""
    s, width = e.strategy, e.strategy.tp * e.strategy.dp
    base = replace(s, cp=1, dcp=1, kv_layout="replicated", two_batch_overlap=0)
    flying = _in_flight(q, e)
    dtypes = dict.fromkeys((s.weight_dtype, sixteen_bit(q.setting.chip)))
    out = []
    for dtype in dtypes:
        tp = replace(base, tp=n, dp=width // n, weight_dtype=dtype)
        dp = replace(base, tp=1, dp=width, weight_dtype=dtype)
        out.append(tuple(replace(x, batch=max(int(-(-flying // x.dp)), 1)) for x in (tp, dp)))
    return out  # type: ignore[return-value]


def _priced(q: Question, pair: tuple[Strategy, Strategy], columns: Any, row: int) -> Priced:
    needs = [cache.stored_tokens(q, s) + cache.sequence_tokens(q, s) * s.batch for s in pair]
    fits = [bool(columns["kv_tokens"][row + i] >= need) for i, need in enumerate(needs)]
    times = [float(columns["decode_s"][row + i]) for i in (0, 1)]
    return Priced(pair[0].weight_dtype, *pair, times[0], times[1], fits[0], fits[1], {})


def _explained(q: Question, priced: list[Priced]) -> list[Priced]:
    """The same, with what differs for the plan's weights, and for others whose verdict is another."""
    from mlaplan.explain import explain_all

    out = []
    for p in priced:
        change: dict[str, float] = {}
        if p is priced[0] or p.faster != priced[0].faster:
            both = explain_all(q, (p.tp, p.dp), decode_context=q.workload.mean_context, served=False)
            for sign, one in zip((-1.0, 1.0), both, strict=True):
                for op in one.decode.ops if one.decode is not None else ():
                    change[group_of(op)] = change.get(group_of(op), 0.0) + sign * op.time_s
        out.append(replace(p, change=change))
    return out


def _sides(q: Question, e: Explanation, latent: Any, n: int, priced: tuple[Priced, ...]) -> Sides:
    s, hidden = e.strategy, q.setting.model.hidden_size
    sequences = _in_flight(q, e) * n / (s.tp * s.dp)
    context = q.workload.mean_context
    row16, row = kv.row_bytes(latent, "bf16"), kv.row_bytes(latent, s.kv_dtype)
    up, whole = mla.attention_weight_elements(latent, hidden)
    even, held = [], sequences * context * row
    for part, elements in (("up-projections", up), ("all of MLA", whole)):
        for dtype in _dtypes(q, s):
            w = elements * WEIGHT_BYTES[dtype]
            at16, at = mla.break_even_tokens(w, row16), mla.break_even_tokens(w, row)
            even.append(BreakEven(part, dtype, w, at16, at, w / n + held, w + held / n))
    _, divided = mla.attention_weight_elements(latent, hidden, replicated_down=False)
    own = WEIGHT_BYTES[_dtypes(q, s)[0]]
    other = mla.break_even_tokens(divided * own, row16)
    return Sides(n, sequences, context, row, s.kv_dtype, tuple(even), other, priced)
