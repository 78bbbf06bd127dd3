"""Tornado: how much the best plan's throughput moves with each figure of the chip, the most important first.

Each figure is made smaller and larger, one at a time, and the question is planned anew; beside the new best stands
what the plan at hand would give if it were kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlaplan.report import words
from mlaplan.report.plots import frames, scale, style, subject, vary
from mlaplan.report.plots.sheet import Sheet
from mlaplan.report.plots.subject import Unfit
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.workload import Overrides

FACTORS = (0.8, 1.25)
METRICS = {"tok_s_chip": "tok/s/chip", "tok_s_user": "tok/s/user", "tpot_s": "TPOT", "ttft_s": "TTFT"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure at one factor: the best plan's value, None where nothing is feasible; the kept plan's, likewise."""

    factor: float
    value: float | None
    label: str
    kept: float | None


@dataclass(frozen=True, slots=True)
class Swing:
    """A figure at its lower and its higher factor."""

    name: str
    low: Outcome
    high: Outcome

    def size(self, base: float) -> float:
        """The larger change of the two; a figure without which nothing is feasible goes first."""
        ends = (self.low.value, self.high.value)
        return max(float("inf") if v is None else abs(v / base - 1) for v in ends)


@dataclass(frozen=True, slots=True)
class Tornado:
    about: str
    metric: str
    base: float
    label: str
    swings: tuple[Swing, ...]
    anew: bool = True


def of_plan(
    q: Question, devices: int, e: Explanation, *, objective: str = "throughput", pins: Mapping[str, Any] | None = None,
    given: Overrides | None = None, factors: tuple[float, float] = FACTORS, metric: str = "tok_s_chip",
    anew: bool = True,
) -> Tornado:  # fmt: skip
    """Every figure of `vary.figures` at both factors; e: the best plan of the question as it stands.

    anew: the question is planned anew for each; else the plan is kept and priced again.
    """
    from mlaplan.plan import question, recommend
    from mlaplan.workload import Overrides

    base = value_of(e, metric)
    if base is None:
        raise Unfit(f"sensitivity: the plan has no {metric}")
    own = given or Overrides()
    swings = []
    for name, change in vary.figures(q.setting.chip, devices).items():
        ends = []
        for factor in factors:
            chip = change(q.setting.chip, factor)
            changed = question(chip, q.setting.model, q.profile, q.workload, own)
            kept = _kept(changed, e, own, metric)
            if not anew:
                ends.append(Outcome(factor, kept, e.strategy.label(), kept))
                continue
            found = recommend(changed, devices, objective=objective, fixed=pins, top=1, given=own)
            best = found.plans[0] if found.plans else None
            ends.append(
                Outcome(factor, value_of(best, metric), best.strategy.label() if best else "", kept)
            )  # fmt: skip
        swings.append(Swing(name, *ends))
    return _sorted(Tornado(subject.of_question(q, devices), metric, base, e.strategy.label(), tuple(swings), anew))


def value_of(e: Explanation | None, metric: str) -> float | None:
    """A served figure of a plan."""
    found = getattr(e.served, metric) if e is not None and e.served is not None else None
    return None if found is None else float(found.value)


def _kept(q: Question, e: Explanation, own: Overrides, metric: str) -> float | None:
    """What the plan gives on the changed chip; None where it does not fit there."""
    from mlaplan.explain import explain

    found = explain(q, e.strategy, tokens_given=own.tokens_per_step)
    return value_of(found, metric) if found.fits else None


def of_frame(frame: pd.DataFrame, metric: str = "tok_s_chip") -> Tornado:
    """The what-if axes of a sweep that multiply a figure, each at its ends with the others at 1."""
    metric, frame = frames.numbers(frame, metric, "--y"), frame.reset_index(drop=True)
    axes = [c for c in subject.what_if(frame) if c.endswith(".factor") and frame[c].nunique() > 1]
    if not axes:
        raise Unfit("sensitivity: no figure is varied by a factor; sweep with --set memory.bandwidth=x0.8,x1,x1.25")
    frames.one_of_each(frames.feasible(frame), axes, "sensitivity")
    at_one = {c: frame[c] == 1 for c in axes}
    if not all(m.any() for m in at_one.values()):
        missing = next(c for c, m in at_one.items() if not m.any())
        raise Unfit(f"sensitivity: {missing} has no x1 to compare with")
    base = _best(frame, at_one, metric)
    if base is None or base.value is None:
        raise Unfit("sensitivity: nothing is feasible with all factors at x1")
    swings = []
    for c in axes:
        ends = []
        for factor in (float(frame[c].min()), float(frame[c].max())):
            masks = {**at_one, c: frame[c] == factor}
            ends.append(replace(_best(frame, masks, metric) or Outcome(factor, None, "", None), factor=factor))
        swings.append(Swing(c.removesuffix(".factor").removeprefix("chip."), *ends))
    about = subject.of_frame(frame, tuple(axes))
    return _sorted(Tornado(about, metric, base.value, base.label, tuple(swings)))


def _best(frame: pd.DataFrame, masks: Mapping[str, Any], metric: str) -> Outcome | None:
    rows = frame[frame["feasible"].astype(bool)]
    for mask in masks.values():
        rows = rows[mask.loc[rows.index]]
    rows = rows[rows[metric].notna()]
    if rows.empty:
        return None
    r = frames.best(rows.assign(one=1), ["one"], metric).iloc[0]
    return Outcome(1.0, float(r[metric]), str(r["label"]), None)


def _sorted(t: Tornado) -> Tornado:
    return replace(t, swings=tuple(sorted(t.swings, key=lambda s: -s.size(t.base))))


def figure(data: Tornado, width: float = style.FULL) -> Figure:
    """Two bars for each figure of the chip: the change of the best plan with less and with more of it."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    with style.drawing(width):
        sheet = Sheet(width, 0.3 * len(data.swings) + 0.45, "Which figure of the chip matters most", data.about)
        ax = sheet.figure.subplots()
        looks = (style.look(3), style.look(0))
        reach = 100 * max((abs(v / data.base - 1) for s in data.swings for v in _values(s)), default=0.0)
        reach = max(reach, 1.0)
        for row, swing in enumerate(data.swings):
            for outcome, look, shift in zip((swing.low, swing.high), looks, (-0.2, 0.2), strict=True):
                if outcome.value is not None:
                    change = 100 * (outcome.value / data.base - 1)
                    ax.barh(
                        row + shift,
                        change,
                        height=0.36,
                        color=look.color,
                        hatch=look.hatch,
                        edgecolor="white",
                        linewidth=0.4,
                    )
                if outcome.kept is not None and outcome.label != data.label:
                    kept = 100 * (outcome.kept / data.base - 1)
                    ax.plot(kept, row + shift, marker="D", markersize=3, color="black", mfc="white", mew=0.8, zorder=5)
        ax.axvline(0, color=style.INK, linewidth=0.8)
        ax.set_yticks(range(len(data.swings)), [s.name for s in data.swings])
        ax.set_ylim(len(data.swings) - 0.5, -0.5)
        room = _room(width, reach)
        ax.set_xlim(-reach - room, reach + room)
        ax.grid(axis="y", visible=False)
        ax.set_xlabel(f"change of {METRICS.get(data.metric, data.metric)}, %")
        scale.plain_ticks(ax.xaxis)
        handles: list[Any] = [Patch(facecolor=look.color, hatch=look.hatch, edgecolor="white") for look in looks]
        names = list(_factor_names(data))
        if any(o.kept is not None and o.label != data.label for s in data.swings for o in (s.low, s.high)):
            handles.append(Line2D([], [], linestyle="", marker="D", markersize=3, color="black", mfc="white", mew=0.8))
            names.append("with the plan kept")
        sheet.legend(handles, names)
        sheet.note(_note(data))
        sheet.finish()
        _write(ax, data)
        return sheet.figure


def _values(s: Swing) -> list[float]:
    ends = (s.low.value, s.high.value, s.low.kept, s.high.kept)
    return [v for v in ends if v is not None]


def _room(width: float, reach: float) -> float:
    """Of the axis, what the numbers at the ends of bars need on each side."""
    return reach * (0.55 if width < 5 else 0.3)


def _factor_names(data: Tornado) -> tuple[str, str]:
    lows, highs = ({getattr(s, end).factor for s in data.swings} for end in ("low", "high"))
    low = f"x{lows.pop():g}" if len(lows) == 1 else "less"
    return low, f"x{highs.pop():g}" if len(highs) == 1 else "more"


def _note(data: Tornado) -> str:
    value = f"{words.plain(data.base)} {METRICS.get(data.metric, data.metric)}"
    if data.metric in ("tpot_s", "ttft_s"):
        value = f"{METRICS[data.metric]} {format_seconds(data.base)}"
    if not data.anew:
        return f"The plan {data.label} is kept, with {value} as the chip stands."
    said = f"Planned anew for each; as it stands the best plan is {data.label} with {value}."
    if any(o.label not in ("", data.label) for s in data.swings for o in (s.low, s.high)):
        said += " *: another plan becomes the best."
    return said


def _write(ax: Axes, data: Tornado) -> None:
    """The change at the end of each bar, beyond the mark of the kept plan."""
    from matplotlib import rcParams

    size = float(rcParams["font.size"]) - 1.5
    per_inch = (ax.get_xlim()[1] - ax.get_xlim()[0]) / (ax.get_window_extent().width / ax.figure.dpi)
    uneven = len({(s.low.factor, s.high.factor) for s in data.swings}) > 1
    for row, swing in enumerate(data.swings):
        for outcome, shift in ((swing.low, -0.2), (swing.high, 0.2)):
            if outcome.value is None:
                text, at = "nothing is feasible" if data.anew else "does not fit", 0.0
            else:
                at = 100 * (outcome.value / data.base - 1)
                text = "0" if abs(at) < 0.05 else f"{at:+.1f}" if abs(at) < 10 else f"{at:+.0f}"
                text += "*" if outcome.label != data.label else ""
            text = f"x{outcome.factor:g}: {text}" if uneven else text
            side, clear = -1.0 if at < 0 else 1.0, 0.04
            if outcome.kept is not None and outcome.label != data.label:
                kept = 100 * (outcome.kept / data.base - 1)
                at, clear = min(at, kept) if side < 0 else max(at, kept), 0.07  # beyond the mark
            ax.text(
                at + side * clear * per_inch, row + shift, text, ha="left" if side > 0 else "right", va="center",
                fontsize=size, color=style.INK,
            )  # fmt: skip
