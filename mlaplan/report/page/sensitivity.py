"""Which figure of the chip matters most to the plan, and what follows from the ranges of those that are not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan import units
from mlaplan.report import words
from mlaplan.report.grid import Column, text
from mlaplan.report.page import pictures
from mlaplan.report.page.elements import Element, Section, Table, Text

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer
    from mlaplan.report.plots.sensitivity import Tornado
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.figure import Figure
    from mlaplan.workload import Overrides

FACTORS = (0.9, 1.1)


class Varied(NamedTuple):
    """The section, and its figures as data."""

    section: Section
    numbers: dict[str, Any]


class End(NamedTuple):
    """Output tokens per second and chip of the plan with one figure at an end of its range; None: it does not fit."""

    figure: str
    shown: str
    tok_s_chip: float | None


def section(a: Answer, given: Overrides) -> Varied:
    """The plan is kept, and priced again with one figure of the chip changed."""
    from mlaplan.report.plots import sensitivity as plot

    best = a.found.plans[0]
    data = plot.of_plan(a.q, a.devices, best, given=given, factors=FACTORS, anew=False)
    low, high = (f"x{factor:g}" for factor in FACTORS)
    columns = (text("figure of the chip"), Column(low), Column(high))
    rows = [(s.name, _change(s.low.value, data.base), _change(s.high.value, data.base)) for s in data.swings]
    caption = f"Change of output tokens per second and chip, {words.plain(data.base)} as the chip stands"
    found: list[Element] = [
        Text("The plan is kept, and priced again with one figure of the chip and all that was measured of it changed."),
        pictures.sensitivity(data),
        Table(caption, columns, rows),
    ]
    numbers: dict[str, Any] = {"factors": list(FACTORS), "tok_s_chip": _data(data), "ranges": []}
    ends = list(_ranges(a, given))
    if ends:
        told = [(e.figure, e.shown, _change(e.tok_s_chip, data.base)) for e in ends]
        head = (text("figure"), text("end of its range"), Column("tok/s/chip"))
        found.append(Table("Figures whose range the chip's file states, at both ends", head, told))
        numbers["ranges"] = [e._asdict() for e in ends]
    return Varied(Section("sensitivity", "Sensitivity", found), numbers)


def _data(t: Tornado) -> dict[str, list[float | None]]:
    return {s.name: [s.low.value, s.high.value] for s in t.swings}


def _change(value: float | None, base: float) -> str:
    if value is None:
        return "does not fit"
    change = 100 * (value / base - 1)
    return "0 %" if abs(change) < 0.05 else f"{change:+.1f} %"


def _ranges(a: Answer, given: Overrides) -> Iterator[End]:
    """The plan on chips that have one figure at an end of its stated range."""
    from mlaplan.explain import explain

    s = a.found.plans[0].strategy
    for name, figure, place in _open(a.q.setting.chip):
        ends = figure.bounds
        for end in (ends[0], ends[2]):
            if end == ends[1]:
                continue
            chip = place(figure.model_copy(update={"value": end, "low": None, "high": None}))
            asked = replace(a.q, setting=replace(a.q.setting, chip=chip))
            found = explain(asked, s, tokens_given=given.tokens_per_step)
            value = found.served.tok_s_chip.value if found.fits and found.served is not None else None
            yield End(name, units.format_quantity(end, figure.dimension()), value)


def _open(chip: Chip) -> Iterator[tuple[str, Figure[Any], Any]]:
    """(path, figure, chip with another in its place) of the main figures that have a range."""
    for name in ("bandwidth", "capacity"):
        yield from _one(f"memory.{name}", getattr(chip.memory, name), lambda f, n=name: _with(chip, "memory", n, f))
    for link in ("scale_up", "scale_out"):
        if (found := getattr(chip, link)) is not None:
            for name in ("bandwidth", "latency", "efficiency"):
                figure = getattr(found, name)
                yield from _one(f"{link}.{name}", figure, lambda f, k=link, n=name: _with(chip, k, n, f))
    for dtype, figure in chip.peak.items():
        yield from _one(
            f"peak.{dtype}", figure, lambda f, d=dtype: chip.model_copy(update={"peak": {**chip.peak, d: f}})
        )


def _one(path: str, figure: Any, place: Any) -> Iterator[tuple[str, Any, Any]]:
    if figure is not None and figure.bounds[0] < figure.bounds[2]:
        yield path, figure, place


def _with(chip: Chip, part: str, name: str, figure: Any) -> Chip:
    inner = getattr(chip, part).model_copy(update={name: figure})
    return chip.model_copy(update={part: inner})
