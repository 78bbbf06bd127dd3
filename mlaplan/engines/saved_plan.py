"""What stands in a plan file, `mlaplan.plan/1`, as types: a file that somebody edited is told every slip at its place.

`recommend --save-plan` writes it. The prediction is left as data: it is what was computed, not what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from mlaplan.engines.load import spelled
from mlaplan.engines.profile import KvDtype, KvLayout, Profile
from mlaplan.specs.chip import Chip
from mlaplan.specs.figure import Contradiction, Count, CountOrZero, Flag, Text, contradiction
from mlaplan.specs.marks import OneOf, Whole, kind_of
from mlaplan.specs.model import Model
from mlaplan.specs.spec import Spec, Told, field
from mlaplan.strategy import WEIGHT_DTYPES
from mlaplan.workload import OBJECTIVES

SCHEMA = "mlaplan.plan/1"
WRITER = "the file that `mlaplan recommend --save-plan` writes"
MOST = 1_000_000  # products of such numbers with bytes stay within 64 bits


@dataclass(frozen=True, slots=True)
class Number:
    """A plain number in a range; no text, as later verbs calculate with it."""

    low: float
    high: float = 1e15
    open_low: bool = False

    def read(self, raw: Any) -> Any:
        bare = isinstance(raw, int | float) and not isinstance(raw, bool)
        if bare and (raw > self.low if self.open_low else raw >= self.low) and raw <= self.high:
            return raw
        least = f"above {self.low:g}" if self.open_low else f"of at least {self.low:g}"
        raise Told(
            f"got {kind_of(raw)}", f"a number {least}" + (f" and at most {self.high:g}" if self.high < 1e15 else "")
        )

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.read)


Degree = Annotated[int, Whole(1, MOST)]
Positive = Annotated[float, Number(0, open_low=True)]
Share = Annotated[float, Number(0, 1, open_low=True)]


class PlanStrategy(Spec):
    """The columns of the strategy, and what follows from them."""

    tp: Degree
    pp: Degree
    dp: Degree
    ep: Degree
    dcp: Degree
    cp: Degree
    replicas: Degree
    kv_layout: KvLayout
    kv_dtype: KvDtype
    weight_dtype: Annotated[str, OneOf(WEIGHT_DTYPES)]
    block_size: Degree
    prefill_chunk: Degree
    two_batch_overlap: Annotated[int, Whole(0, 1)]
    mtp: Annotated[int, Whole(0, MOST)]
    batch: Degree
    label: Text | None = None
    devices: Degree
    moe_tp: Degree | None = None
    pp_layers: tuple[CountOrZero, ...] = ()
    chunking: Any = None
    context_parallel: Any = None


class PlanWorkload(Spec):
    """What is asked of the deployment, in SI."""

    isl_tokens: Count
    osl_tokens: Count
    concurrency: Count | None
    rate_per_s: Positive | None
    prefix_tokens: CountOrZero
    prefix_groups: Count | None = None
    prefix_routed: Flag | None = None
    ttft_s: Positive | None = None
    tpot_s: Positive | None = None


class PlanOverrides(Spec):
    """What the user set in place of the specs."""

    memory_fraction: Share | None
    reserve_bytes: Annotated[float, Number(0)] | None
    price_usd_per_h: Positive | None
    imbalance: Annotated[float, Number(1)] | None
    tokens_per_step: Annotated[float, Number(1)] | None
    redundant_experts: CountOrZero
    dcp_merge: Literal["ag_rs", "a2a"] | None = None
    dcp_interleave: Count | None = None
    shared_ranks: CountOrZero = 0
    gather_only: Flag = False


class PlanEngine(Spec):
    """The engine, and its profile as it was."""

    name: Text
    version: Text | None
    profile: Profile


class Plan(Spec):
    """A plan file: specs, question, strategy and prediction."""

    schema: Text
    tool_version: Text | None = None
    model: Model
    chip: Chip
    engine: PlanEngine
    origins: dict[Text, str] = field(default_factory=dict)
    workload: PlanWorkload
    objective: Annotated[str, OneOf(OBJECTIVES)]
    overrides: PlanOverrides
    strategy: PlanStrategy
    prediction: dict[str, Any]
    # of a plan with prefill and decode apart
    devices: Count | None = None
    pools: Any = None
    transfer: Any = None
    prefill_chip: Chip | None = None

    def check(self) -> None:
        if found := list(self.contradictions(self.model_dump(mode="json", by_alias=True, exclude_unset=True))):
            raise contradiction(found)

    @staticmethod
    def contradictions(data: dict[str, Any]) -> Iterator[Contradiction]:
        """Parts that do not fit each other, those of the specs in it included."""
        for key, spec in (("model", Model), ("chip", Chip), ("prefill_chip", Chip)):
            inner: Any = spec
            if isinstance(data.get(key), dict):
                for path, *told in inner.contradictions(data[key]):
                    yield (key, *path), *told
        engine, work = _mapping(data, "engine"), _mapping(data, "workload")
        name, profile = engine.get("name"), _mapping(engine, "profile").get("name")
        if isinstance(profile, str) and isinstance(name, str) and spelled(name) != spelled(profile):
            yield ("engine", "name"), f"'{name}' is not the profile's '{spelled(profile)}'", "one name for both", ()
        if _whole(work, "isl_tokens", "prefix_tokens") and work["prefix_tokens"] >= work["isl_tokens"]:
            yield (
                ("workload", "prefix_tokens"),
                f"{work['prefix_tokens']} of {work['isl_tokens']} prompt tokens",
                ("fewer than isl_tokens"),
                (),
            )
        if work.get("concurrency") is not None and work.get("rate_per_s") is not None:
            yield ("workload", "rate_per_s"), "concurrency and rate_per_s both fix the load", "one of them", ()
        yield from _degrees(_mapping(data, "strategy"), _mapping(data, "model"))


def _degrees(s: dict[str, Any], model: dict[str, Any]) -> Iterator[Contradiction]:
    """Degrees that do not multiply to the chips, or do not divide what they share."""
    if not _whole(s, "tp", "pp", "dp", "ep", "dcp", "cp", "replicas", "devices"):
        return
    chips = s["tp"] * s["pp"] * s["dp"] * s["replicas"]
    if s["devices"] != chips:
        parts = f"tp {s['tp']} x pp {s['pp']} x dp {s['dp']} x replicas {s['replicas']}"
        yield ("strategy", "devices"), f"{s['devices']} is not {parts}", f"{chips}", ()
    if s["tp"] * s["dp"] % s["ep"]:
        yield ("strategy", "ep"), f"{s['ep']} does not divide tp x dp = {s['tp'] * s['dp']}", "a divisor of it", ()
    for name in ("dcp", "cp"):
        if s["tp"] % s[name]:
            yield ("strategy", name), f"{s[name]} does not divide tp = {s['tp']}", "a divisor of it", ()
    stages, layers = s.get("pp_layers"), model.get("layers")
    if isinstance(stages, list) and stages and all(isinstance(n, int) for n in stages):
        if len(stages) != s["pp"]:
            yield ("strategy", "pp_layers"), f"{len(stages)} stages with pp {s['pp']}", f"{s['pp']} numbers", ()
        elif isinstance(layers, list) and all(_whole(run, "count") for run in layers):
            whole = sum(run["count"] for run in layers)
            if sum(stages) != whole:
                yield ("strategy", "pp_layers"), f"{sum(stages)} layers in all, the model has {whole}", f"{whole}", ()


def _mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _whole(data: Any, *names: str) -> bool:
    """Whether all of these are whole numbers of a mapping, from 1 on (prefix_tokens from 0)."""
    least = {"prefix_tokens": 0}
    return isinstance(data, dict) and all(
        isinstance(data.get(n), int) and not isinstance(data[n], bool) and data[n] >= least.get(n, 1) for n in names
    )


def other_schema(found: Any) -> tuple[str, str] | None:
    """(what is wrong, what is expected) of the schema of a file that should be a plan; None of the known one."""
    if found == SCHEMA:
        return None
    if isinstance(found, str) and re.fullmatch(r"mlaplan\.plan/\S+", found):
        return f"is a plan of schema '{found}'", f"'{SCHEMA}', which this version of mlaplan reads"
    return "is no plan", WRITER
