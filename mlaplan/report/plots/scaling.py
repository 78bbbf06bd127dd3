"""Throughput against the number of chips, and the share of each step that is communication below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.report.plots import frames, labels, scale, style, subject
from mlaplan.report.plots.sheet import Sheet
from mlaplan.report.plots.subject import Unfit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question


@dataclass(frozen=True, slots=True)
class Point:
    """The best plan on so many chips; low and high bound y, NaN where no band is known."""

    devices: int
    y: float
    low: float
    high: float
    decode_comm: float
    prefill_comm: float
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Scaling:
    about: str
    y: str
    lines: tuple[Line, ...]


def of_counts(q: Question, plans: Mapping[int, Explanation]) -> Scaling:
    """The best plan of the question on each number of chips, for one and the same load."""
    points = []
    for devices, e in sorted(plans.items()):
        if e.served is None or e.decode is None or e.prefill is None:
            continue
        y = e.served.tok_s_chip
        points.append(
            Point(
                devices, y.value, y.low, y.high, e.decode.comm_share, e.prefill.comm_share, e.strategy.label()
            )
        )  # fmt: skip
    if len(points) < 2:
        raise Unfit("scaling: fewer than two numbers of chips have a feasible plan")
    about = subject.of_question(q, 0).replace(" on 0 x ", " on ")
    return Scaling(about, "tok_s_chip", (Line("", tuple(points)),))


def of_frame(frame: pd.DataFrame, y: str = "tok_s_chip", by: Sequence[str] | None = None) -> Scaling:
    """The best plan on each number of chips, a line for each group; None groups by what varies beside the chips."""
    y = frames.numbers(frame, y, "--y")
    rows = frames.feasible(frame)
    if rows["devices"].nunique() < 2:
        raise Unfit("scaling: the number of chips does not vary; sweep over --devices 8,16,32")
    keys = [frames.column(rows, c, "--by") for c in by] if by else [c for c in frames.axes_of(rows) if c != "devices"]
    keys = [k for k in keys if k != "label"]
    frames.one_of_each(rows, ("devices", *keys), "scaling")
    lines = []
    for name, part in frames.groups(rows, keys):
        points = []
        for _, r in frames.best(part, ["devices"], y).iterrows():
            low, high = (float(r[f"{y}_{end}"]) if f"{y}_{end}" in r else np.nan for end in ("low", "high"))
            decode, prefill = (float(r[f"{which}_comm_share"]) for which in ("decode", "prefill"))
            points.append(Point(int(r["devices"]), float(r[y]), low, high, decode, prefill, str(r["label"])))
        lines.append(Line(name, tuple(points)))
    return Scaling(subject.of_frame(rows, ("devices", *keys)), y, tuple(lines))


def figure(data: Scaling, width: float = style.FULL) -> Figure:
    """Two panels over one axis of chips: throughput with band and strategies, and communication."""
    from matplotlib import rcParams
    from matplotlib.lines import Line2D

    with style.drawing(width):
        narrow = width < 5
        sheet = Sheet(width, 3.3 if narrow else 4.3, "Scaling with the number of chips", data.about)
        top, bottom = sheet.figure.subplots(2, 1, sharex=True, height_ratios=[1.7, 1])
        single = len(data.lines) == 1
        handles: list[Line2D] = []
        wanted, every = [], []
        for i, line in enumerate(data.lines):
            look = style.look(i)
            x = np.array([p.devices for p in line.points], dtype=float)
            y, low, high = np.array([(p.y, p.low, p.high) for p in line.points]).T
            top.fill_between(x, low, high, color=look.color, alpha=0.16, linewidth=0)
            handles += top.plot(x, y, color=look.color, marker=look.marker, linestyle="-" if single else look.line)
            every.append(np.column_stack([x, y]))
            if single:
                wanted += [labels.Wanted(p.label, p.devices, p.y) for p in line.points]
            shares = 100 * np.array([(p.decode_comm, p.prefill_comm) for p in line.points])
            for column, dash, fill in ((0, "-", look.color), (1, "--", "white")):
                bottom.plot(x, shares[:, column], color=look.color, marker=look.marker, linestyle=dash, mfc=fill)
        counts = sorted({p.devices for line in data.lines for p in line.points})
        top.set_xscale("log", base=2)
        scale.value_ticks(top.xaxis, counts, "devices")
        top.tick_params(labelbottom=True)
        points = [p for line in data.lines for p in line.points]
        top.set_ylim(0, 1.06 * max(v for p in points for v in (p.y, p.high) if v == v))
        bottom.set_ylim(0, 115 * max(0.01, *(max(p.decode_comm, p.prefill_comm) for p in points)))
        scale.plain_ticks(top.yaxis)
        top.margins(x=0.08)
        bottom.set_xlabel("chips")
        top.set_ylabel(scale.axis_label(data.y).replace("output tokens per second", "output tokens per second\n"))
        bottom.set_ylabel("communication,\n% of the step")
        marks = [Line2D([], [], color=style.INK, linestyle="-", marker="o"),
                 Line2D([], [], color=style.INK, linestyle="--", marker="o", mfc="white")]  # fmt: skip
        if not single:
            sheet.legend(handles, [line.name for line in data.lines])
        sheet.legend(marks, ["decode step", "prefill step"])
        sheet.note("Shaded: 80 % band. The best plan on each number of chips, for the same load on all.")
        sheet.finish()
        labels.place(top, wanted, np.concatenate(every), every, size=float(rcParams["font.size"]) - 1)
        return sheet.figure
