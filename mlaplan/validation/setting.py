"""From a point to what the cost model is asked: chip, model, engine, strategy and workload in its words."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.costs.precision import quantised
from mlaplan.engines.load import engine_names, load_profile
from mlaplan.engines.profile import attention_kind
from mlaplan.plan import question
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile
    from mlaplan.rules.rule import Question
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model
    from mlaplan.validation.points import Point

STAND_IN = "generic"  # prices engines that have no profile of their own
SOME_CONTEXT = 4096  # where a step's longest sequence plays no part in its time


class Subject(NamedTuple):
    """What a point is about, and whether its engine is priced by its own profile."""

    chip: Chip
    model: Model
    profile: Profile
    own_engine: bool


Changes = tuple[tuple[str, str], ...]


@lru_cache(maxsize=256)
def _subject(chip: str, model: str, engine: str, release: str | None, weights: Changes, figures: Changes) -> Subject:
    name, _, version = engine.partition("@")
    own = name in engine_names()
    found = load_model(model)
    if weights:
        # scales of the checkpoint's blocks do not go with another dtype's
        changed = {**found.weights.model_dump(), **dict(weights)}
        found = found.model_copy(update={"weights": type(found.weights).model_validate(changed)})
    changes = [f"{path}={value}" for path, value in figures]
    calibrated = load_chip(chip, changes, name, release or version)
    return Subject(calibrated, found, load_profile(engine if own else STAND_IN), own)


def subject(point: Point) -> Subject:
    """Specs and profile of a point."""
    assert point.chip is not None and point.model is not None
    changed = (tuple(sorted(of.items())) for of in (point.weights, point.figures))
    return _subject(point.chip, point.model, point.engine, point.release, *changed)


def strategy(point: Point, s: Subject) -> Strategy:
    """The strategy that was run; defaults of the engine for what the source leaves out."""
    f = {**point.strategy}
    f.setdefault("weight_dtype", quantised(s.model))
    f.setdefault("kv_dtype", "bf16")
    kind = attention_kind(s.model)
    f.setdefault("block_size", s.profile.default_block(s.chip.efficiency_class, kind, f["kv_dtype"]) or 64)
    f.setdefault("prefill_chunk", s.profile.rank_budget(float(s.chip.memory.capacity), s.chip.name, f.get("dp", 1)))
    if f.get("dcp", 1) > 1:
        f["kv_layout"] = "sequence_sharded"
    f["two_batch_overlap"] = int(f.get("two_batch_overlap", False))
    return Strategy(**f, batch=max(int(point.workload.get("batch", 1)), 1))


def overrides(point: Point) -> Overrides:
    g = point.given
    return Overrides(
        memory_fraction=g.get("memory_fraction"),
        imbalance=g.get("imbalance"),
        tokens_per_step=g.get("tokens_per_step"),
        redundant_experts=g.get("redundant_experts", 0),
        shared_ranks=g.get("shared_ranks", 0),
        gather_only=g.get("gather_only", False),
    )


def workload(point: Point) -> Workload:
    """The traffic as the cost model takes it; a lone step has a prompt that fills its context."""
    w: dict[str, Any] = point.workload
    isl = int(w.get("isl", w.get("context", SOME_CONTEXT)))
    osl = max(int(w.get("osl", 1)), 1)
    return Workload(
        isl, osl, concurrency=w.get("concurrency"), prefix_tokens=min(int(w.get("prefix", 0.0) * isl), isl - 1)
    )


def asked(point: Point) -> tuple[Question, Strategy, Subject]:
    """The question a point answers, and the strategy it ran."""
    s = subject(point)
    return question(s.chip, s.model, s.profile, workload(point), overrides(point)), strategy(point, s), s
