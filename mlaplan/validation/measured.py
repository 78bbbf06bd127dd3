"""A plan against the benchmark that ran it: measured beside predicted, with the band and what may explain a gap.

The plan file carries specs, engine and strategy as they were; the prediction is made again for the load that the
benchmark really had (its mean lengths, requests and concurrency), by the same client model as for published rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlaplan.costs.engine import Interval
from mlaplan.engines.profile import Profile
from mlaplan.engines.saved_plan import WRITER, other_schema
from mlaplan.errors import MlaplanError
from mlaplan.explain import explain
from mlaplan.plan import question
from mlaplan.simulation import Sent
from mlaplan.specs.chip import Chip
from mlaplan.specs.model import Model
from mlaplan.specs.spec import Spec
from mlaplan.strategy import CODED, Strategy
from mlaplan.validation import bench_files, served
from mlaplan.validation.terms import doubts_of
from mlaplan.workload import Overrides, Workload

if TYPE_CHECKING:
    from mlaplan.costs.machine import Op
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.validation.bench_files import BenchResult

METRICS = ("ttft", "tpot", "output_tok_s", "total_tok_s")
M = TypeVar("M", bound=Spec)
Planned = tuple["Question", Strategy, float | None]
MOST = 1_000_000  # of a degree: products of such numbers with bytes stay within 64 bits
FAR_LENGTH = 0.05  # a mean length this far from the plan's is worth saying


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric: measured, predicted with its band, and the terms that could explain the gap."""

    metric: str
    measured: float
    predicted: Interval
    could_explain: tuple[str, ...]

    @property
    def error(self) -> float:
        return self.predicted.value / self.measured - 1.0

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A benchmark beside the plan it ran."""

    bench: BenchResult
    strategy: Strategy
    subject: str
    rows: list[Compared]
    notes: list[str]


def compare(bench_file: str, plan_file: str) -> OwnRun:
    """Reads both files and predicts the benchmark's load with the plan's strategy."""
    bench = bench_files.read(bench_file)
    data = plan_data(plan_file)
    if prefill_pool(plan_file, data) is not None:
        raise MlaplanError(
            f"{plan_file}: is a plan of two pools; expected one of a single pool to compare a run with; "
            "mlaplan simulate runs it"
        )
    q, st, tokens = planned(plan_file, data)
    notes = _load_notes(q, st, bench)
    isl, osl = max(round(bench.mean_isl), 1), max(round(bench.mean_osl), 1)
    prefix = min(round(q.workload.prefix_tokens * isl / q.workload.isl), isl - 1)
    if bench.concurrency is None and bench.rate is not None:
        return _open_loop(q, st, tokens, bench, Workload(isl, osl, rate=bench.rate, prefix_tokens=prefix), notes)
    concurrency = bench.concurrency or bench.requests  # without a limit all are sent at once
    shortest = bench.shortest if bench.shortest is not None else 1.0
    nominal = 2.0 / (1.0 + shortest)
    work = Workload(
        max(round(isl * nominal), 1), max(round(osl * nominal), 1), concurrency=concurrency, prefix_tokens=prefix
    )
    found = served.serve(replace(q, workload=work), st, tokens=tokens, requests=bench.requests, shortest=shortest)
    if found.kv_edge:
        notes.append("the cache does not hold all requests at once: TTFT is mostly waiting, and sensitive to memory")
    chips = st.devices
    values = {
        "ttft": found.result.ttft_s,
        "tpot": found.result.tpot_s,
        "output_tok_s": served.metric_value(found, "tok_s"),
        "total_tok_s": served.metric_value(found, "total_tok_s_chip") * chips,
    }
    rows = [
        _row(name, bench, served.spread(values[name], found.spreads[served.kind_of(name)]), found.parts)
        for name in METRICS
    ]
    return OwnRun(bench, st, _subject(q), rows, notes)


def _open_loop(
    q: Question, st: Strategy, tokens: float | None, bench: BenchResult, work: Workload, notes: list[str]
) -> OwnRun:
    """Requests that arrive at a rate: the steady state, not the closed-loop client."""
    found = explain(replace(q, workload=work), st, tokens_given=tokens)
    s = found.served
    assert s is not None
    notes.append("no concurrency limit: predicted as a steady state of the offered rate, without start and end")
    scale = st.devices
    total = 1.0 + work.isl / work.osl
    values = {
        "ttft": s.ttft_s,
        "tpot": s.tpot_s,
        "output_tok_s": Interval(*(x * scale for x in s.tok_s_chip)),
        "total_tok_s": Interval(*(x * scale * total for x in s.tok_s_chip)),
    }
    rows = [_row(name, bench, value, found) for name, value in values.items() if value is not None]
    return OwnRun(bench, st, _subject(q), rows, notes)


def _row(metric: str, bench: BenchResult, predicted: Interval, parts: Explanation) -> Compared:
    measured = bench.metrics[metric]
    row = Compared(metric, measured, predicted, ())
    phase = parts.prefill if metric == "ttft" else parts.decode
    assert phase is not None
    return replace(row, could_explain=explanations(row, list(phase.ops)))


def explanations(row: Compared, ops: list[Op], most: int = 3) -> tuple[str, ...]:
    """The terms whose own doubt is largest, with the factor that would close the gap on each alone."""
    if row.inside:
        return ()
    times: dict[str, float] = {}
    for op in ops:
        times[op.name] = times.get(op.name, 0.0) + float(op.time_s)
    step = sum(times.values())
    slower = row.measured / row.predicted.value
    if row.metric not in ("ttft", "tpot"):
        slower = 1.0 / slower
    missing = (slower - 1.0) * step
    out = []
    doubts = sorted(doubts_of(ops).items(), key=lambda item: -item[1])
    for name, _ in doubts[:most]:
        factor = 1.0 + missing / times[name]
        out.append(f"{name} x {factor:.2f}" if factor > 0 else f"{name} (not alone)")
    if row.metric == "ttft" and slower > 1:
        out.append("host launches and front end, which the engine profile gives as intervals")
    return tuple(out)


def prefill_pool(file: str, data: dict[str, Any]) -> Planned | None:
    """The same of the pool that prefills, where the plan has two; `planned` reads the one that decodes."""
    pools = data.get("pools")
    if pools is None:
        return None
    try:
        pool = {**data, "chip": data.get("prefill_chip", data["chip"]), "strategy": pools["prefill"]["strategy"]}
    except (KeyError, TypeError):
        raise MlaplanError(f"{file}: pools has no prefill with a strategy; expected a whole plan file") from None
    return planned(file, pool)


def planned_transfer(file: str, data: dict[str, Any], isl: int) -> Sent:
    """How the cache goes between the pools of a plan of prompts of so many tokens."""
    names = ("time_s", "latency_s", "parts", "prefill_s")
    found = data.get("transfer")
    values = [found.get(name) for name in names] if isinstance(found, dict) else []
    good = [float(v) for v in values if isinstance(v, int | float) and 0 <= v < 1e9]
    if len(good) < len(names):
        raise MlaplanError(f"{file}: transfer has no {', '.join(names)}; expected a plan of two pools, saved anew")
    return Sent(isl, good[0], good[1], int(good[2]), good[3])


def read_plan(file: str) -> Planned:
    """The question and the strategy in a plan file, and the tokens per step the user gave."""
    return planned(file, plan_data(file))


def planned(file: str, data: dict[str, Any]) -> Planned:
    """`read_plan` of data that was read already, as a pipe can be read but once."""
    if (other := other_schema(data.get("schema"))) is not None:
        raise MlaplanError(f"{file}: {other[0]}; expected {other[1]}")
    try:
        chip, model = _spec(file, Chip, data["chip"], "chip"), _spec(file, Model, data["model"], "model")
        profile = _spec(file, Profile, data["engine"]["profile"], "engine.profile")
        w, o = data["workload"], data["overrides"]
        work = Workload(
            w["isl_tokens"], w["osl_tokens"], w["concurrency"], w["rate_per_s"], w["prefix_tokens"],
            prefix_groups=w.get("prefix_groups"), prefix_routed=w.get("prefix_routed") is not False,
        )  # fmt: skip
        given = Overrides(
            o["memory_fraction"], o["reserve_bytes"], o["price_usd_per_h"], o["imbalance"], o["tokens_per_step"],
            o["redundant_experts"], o.get("dcp_merge"), o.get("dcp_interleave"), o.get("shared_ranks", 0),
        o.get("gather_only", False),
        )  # fmt: skip
        st = Strategy(**{f.name: data["strategy"][f.name] for f in fields(Strategy)})
        for f in fields(Strategy):
            check_column(file, f.name, getattr(st, f.name))
    except KeyError as error:
        raise MlaplanError(f"{file}: has no {error}; expected a whole plan file") from None
    except TypeError as error:
        raise MlaplanError(f"{file}: is not as `mlaplan recommend` writes it: {error}") from None
    return question(chip, model, profile, work, given), st, given.tokens_per_step


def check_column(file: str, name: str, value: Any) -> None:
    """A column of the strategy is a word of its list, or a whole number."""
    least = 0 if name in ("mtp", "two_batch_overlap") else 1
    whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST
    if isinstance(value, str) and value in CODED[name] if name in CODED else whole:
        return
    expected = f"one of {', '.join(CODED[name])}" if name in CODED else f"a whole number from {least} to {MOST:,}"
    raise MlaplanError(f"{file}: strategy.{name} is {value!r}; expected {expected}")


def plan_data(file: str) -> dict[str, Any]:
    """What stands in a plan file, unjudged."""
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
        at = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MlaplanError(f"{file}{at}: is not JSON; expected a plan file") from None
    except (OSError, ValueError) as error:
        raise MlaplanError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(data, dict):
        raise MlaplanError(f"{file}: is no plan; expected {WRITER}")
    return data


def _spec(file: str, spec: type[M], data: Any, where: str) -> M:
    from pydantic import ValidationError

    try:
        return spec.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([where, *map(str, first["loc"])])
        raise MlaplanError(f"{file}: {place}: {first['msg']}") from None


def _subject(q: Question) -> str:
    return f"{q.setting.model.name} on {q.setting.chip.name}, {q.profile.label}"


def _load_notes(q: Question, st: Strategy, bench: BenchResult) -> list[str]:
    """Where the benchmark's load is not the plan's."""
    notes, w = [], q.workload
    for name, planned, ran in (("prompt", w.isl, bench.mean_isl), ("output", w.osl, bench.mean_osl)):
        if abs(ran / planned - 1) > FAR_LENGTH:
            notes.append(f"the plan is for a mean {name} of {planned:,} tokens, the benchmark had {ran:,.0f}")
    wanted = w.concurrency or st.batch * st.dp * st.replicas
    if bench.concurrency is not None and bench.concurrency != wanted:
        notes.append(f"the plan is for {wanted:,} requests in flight, the benchmark kept {bench.concurrency:,}")
    return notes


__all__ = ["Compared", "OwnRun", "compare", "explanations", "read_plan"]
