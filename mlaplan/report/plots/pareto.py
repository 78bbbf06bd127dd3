"""Pareto front: output tokens per second and chip against those a user sees, the strategy beside each stretch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mlaplan import ranking
from mlaplan.report.plots import frames, labels, scale, style, subject
from mlaplan.report.plots.sheet import Sheet
from mlaplan.report.plots.subject import Unfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlaplan.plan import Recommendation
    from mlaplan.rules.rule import Question

LOG_FROM = 8.0  # largest over smallest, from which on an axis is logarithmic


@dataclass(frozen=True, slots=True)
class Point:
    """A plan on the front; low and high bound y, NaN where no band is known."""

    x: float
    y: float
    low: float
    high: float
    label: str
    batch: int


@dataclass(frozen=True, slots=True)
class Line:
    """One front, by rising x."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Fronts:
    """x and y are columns of plans; more is better in both, except for those of `frames.LESS_IS_BETTER`."""

    about: str
    x: str
    y: str
    lines: tuple[Line, ...]
    chips_named: bool = False  # names end in the chips of the plan, in brackets


def of_answer(q: Question, devices: int, found: Recommendation) -> Fronts:
    """The front of `recommend --objective pareto`, its points with bands."""
    from mlaplan.explain import explain_all

    if not found.front:
        raise Unfit("no plan is feasible, so there is no front")
    points = []
    for e in explain_all(q, [s for s, _ in found.front]):
        if e.served is not None and e.served.tok_s_user is not None:
            y = e.served.tok_s_chip
            points.append(
                Point(e.served.tok_s_user.value, y.value, y.low, y.high, e.strategy.label(), e.strategy.batch)
            )
    if not points:
        raise Unfit("with one output token there is no rate per user, so there is no front")
    line = Line("", tuple(sorted(points, key=lambda p: p.x)))
    return Fronts(subject.of_question(q, devices), "tok_s_user", "tok_s_chip", (line,))


def of_frame(
    frame: pd.DataFrame, x: str = "tok_s_user", y: str = "tok_s_chip", by: Sequence[str] | None = None
) -> Fronts:
    """The front of each group of feasible rows, over all loads, chips counted in; None groups by what varies."""
    x, y = frames.numbers(frame, x, "--x"), frames.numbers(frame, y, "--y")
    free = ("concurrency", "rate", "devices")
    rows = frames.feasible(frame)
    keys = (
        [c for c in frames.axes_of(rows) if c not in free]
        if by is None
        else [frames.column(rows, c, "--by") for c in by]
    )
    if "label" in keys:  # strategies are told by the labels of the front
        keys.remove("label")
    frames.one_of_each(rows, (*free, *keys), "pareto")
    # in brackets: the chips of a plan, where they vary
    several = rows["devices"].nunique() > 1 and "devices" not in keys
    lines = []
    for name, part in frames.groups(rows, keys):
        known = part[part[x].notna() & part[y].notna()]
        if known.empty:
            continue
        gain = [(-1.0 if c in frames.LESS_IS_BETTER else 1.0) * known[c].to_numpy(float) for c in (x, y)]
        edge = known.iloc[ranking.pareto(gain[1], gain[0])].sort_values(x)
        low, high = (edge[f"{y}_{end}"] if f"{y}_{end}" in edge else edge[y] * np.nan for end in ("low", "high"))
        points = tuple(
            Point(
                float(r[x]), float(r[y]), float(low.iloc[i]), float(high.iloc[i]),
                f"{r['label']} ({int(r['devices'])})" if several else str(r["label"]), int(r["batch"]),
            )
            for i, (_, r) in enumerate(edge.iterrows())
        )  # fmt: skip
        lines.append(Line(name, points))
    if not lines:
        raise Unfit(f"pareto: no row has both {x} and {y}")
    about = subject.of_frame(rows, (*keys, *free) if several else (*keys, "concurrency", "rate"))
    return Fronts(about, x, y, tuple(lines), several)


def figure(data: Fronts, width: float = style.FULL) -> Figure:
    """The fronts with bands, a name for every stretch of one strategy; a letter where there is no room for a name."""
    with style.drawing(width):
        made, without = _make(data, width, {})
        if without:
            letters = {name: labels.letter(i) for i, name in enumerate(sorted(without))}
            made, _ = _make(data, width, letters)
        return made


def _make(data: Fronts, width: float, letters: dict[str, str]) -> tuple[Figure, set[str]]:
    """The figure, and the names that found no place near their points."""
    from matplotlib import rcParams

    sheet = Sheet(width, 2.5 if width < 5 else 3.6, "Throughput against speed for a user", data.about)
    axes = sheet.figure.subplots()
    handles, wanted, every = [], [], []
    single = len(data.lines) == 1
    for i, line in enumerate(data.lines):
        look = style.look(i)
        x, y, low, high = np.array([(p.x, p.y, p.low, p.high) for p in line.points]).T
        axes.fill_between(x, low, high, color=look.color, alpha=0.16, linewidth=0)
        if single:
            axes.plot(x, y, color=style.FAINT, linewidth=0.8, zorder=3)
            _by_strategy(axes, line)
        else:
            handles += axes.plot(x, y, color=look.color, marker=look.marker, linestyle=look.line, zorder=4)
        every.append(np.column_stack([x, y]))
        wanted += stretches(line, once=single)
    _scales(axes, data)
    if not single:
        sheet.legend(handles, [line.name for line in data.lines])
    sheet.note("Each point is a plan that no other beats in both; shaded: 80 % band.")
    if data.chips_named:
        sheet.note("In brackets: the chips of the plan.")
    if single and len({p.label for p in data.lines[0].points}) > 1:
        sheet.note("Marks tell strategies apart; each is named once.")
    if letters:
        sheet.note(", ".join(f"{letter}: {name}" for name, letter in letters.items()) + ".")
    sheet.finish()
    wanted = [replace(w, text=letters.get(w.text, w.text)) for w in wanted]
    left = labels.place(axes, wanted, np.concatenate(every), every, size=float(rcParams["font.size"]) - 1, far=32.0)
    return sheet.figure, {w.text for w in left}


def _by_strategy(axes: Axes, line: Line) -> None:
    """Marks of a lone front: one look for each strategy, which may come back."""
    for i, name in enumerate(dict.fromkeys(p.label for p in line.points)):
        look, own = style.look(i), [(p.x, p.y) for p in line.points if p.label == name]
        axes.plot(*zip(*own, strict=True), color=look.color, marker=look.marker, linestyle="", zorder=4)


def stretches(line: Line, once: bool = False) -> list[labels.Wanted]:
    """A label in the middle of each run of neighbours with the same strategy; once: of its longest run only."""
    runs: list[list[Point]] = []
    for p in line.points:
        if runs and runs[-1][0].label == p.label:
            runs[-1].append(p)
        else:
            runs.append([p])
    if once:
        longest = {run[0].label: run for run in sorted(runs, key=len)}
        runs = [run for run in runs if longest[run[0].label] is run]
    middles = [run[len(run) // 2] for run in runs]
    return [labels.Wanted(p.label, p.x, p.y) for p in middles]


def _scales(axes: Axes, data: Fronts) -> None:
    points = [p for line in data.lines for p in line.points]
    for axis, values in (
        ("x", [p.x for p in points]),
        ("y", [v for p in points for v in (p.y, p.low, p.high) if v == v]),
    ):
        low, high = min(values), max(values)
        set_scale = axes.set_xscale if axis == "x" else axes.set_yscale
        limits = axes.set_xlim if axis == "x" else axes.set_ylim
        if low > 0 and high / low > LOG_FROM:
            set_scale("log")
            limits(low / 1.2, high * 1.2)
            scale.log_ticks(axes.xaxis if axis == "x" else axes.yaxis, low / 1.2, high * 1.2)
        else:
            room = 0.08 * (high - low or high)
            limits(max(low - room, 0.0), high + room)
            scale.plain_ticks(axes.xaxis if axis == "x" else axes.yaxis)
    axes.set_xlabel(scale.axis_label(data.x))
    axes.set_ylabel(scale.axis_label(data.y))
