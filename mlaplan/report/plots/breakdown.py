"""Where the time of a step goes: decode and prefill steps of several plans as stacked bars, with the band of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.report import words
from mlaplan.report.plots import frames, scale, style, subject
from mlaplan.report.plots.sheet import Sheet, folded, text_width
from mlaplan.report.plots.subject import Unfit
from mlaplan.report.why import group_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlaplan.costs.breakdown import Phase
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question

HOST = "host and bubbles"
REST = "everything else"
PARTS = (
    "attention core", "attention weights", "routed experts", "dense and shared FFN", "norms, router, head",
    "MTP drafts", "communication", HOST,
)  # fmt: skip
COLORED = (
    "attention core", "attention weights", "routed experts", "communication", "dense and shared FFN", "MTP drafts",
)  # fmt: skip
MOST = 8  # bars of a panel


@dataclass(frozen=True, slots=True)
class Bar:
    """One step: seconds by part, and its 80 % band where one is known."""

    name: str
    parts: dict[str, float]
    low: float | None
    high: float | None

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Panel:
    """Steps of one kind, on one scale."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Breakdown:
    about: str
    panels: tuple[Panel, ...]


def of_plans(q: Question, plans: Sequence[Explanation], devices: int | None = None) -> Breakdown:
    """Decode and prefill steps of these plans, operators summed by `report.why.group_of`."""
    if not plans:
        raise Unfit("breakdown: there is no plan")
    panels = []
    for which, name in (("decode", "decode step"), ("prefill", "prefill step")):
        bars = [_bar(e.strategy.label(), p) for e in plans if (p := getattr(e, which)) is not None]
        if bars:
            panels.append(Panel(name, tuple(bars)))
    if not panels:
        raise Unfit("breakdown: across nodes of a chip without a network nothing has a time")
    return Breakdown(subject.of_question(q, devices or plans[0].strategy.devices), tuple(panels))


def _bar(name: str, p: Phase) -> Bar:
    parts = dict.fromkeys(PARTS, 0.0)
    for op in p.ops:
        group = group_of(op)
        parts[group if group in parts else HOST] += op.time_s
    return Bar(name, parts, p.step_s.low, p.step_s.high)


def of_frame(frame: pd.DataFrame, x: str | None = None) -> Breakdown:
    """Communication and the rest in the steps of the best plan at each value of x, the first column that varies."""
    rows = frames.feasible(frame)
    varying = frames.axes_of(rows)
    x = frames.column(rows, x, "--x") if x else next(iter(varying), "chip")
    if x == "label":
        rows = frames.best(rows, ["label"], "tok_s_chip").nlargest(MOST, "tok_s_chip")
    frames.one_of_each(rows, (x,), "breakdown")
    chosen = rows if x == "label" else frames.best(rows, [x], "tok_s_chip")
    if len(chosen) > MOST:
        chosen = chosen.iloc[:: -(-len(chosen) // MOST)]
    panels = []
    for which in ("decode", "prefill"):
        bars = tuple(
            Bar(name, {REST: step * (1 - share), "communication": step * share}, None, None)
            for name, step, share in _steps(chosen, x, which)
            if step == step
        )
        if bars:
            panels.append(Panel(f"{which} step", bars))
    if not panels:
        raise Unfit("breakdown: no row has the time of a step")
    return Breakdown(subject.of_frame(rows, (x,)), tuple(panels))


def _steps(rows: pd.DataFrame, x: str, which: str) -> list[tuple[str, float, float]]:
    names = [
        str(r["label"]) if x == "label" else f"{frames.named(x, r[x])}: {r['label']}" for _, r in rows.iterrows()
    ]  # fmt: skip
    columns = [rows[f"{which}_{what}"].astype(float).tolist() for what in ("step_s", "comm_share")]
    return list(zip(names, *columns, strict=True))


def figure(data: Breakdown, width: float = style.FULL) -> Figure:
    """One panel for each kind of step, its bars below each other, the largest parts with their share."""
    with style.drawing(width):
        narrow = width < 5
        counts = [len(panel.bars) for panel in data.panels]
        beside = not narrow and len(counts) > 1
        inches = (max(counts) if beside else sum(counts)) * 0.24 + 0.5 * (1 if beside else len(counts))
        sheet = Sheet(width, inches, "Where the time of a step goes", data.about)
        grid = (1, len(counts)) if beside else (len(counts), 1)
        ratios: dict[str, Any] = {} if beside else {"height_ratios": [n + 1.2 for n in counts]}
        axes = sheet.figure.subplots(*grid, squeeze=False, sharey=False, **ratios).ravel()
        present = [p for p in (*PARTS, REST) if any(b.parts.get(p, 0.0) for panel in data.panels for b in panel.bars)]
        handles: dict[str, Any] = {}
        same = beside and len({tuple(b.name for b in panel.bars) for panel in data.panels}) == 1
        for i, (ax, panel) in enumerate(zip(axes, data.panels, strict=True)):
            _panel(ax, panel, present, handles, width * (0.28 if narrow else 0.2))
            if same and i:
                ax.tick_params(labelleft=False)
        sheet.legend(list(handles.values()), list(handles))
        if any(b.low is not None for panel in data.panels for b in panel.bars):
            sheet.note("Whisker: 80 % band of the step.")
        sheet.finish()
        for ax, panel in zip(axes, data.panels, strict=True):
            _shares(ax, panel, present)
        return sheet.figure


def _panel(ax: Axes, panel: Panel, present: Sequence[str], handles: dict[str, Any], room: float) -> None:
    from matplotlib import rcParams

    factor, unit = scale.seconds_unit(max(b.total for b in panel.bars))
    for row, bar in enumerate(panel.bars):
        at = 0.0
        for part in present:
            value = bar.parts.get(part, 0.0) * factor
            if value <= 0.0:
                continue
            look = _look(part)
            drawn = ax.barh(
                row, value, left=at, height=0.6, color=look.color, hatch=look.hatch, edgecolor="white", linewidth=0.5
            )
            handles.setdefault(part, drawn[0])
            at += value
        if bar.low is not None and bar.high is not None:
            ends = [[max(at - bar.low * factor, 0.0)], [max(bar.high * factor - at, 0.0)]]
            ax.errorbar(
                at, row + 0.39, xerr=ends, fmt="none", ecolor=style.INK, elinewidth=0.8, capsize=2, capthick=0.8
            )
    size = float(rcParams["ytick.labelsize"])
    ax.set_yticks(range(len(panel.bars)), [folded(b.name, room, size) for b in panel.bars])
    ax.set_ylim(len(panel.bars) - 0.4, -0.5)
    ax.set_xlim(left=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"{panel.name}, {unit}")


def _look(part: str) -> style.Look:
    if part in COLORED:
        return style.look(COLORED.index(part))
    greys = {HOST: ("0.25", "----"), "norms, router, head": ("0.66", "||")}
    color, hatch = greys.get(part, ("0.75", ""))
    return style.Look(color, "", "-", hatch)


def _shares(ax: Axes, panel: Panel, present: Sequence[str]) -> None:
    """The share of each part that is wide enough to hold it."""
    from matplotlib import rcParams

    size = float(rcParams["font.size"]) - 1.5
    span = ax.get_xlim()[1]
    inches = ax.get_window_extent().width / ax.figure.dpi
    factor, _ = scale.seconds_unit(max(b.total for b in panel.bars))
    for row, bar in enumerate(panel.bars):
        at = 0.0
        for part in present:
            value = bar.parts.get(part, 0.0) * factor
            text = words.percent(bar.parts.get(part, 0.0) / bar.total)
            if value > 0 and value / span * inches > text_width(text, size) + 0.08:
                ax.text(
                    at + value / 2, row, text, ha="center", va="center", fontsize=size, color="black",
                    bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
                )  # fmt: skip
            at += max(value, 0.0)
