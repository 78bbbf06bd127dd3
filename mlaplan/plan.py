"""`recommend`: specs -> workload -> strategies -> costs -> serving -> rules -> ranking, in one straight line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan import ranking, space
from mlaplan.costs import capacity, params
from mlaplan.costs.engine import from_profile
from mlaplan.costs.precision import can_multiply, quantised
from mlaplan.costs.prefix import Shared
from mlaplan.costs.step import Setting
from mlaplan.engines.limits import context_merge, gather_only, shared_ranks
from mlaplan.engines.profile import attention_kind
from mlaplan.explain import explain, explain_all
from mlaplan.families import Family, with_comm_shares
from mlaplan.pricing import price
from mlaplan.rules.rule import Question
from mlaplan.search import Found, holds, joined, search
from mlaplan.strategy import Strategy, from_row, to_table

if TYPE_CHECKING:
    from mlaplan.costs.table import Columns
    from mlaplan.explain import Explanation
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model
    from mlaplan.workload import Overrides, Workload

MORE_CHIPS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True)
class Miss:
    """The rejected strategy closest to feasible, why it fails, and the smallest change that would admit it."""

    strategy: Strategy
    code: str
    slug: str
    detail: str
    change: str | None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Plans, best first, each of another shape; what was removed, by rule; the nearest miss; other families.

    considered: combinations before batches are laid out; priced: strategies with a batch that were priced.
    """

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
    if given.redundant_experts:
        engine = engine.with_balancer()
    if given.imbalance is not None:
        engine = engine.with_imbalance(given.imbalance)
    if given.shared_ranks:
        engine = engine.with_shared_ranks(shared_ranks(profile, model, given.shared_ranks))
    if given.gather_only:
        engine = gather_only(profile, engine)
    if given.dcp_merge is not None or given.dcp_interleave is not None:
        engine = engine._replace(merge=context_merge(profile, given.dcp_merge, given.dcp_interleave or 1))
    fraction = given.memory_fraction if given.memory_fraction is not None else engine.memory_fraction
    shared = None if work.prefix_groups is None else Shared(work.prefix_tokens, work.prefix_groups, work.prefix_routed)
    budget = capacity.Budget(work.max_context, fraction, given.reserve_bytes, shared)
    return Question(Setting(chip, model, engine, given.redundant_experts), profile, work, budget)


def recommend(
    q: Question, devices: int, *, objective: str = "throughput", fixed: Mapping[str, Any] | None = None,
    top: int = 5, given: Overrides | None = None,
) -> Recommendation:  # fmt: skip
    """The best strategies on `devices` chips. `fixed` pins strategy columns; `given` are the user's own values."""
    pins, tokens = dict(fixed or {}), given.tokens_per_step if given else None
    found = Found()
    for count in chip_counts(q, devices, objective):
        search(q, count, objective, pins, tokens, found)
    best = _ranked(q, found, objective, top)
    families = sorted(found.families.values(), key=lambda f: f.rank, reverse=True)
    detail = _in_detail(q, [*best, *(f.strategy for f in families)], tokens)
    first, rest = ({name: column[part] for name, column in detail.items()} for part in _split(len(best)))
    cost = price_per_hour(q, given)
    plans = explain_all(q, best, tokens_given=tokens, price=cost, columns=first) if best else []
    return Recommendation(
        plans=plans,
        front=_front(found),
        families=with_comm_shares(families, rest),
        rejected=dict(found.rejected.most_common()),
        priced=found.priced,
        considered=found.considered,
        nearest_miss=None if plans else _nearest(q, found, devices, pins, tokens),
        notes=[note for note in [weights_note(q, best[0])] if note] if best else [],
    )


def _in_detail(q: Question, strategies: list[Strategy], tokens: float | None) -> Columns:
    """All columns of the strategies to be shown, priced together."""
    return price(q, to_table(strategies), tokens, detail=True) if strategies else {}


def _split(n: int) -> tuple[slice, slice]:
    return slice(None, n), slice(n, None)


def chip_counts(q: Question, devices: int, objective: str) -> list[int]:
    """Cost may leave chips idle when the load is given; everything else uses all of them."""
    given_load = q.workload.rate is not None or q.workload.concurrency is not None
    return space.divisors(devices) if objective == "cost" and given_load else [devices]


def price_per_hour(q: Question, given: Overrides | None) -> float | None:
    """Dollars per chip and hour: the user's, else the chip's, else unknown."""
    if given is not None and given.price_usd_per_hour is not None:
        return given.price_usd_per_hour
    return float(q.setting.chip.price) if q.setting.chip.price is not None else None


def _ranked(q: Question, found: Found, objective: str, top: int) -> list[Strategy]:
    """The best strategies, one per shape."""
    if not found.rows:
        return []
    rows = joined(found.rows)
    value = ranking.score(rows, objective, q.workload.osl)
    # at a request rate all that keep it are equal: then what a request takes decides
    most = np.lexsort((ranking.latency(rows, q.workload.osl), -value))[: 50 * top]
    knobs = np.array([ranking.complexity({k: int(rows[k][i]) for k in ranking.KNOBS}) for i in most])
    best: dict[tuple[int | str | bool, ...], Strategy] = {}
    for i in most[ranking.in_order(value[most], knobs)]:
        strategy = from_row(rows, int(i))
        best.setdefault(strategy.shape, strategy)
    return list(best.values())[:top]


def _front(found: Found) -> list[tuple[Strategy, dict[str, float]]]:
    """The Pareto front of tok/s/chip and tok/s/user over everything feasible."""
    if not found.front:
        return []
    rows = joined(found.front)
    edge = ranking.pareto(rows["tok_s_chip"], np.nan_to_num(rows["tok_s_user"]))
    names = ("tok_s_chip", "tok_s_user", "ttft_s", "tpot_s")
    return [(from_row(rows, int(i)), {n: float(rows[n][i]) for n in names}) for i in edge]


def _nearest(q: Question, found: Found, devices: int, pins: Mapping[str, Any], tokens: float | None) -> Miss | None:
    """The nearest miss in words, with the smallest change that admits something; a late answer beats no fit."""
    misfit = found.nearest.get("service") or found.nearest.get("capacity")
    if misfit is None:
        return None
    e = explain(q, misfit.strategy, tokens_given=tokens)
    code, slug, detail = e.reasons[0] if e.reasons else ("", "", "")
    return Miss(misfit.strategy, code, slug, detail, _change(q, devices, pins, code))


def _change(q: Question, devices: int, pins: Mapping[str, Any], code: str) -> str | None:
    """More chips for what does not fit; a looser limit for what is too slow."""
    if code.startswith("MLA2"):
        enough = next((devices * f for f in MORE_CHIPS if holds(q, devices * f, pins)), None)
        return f"{enough} chips would hold it" if enough else None
    return "a looser limit, more chips, or fewer requests in flight" if code.startswith("MLA3") else None


def weights_note(q: Question, strategy: Strategy) -> str | None:
    """Says aloud that the checkpoint must be converted, for this chip or for what is pinned."""
    own = quantised(q.setting.model)
    if strategy.weight_dtype == own:
        return None
    total = params.params_total(q.setting.model) / 1e9
    chip = q.setting.chip
    why = f"the checkpoint is {own}" if can_multiply(chip, own) else f"{chip.name} has no {own}"
    return f"{why}: the plan converts the {total:.0f} B weights to {strategy.weight_dtype}"


__all__ = ["Family", "Miss", "Recommendation", "price", "question", "recommend", "weights_note"]
