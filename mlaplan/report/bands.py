"""What the band of a decode step is made of: each doubt with its distance down and up, as `costs.band` adds them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.costs import band
from mlaplan.costs.moe import uneven_ranks

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question

ROUTING = "how experts are chosen (in TPOT, not in the step alone)"


class Doubt(NamedTuple):
    """One independent source of error. [s]"""

    of: str
    time_s: float
    down_s: float
    up_s: float
    known: str


def doubts(q: Question, e: Explanation) -> list[Doubt]:
    """Independent doubts of the decode step, largest first; together they are its band."""
    if e.decode is None:
        return []
    d, engine = e.decode, q.setting.engine
    groups: dict[str, list[tuple[float, float]]] = {}
    for op in d.ops:
        if op.residual:
            groups.setdefault(op.group, []).append((abs(float(op.time_s)), op.residual))
    out = []
    for group, parts in groups.items():
        half = band.EIGHTY_PERCENT * sum(t * r for t, r in parts)
        time, largest = sum(t for t, _ in parts), max(r for _, r in parts)
        known = f"mean error {largest:.0%} of the fit" if len({r for _, r in parts}) == 1 else f"up to {largest:.0%}"
        out.append(Doubt(_name(group), time, half, half, known))
    host = band.of_interval(engine.step_overhead_s, d.micro_batches)
    low, value, high = engine.step_overhead_s.low, engine.step_overhead_s.value, engine.step_overhead_s.high
    known = f"{low * 1e3:.3g} to {high * 1e3:.3g} ms a pass, {value * 1e3:.3g} taken"
    out.append(Doubt("host time per pass", value * d.micro_batches, *host, known))
    whole = band.whole_step()
    out += _releases(e)
    hidden, f = -sum(float(op.time_s) for op in d.ops if op.group == "overlap"), engine.overlap_fraction
    if hidden and f.value:
        known = f"{f.low:.0%} to {f.high:.0%} of the smaller one hides, {f.value:.0%} taken"
        down, up = hidden * (f.high / f.value - 1.0), hidden * (1.0 - f.low / f.value)
        out.append(Doubt("two-batch overlap", hidden, down, up, known))
    half = band.EIGHTY_PERCENT * whole.sum_of_parts * d.step_s.value
    out.append(Doubt("what runs between operators", d.step_s.value, half, half, f"mean error {whole.sum_of_parts:.1%}"))
    return sorted(out, key=lambda one: -one.up_s)


def _releases(e: Explanation) -> list[Doubt]:
    """What the release that runs changes, by class of operators."""
    assert e.decode is not None
    by_class: dict[str, tuple[float, float]] = {}
    for op in e.decode.ops:
        if (of := band.CLASSES.get(op.group.partition(".")[0])) is not None:
            change = band.whole_step().releases[of]
            by_class[of] = (by_class.get(of, (0.0, 0.0))[0] + abs(float(op.time_s)), change)
    return [
        Doubt(f"{of} of another release", time, *_both(time * change), f"mean change {change:.0%}")
        for of, (time, change) in by_class.items()
    ]


def _both(mean_error_s: float) -> tuple[float, float]:
    """80 % to each side of a time with this mean error."""
    half = band.EIGHTY_PERCENT * mean_error_s
    return half, half


def routing(q: Question, e: Explanation) -> Doubt | None:
    """How much the decode step changes between the ends of what is unknown about routing."""
    from mlaplan.explain import explain

    if e.decode is None or not any(f.kind == "moe" for f in q.setting.model.ffn.values()):
        return None
    own, spreads = e.decode.step_s.value, []
    for ends in q.setting.engine.routing_ends():
        times = []
        for engine in ends:
            asked = replace(q, setting=replace(q.setting, engine=engine))
            step = explain(asked, e.strategy, decode_context=q.workload.mean_context, served=False).decode
            assert step is not None  # it was priced
            times.append(step.step_s.value)
        spreads.append(band.Spread(max(own - times[0], 0.0), max(times[1] - own, 0.0)))
    if not spreads:
        return None
    both, engine = band.together(*spreads), q.setting.engine
    i, s = engine.imbalance, engine.load_spread
    if not engine.balanced and e.strategy.ep > 1:
        i = uneven_ranks(q.setting.model, engine.rank_spread, e.strategy.ep)
    known = f"busiest rank {i.low:.3g} to {i.high:.3g} x the mean, spread of loads {s.low:g} to {s.high:g}"
    return Doubt(ROUTING, own, *both, known)


def _name(group: str) -> str:
    kind, _, dtype = group.partition(".")
    words = "collectives" if kind == "link" else kind.replace("_", " ")
    return f"{words}, {dtype}" if dtype else words
