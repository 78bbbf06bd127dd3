"""A view to the planner's terms: a strategy, what memory holds of it, and prices of it and of alternatives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.costs import capacity, pipeline
from mlaplan.costs.engine import from_profile
from mlaplan.costs.factor import Memo
from mlaplan.costs.precision import quantised, weight_targets
from mlaplan.costs.step import Setting
from mlaplan.costs.table import Table
from mlaplan.engines.profile import attention_kind
from mlaplan.rules.rule import Question
from mlaplan.strategy import KV_DTYPES, Strategy, to_table
from mlaplan.workload import Workload

if TYPE_CHECKING:
    from mlaplan.lint.view import View

GIB = 2.0**30
SPARE_TOKENS = 256  # of a limit, over the longest request: a template, a client's rounding, a block
DOUBT = 0.05  # of the tokens that fit


class Memory(NamedTuple):
    """Bytes of a chip of the fullest stage, and distinct tokens in the cache of an attention-DP rank."""

    capacity: float
    usable: float
    weights: float
    other: float
    other_items: dict[str, float]
    kv_per_token: float
    kv_tokens: int
    sequence_tokens: int  # of one request of the longest length, in whole blocks
    cache_share: float

    @property
    def most_tokens(self) -> float:
        """Tokens if nothing but weights took memory: what no assumption can better."""
        return self.cache_share * (self.usable - self.weights) / self.kv_per_token

    @property
    def concurrency(self) -> float:
        """Requests of the longest length that the cache holds."""
        return self.kv_tokens / self.sequence_tokens


@dataclass(frozen=True, slots=True)
class Priced:
    """A strategy and the question it answers. `max_len`: tokens of the longest request."""

    question: Question
    strategy: Strategy
    max_len: int
    stated_len: bool
    own: list[Memory] = field(default_factory=list)  # of this strategy, once it was asked for

    def memory(self, **changes: Any) -> Memory:
        """Memory of this strategy, or of one with other values."""
        if changes:
            return _memory(self, replace(self.strategy, **changes))
        if not self.own:
            self.own.append(_memory(self, self.strategy))
        return self.own[0]

    def holds_all(self) -> bool:
        """Whether the cache holds all requests in flight, as long as the limit lets them be but for what it spares."""
        m, spare = self.memory(), min(SPARE_TOKENS, self.max_len // 2)
        return m.kv_tokens * (1.0 + DOUBT) >= self.strategy.batch * (m.sequence_tokens - spare)

    def fits(self, **changes: Any) -> bool:
        """Whether weights and buffers of this strategy with other values leave room for a cache."""
        return self.memory(**changes).kv_tokens > 0

    def decode_s(self, batch: int, context: int, **changes: Any) -> tuple[float, float]:
        """(seconds of a decode step, share of it that is communication) at a batch per rank."""
        return _decode(self, replace(self.strategy, batch=batch, **changes), context)

    def prefill_s(self, tokens: int) -> float:
        """Seconds of a prefill step of so many tokens a rank."""
        return _prefill(self, tokens)


def priced(view: View) -> Priced | None:
    """The planner's view of a deployment; None where its parts are outside of the cost model."""
    p, model, chip, profile = view.plan, view.model, view.chip, view.profile
    assert p is not None
    assert model is not None
    assert chip is not None
    kind = attention_kind(model)
    if (
        p["kv_dtype"] not in KV_DTYPES
        or not _own_weights(view)
        or p["tp"] % p["dcp"]
        or p["tp"] % p["cp"]
        or p["pp"] > model.layer_count
    ):
        return None
    budget = profile.budget(float(chip.memory.capacity), chip.name)
    block = p["block_size"] or profile.default_block(chip.efficiency_class, kind, p["kv_dtype"]) or 64
    batch = p["batch"] or budget.sequences // (p["dp"] if profile.scheduler.sequences_of == "all_ranks" else 1)
    chunk = p["prefill_chunk"] or budget.tokens // (p["dp"] if profile.scheduler.tokens_of == "all_ranks" else 1)
    moe = any(f.kind == "moe" for f in model.ffn.values())
    strategy = Strategy(
        tp=p["tp"], pp=p["pp"], dp=p["dp"], ep=p["ep"] if moe else 1, dcp=p["dcp"], cp=p["cp"],
        replicas=p.get("replicas", 1), kv_layout=p["kv_layout"], kv_dtype=p["kv_dtype"],
        weight_dtype=_target(chip, model), block_size=block, prefill_chunk=max(chunk, 1),
        mtp=p["mtp"] if model.mtp is not None else 0, batch=max(batch, 1),
    )  # fmt: skip
    if strategy.tp * strategy.dp % strategy.ep or strategy.tp * strategy.dp > 65536:
        return None
    stated = p["max_model_len"]
    longest = stated if stated and stated > 0 else model.max_position
    setting = setting_of(chip, model, profile)
    fraction = p["memory_fraction"]
    if fraction is not None and not (isinstance(fraction, float | int) and 0 < fraction <= 1):
        return None
    share = fraction if fraction is not None else setting.engine.memory_fraction
    share *= AITER_SHARE if aiter_cuts(view) else 1.0
    question = Question(setting, profile, _longest(longest), capacity.Budget(longest, share))
    return Priced(question, strategy, longest, bool(stated and stated > 0))


@lru_cache(maxsize=4096)
def _longest(tokens: int) -> Workload:
    """A request that is as long as the longest."""
    return Workload(max(tokens - 1, 1), 1, 1)


_TARGETS: dict[tuple[int, int], str] = {}


def _target(chip: Any, model: Any) -> str:
    if (key := (id(chip), id(model))) not in _TARGETS:
        _TARGETS[key] = weight_targets(chip, model)[0]
    return _TARGETS[key]


AITER_SHARE, AITER_CONTEXT = 0.85, 8192


def aiter_cuts(view: View) -> bool:
    """Whether SGLang lowers its memory fraction, as it does with aiter and a long context."""
    if view.base != "sglang":
        return False
    length = view.get("--context-length") or (view.model.max_position if view.model is not None else None)
    backend = view.get("--attention-backend")
    by_default = backend is None and view.env("SGLANG_USE_AITER") == "1" and view.chip is not None
    on_amd = by_default and view.chip is not None and view.chip.efficiency_class.startswith("amd")
    return (backend == "aiter" or on_amd) and isinstance(length, int) and length > AITER_CONTEXT


def _own_weights(view: View) -> bool:
    """Whether the weights are the checkpoint's own: quantising on load is not modelled."""
    asked = view.get("--quantization")
    if asked is None:
        return True
    assert view.model is not None
    own = quantised(view.model)
    if asked == "ascend":  # a checkpoint that was converted for the chip
        return view.engine == "vllm_ascend"
    return asked == own or (own in ("int4", "fp4") and "fp8" not in str(asked))


_SETTINGS: dict[tuple[int, int, int], Setting] = {}


def setting_of(chip: Any, model: Any, profile: Any) -> Setting:
    """The setting, made once for each chip, model and profile: these are kept as long as the process lives."""
    key = (id(chip), id(model), id(profile))
    if key not in _SETTINGS:
        _SETTINGS[key] = Setting(chip, model, from_profile(profile, chip, attention_kind(model)), 0)
    return _SETTINGS[key]


_MEMORIES: dict[Any, Memory] = {}
_STEPS: dict[Any, tuple[float, float]] = {}


def _memory(p: Priced, strategy: Strategy) -> Memory:
    """Known again by all that it depends on: of the longest length, the rows of the workspace."""
    e, budget = p.question.setting.engine, p.question.budget
    rows = e.workspace.rows(budget.max_context, strategy.batch, strategy.block_size) if e.workspace is not None else 0
    key = (id(p.question.setting), budget.memory_fraction, rows, strategy)
    if key not in _MEMORIES:
        _MEMORIES[key] = _compute_memory(p, strategy)
    block = strategy.block_size * strategy.dcp
    tokens = -(-p.max_len // block) * block
    found = _MEMORIES[key]
    return found if found.sequence_tokens == tokens else found._replace(sequence_tokens=tokens)


def _compute_memory(p: Priced, strategy: Strategy) -> Memory:
    s, budget = p.question.setting, p.question.budget
    table, memo = Table(to_table([strategy])), _memo(s, strategy)
    space = capacity.Space(s, table, budget, memo)
    rooms = [space.room(cut) for cut in _cuts(s, strategy.pp)]
    best = max(rooms, key=lambda room: _one(room.kv_tokens))
    items = {name: _one(column) for name, column in capacity.other_items(s, table, budget, memo).items()}
    return Memory(
        float(s.chip.memory.capacity),
        capacity.usable_bytes(s, budget),
        _one(best.weight_bytes),
        _one(space.other),
        items,
        _one(best.kv_bytes_per_token),
        int(_one(best.kv_tokens)),
        int(_one(capacity.sequence_tokens(table, p.max_len))),
        float(space.cache_share),
    )


_CUTS: dict[tuple[int, int], list[pipeline.Cut]] = {}


def _cuts(s: Setting, pp: int) -> list[pipeline.Cut]:
    if (key := (id(s), pp)) not in _CUTS:
        _CUTS[key] = list(pipeline.cuts(s.model, pp))
    return _CUTS[key]


_MEMOS: dict[tuple[Any, ...], Memo] = {}


def _memo(s: Setting, strategy: Strategy) -> Memo:
    """What one-row tables know of each other: weights, cache and buffers depend on these columns alone."""
    names = dict.fromkeys(name for group in capacity.WITHOUT_BATCH for name in group)
    return _MEMOS.setdefault((id(s), *(getattr(strategy, name) for name in names)), Memo())


def _one(column: Any) -> float:
    """The value of a one-row column."""
    return float(np.ravel(column)[0])


def _decode(p: Priced, strategy: Strategy, context: int) -> tuple[float, float]:
    key = (id(p.question.setting), strategy, context)
    if key not in _STEPS:
        from mlaplan.explain import explain

        e = explain(p.question, strategy, decode_context=context, served=False)
        _STEPS[key] = (e.decode.step_s.value, e.decode.comm_share) if e.decode is not None else (0.0, 0.0)
    return _STEPS[key]


def _prefill(p: Priced, tokens: int) -> float:
    key = (id(p.question.setting), p.strategy, -tokens)
    if key not in _STEPS:
        from mlaplan.explain import explain

        strategy = replace(p.strategy, prefill_chunk=tokens)
        e = explain(p.question, strategy, prefill_tokens=tokens, served=False)
        _STEPS[key] = (e.prefill.step_s.value, e.prefill.comm_share) if e.prefill is not None else (0.0, 0.0)
    return _STEPS[key][0]
