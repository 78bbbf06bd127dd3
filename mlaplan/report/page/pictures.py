"""The pictures of a page, each with what it shows in words; where one cannot be drawn, the reason stands there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlaplan.report import words
from mlaplan.report.page.elements import Element, Picture, Text
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer
    from mlaplan.report.plots.sensitivity import Tornado


def breakdown(a: Answer) -> Element:
    """Steps of the ranked plans as stacked bars."""
    from mlaplan.report.plots import breakdown as plot

    best = a.found.plans[0]
    assert best.decode is not None  # plans are served
    told = (
        f"Stacked bars of the decode and prefill step of {words.times(len(a.found.plans), 'plan')}; the decode step "
        f"of {best.strategy.label()} takes {format_seconds(best.decode.step_s.value)}, "
        f"{words.percent(best.decode.comm_share)} of it communication."
    )
    caption = "Where the time of a step goes, in the plans of the ranking."
    return _picture("breakdown", caption, told, plot, lambda: plot.of_plans(a.q, a.found.plans, a.devices))


def memory(a: Answer) -> Element:
    """KV capacity by layout against context."""
    from mlaplan.report.plots import memory as plot

    assert a.why is not None  # there is a plan
    layouts = list(dict.fromkeys(held.strategy for held in a.why.held))
    most = max(a.why.held, key=lambda held: held.all_sequences)
    told = (
        f"Sequences that the cache of all chips holds against their length, for {words.times(len(layouts), 'layout')}; "
        f"at {a.q.workload.max_context:,} tokens {most.strategy.label()} holds most, {most.all_sequences:,}."
    )
    caption = "How much cache each layout leaves room for, as sequences grow."
    return _picture("memory", caption, told, plot, lambda: plot.of_layouts(a.q, layouts))


def roofline(a: Answer) -> Element:
    """Every operator of the winner against the chip's roofs."""
    from mlaplan.costs.machine import bound_of
    from mlaplan.report.plots import roofline as plot

    best = a.found.plans[0]
    assert best.decode is not None
    shares: dict[str, float] = {}
    for op in best.decode.ops:
        shares[bound_of(op)] = shares.get(bound_of(op), 0.0) + op.time_s / best.decode.step_s.value
    parts = [f"{bound} {words.percent(share)}" for bound, share in sorted(shares.items(), key=lambda x: -x[1])]
    told = (
        f"Operators of {best.strategy.label()} by FLOP per byte and by the rate they reach, below the memory and "
        f"compute roofs of {a.q.setting.chip.name}. Time of the decode step by what binds it: {', '.join(parts)}."
    )
    caption = "Operators of the winning plan against the roofs of the chip; the larger, the longer."
    return _picture("roofline", caption, told, plot, lambda: plot.of_plan(a.q, best))


def pareto(a: Answer) -> Element:
    """The front of throughput and speed."""
    from mlaplan.report.plots import pareto as plot

    ends = dict.fromkeys(
        f"{words.plain(f['tok_s_chip'])} a chip with {words.plain(f['tok_s_user'])} a user"
        for _, f in (a.found.front[0], a.found.front[-1])
    )
    told = f"Output tokens per second and chip against those of a user: {' to '.join(ends)}"
    caption = "Plans that no other beats in both throughput per chip and speed for a user."
    return _picture("pareto", caption, f"{told}.", plot, lambda: plot.of_answer(a.q, a.devices, a.found))


def sensitivity(data: Tornado) -> Element:
    """The plan with each figure of the chip smaller and larger."""
    from mlaplan.report.plots import sensitivity as plot

    first = data.swings[0]
    ends = [f"x{o.factor:g} {_moved(o.value, data.base)}" for o in (first.low, first.high)]
    told = (
        f"Bars of the change in output tokens per second and chip, {words.plain(data.base)} as the chip stands, with "
        f"{words.times(len(data.swings), 'figure')} of the chip smaller and larger; {first.name} matters most, "
        f"{' and '.join(ends)}."
    )
    caption = "What each figure of the chip is worth to this plan; the most important first."
    return Picture("sensitivity", caption, told, lambda: plot.figure(data))


def _moved(value: float | None, base: float) -> str:
    return "does not fit" if value is None else f"{100 * (value / base - 1):+.1f} %"


def _picture(name: str, caption: str, told: str, plot: Any, build: Callable[[], Any]) -> Element:
    """The picture, or why there is none."""
    from mlaplan.report.plots.subject import Unfit

    try:
        data = build()
    except Unfit as reason:
        return Text(f"No picture here: {reason}.")
    return Picture(name, caption, told, lambda: plot.figure(data))
