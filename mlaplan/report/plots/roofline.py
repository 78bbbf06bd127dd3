"""Roofline: every operator of a plan's decode and prefill step as a point below the roofs of the chip.

x is FLOP per byte of device memory, y the FLOP/s reached, FLOP / time of the operator's own call. Operators without
products (norms, cache writes, sampling) have no place on a logarithmic axis: they stand at its left edge, as far below
the memory roof there as their bandwidth is below the chip's. Communication moves no device memory and is left out.
Source: Williams, Waterman and Patterson, CACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan import units
from mlaplan.report import words
from mlaplan.report.plots import labels, scale, style, subject
from mlaplan.report.plots.sheet import Sheet
from mlaplan.report.plots.subject import Unfit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlaplan.costs.breakdown import Phase
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.specs.chip import Chip

DEPTH = 3e4  # of the highest roof over the lowest rate shown
NAMED = 5  # operators of a phase that carry their name: the longest


@dataclass(frozen=True, slots=True)
class Dot:
    """An operator: its work and time in one step."""

    name: str
    phase: str
    flops: float
    nbytes: float
    time_s: float
    share: float  # of the step


@dataclass(frozen=True, slots=True)
class Measured:
    """A published timing of a kernel on this chip, with the work that the cost model counts for it."""

    name: str
    flops: float
    nbytes: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """roofs: dense peak by dtype, those that the plan's products use."""

    about: str
    bandwidth: float
    roofs: dict[str, float]
    dots: tuple[Dot, ...]
    measured: tuple[Measured, ...]
    link_share: dict[str, float]  # communication of each phase, which has no place here


def of_plan(q: Question, e: Explanation) -> Roofline:
    """The operators of a plan's steps, and the published timings on its chip."""
    chip = q.setting.chip
    dots: list[Dot] = []
    links = {}
    for name, p in (("decode", e.decode), ("prefill", e.prefill)):
        if p is not None:
            dots += _dots(name, p)
            links[name] = p.comm_share
    if not dots:
        raise Unfit("roofline: across nodes of a chip without a network nothing has a time")
    about = f"{e.strategy.label()}, {e.strategy.batch} a rank: {subject.of_question(q, e.strategy.devices)}"
    return Roofline(about, float(chip.memory.bandwidth), roofs(q, e), tuple(dots), measured_on(chip), links)


def _dots(phase: str, p: Phase) -> list[Dot]:
    whole = p.step_s.value
    return [
        Dot(op.name, phase, op.flops, op.bytes, op.time_s, op.time_s / whole)
        for op in p.ops
        if op.time_s > 0 and op.bytes > 0 and not op.is_link
    ]


def roofs(q: Question, e: Explanation) -> dict[str, float]:
    """Dense peaks of the dtypes that the plan multiplies in: of its weights and of its attention core."""
    from mlaplan.costs.precision import attention_peak, matmul, sixteen_bit

    chip, model = q.setting.chip, q.setting.model
    used = {sixteen_bit(chip)}
    for part in ("attention", "routed", "dense", "shared"):
        products = matmul(chip, model, part, e.strategy.weight_dtype)
        used |= {d for d in chip.peak if float(chip.peak[d]) == products.peak_flops and products.dtype == d}
    core = attention_peak(chip, e.strategy.kv_dtype)
    used |= {d for d in (e.strategy.kv_dtype,) if d in chip.peak and float(chip.peak[d]) == core}
    return {d: float(chip.peak[d]) for d in chip.peak if d in used}


def measured_on(chip: Chip) -> tuple[Measured, ...]:
    """Published kernel timings on this chip; how long the kernel ran against the work that is counted for it."""
    from mlaplan.validation.operators import operator_ops
    from mlaplan.validation.points import published
    from mlaplan.validation.predict import corners

    found = []
    for point in published():
        if point.chip != chip.name or point.measure != "operator" or point.use == "reject" or point.not_priced:
            continue
        ops = operator_ops(next(corners(point)))
        flops, nbytes = (sum(getattr(op, f) for op in ops) for f in ("flops", "bytes"))
        time_s = {"time": point.value, "flops": flops / point.value}.get(point.metric)
        if flops > 0 and nbytes > 0 and time_s and not any(op.is_link for op in ops):
            found.append(Measured(point.operator or "", flops, nbytes, time_s))
    return tuple(found)


def figure(data: Roofline, width: float = style.FULL) -> Figure:
    """Operators as points whose size is their share of the step; the longest carry their names."""
    from matplotlib.lines import Line2D

    with style.drawing(width):
        narrow = width < 5
        sheet = Sheet(width, 2.7 if narrow else 3.9, "Roofline: operators against the chip's roofs", data.about)
        axes = sheet.figure.subplots()
        left, right, low, high = _limits(data)
        _roofs(axes, data, left, right)
        handles, names = [], []
        every: list[tuple[float, float]] = []
        radii: list[float] = []
        for phase in dict.fromkeys(d.phase for d in data.dots):
            look = style.look(0 if phase == "decode" else 3)
            own = [d for d in data.dots if d.phase == phase]
            for products in (True, False):
                some = [d for d in own if (d.flops > 0) == products]
                at = np.array([_at(d, left) for d in some]).reshape(-1, 2)
                if not len(at):
                    continue
                sizes = [_size(d, narrow) for d in some]
                marker = look.marker if products else "<"
                at[:, 1] = np.maximum(at[:, 1], low * 1.15)
                every += [tuple(p) for p in at]
                radii += [np.sqrt(size) * 0.7 for size in sizes]  # to the corner of a diamond
                axes.scatter(
                    at[:, 0], at[:, 1], s=sizes, marker=marker, facecolor=look.color, edgecolor="white", linewidth=0.4,
                    zorder=4, alpha=0.95,
                )  # fmt: skip
            handles.append(Line2D([], [], linestyle="", marker=look.marker, color=look.color))
            names.append(f"{phase} step")
        if data.measured:
            at = np.array([(m.flops / m.nbytes, m.flops / m.time_s) for m in data.measured])
            every += [tuple(p) for p in at]
            radii += [2.0] * len(at)
            handles += axes.plot(*at.T, linestyle="", marker="x", markersize=4, color="black", mew=0.7, zorder=3)
            names.append(f"measured kernels ({len(at)} published)")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(left, right)
        axes.set_ylim(low, high)
        scale.log_ticks(axes.xaxis, left, right, 6)
        _flops_ticks(axes, low, high)
        axes.set_xlabel("FLOP per byte of device memory")
        axes.set_ylabel("rate reached per chip")
        sheet.legend(handles, names)
        sheet.note(_words(data, left, low))
        sheet.finish()
        _names(axes, data, left, np.array(every), radii, narrow)
        return sheet.figure


def _limits(data: Roofline) -> tuple[float, float, float, float]:
    """Left, right, bottom, top."""
    ridge = max(data.roofs.values()) / data.bandwidth
    x = [d.flops / d.nbytes for d in data.dots if d.flops > 0] + [m.flops / m.nbytes for m in data.measured]
    y = [d.flops / d.time_s for d in data.dots if d.flops > 0] + [m.flops / m.time_s for m in data.measured]
    left, right = min(x) / 3.0, max([*x, ridge]) * 4.0
    lowest = [*y, *(left * d.nbytes / d.time_s for d in data.dots if d.flops <= 0)]
    top = max(data.roofs.values())
    return left, right, max(min(lowest) / 2.0, top / DEPTH), top * 2.5


def _at(d: Dot, left: float) -> tuple[float, float]:
    """Where an operator stands; without products at the edge, below the memory roof by its share of the bandwidth."""
    if d.flops > 0:
        return d.flops / d.nbytes, d.flops / d.time_s
    edge = left * 1.12
    return edge, edge * d.nbytes / d.time_s


def _size(d: Dot, narrow: bool) -> float:
    return (6.0 if narrow else 10.0) + (130.0 if narrow else 240.0) * d.share


def _roofs(axes: Axes, data: Roofline, left: float, right: float) -> None:
    top = max(data.roofs.values())
    ridge = top / data.bandwidth
    axes.plot([left, ridge], [left * data.bandwidth, top], color=style.INK, linewidth=1.2, zorder=2)
    for i, (_, peak) in enumerate(sorted(data.roofs.items(), key=lambda r: -r[1])):
        line = ("-", "--", ":", "-.")[min(i, 3)]
        axes.plot(
            [peak / data.bandwidth, right], [peak, peak], color=style.INK, linewidth=1.2, linestyle=line, zorder=2
        )


def _flops_ticks(axes: Axes, low: float, high: float) -> None:
    ticks = scale.steps(low, high, 7)
    axes.set_yticks(ticks, [units.format_flops(t).replace(".00", "").replace(".0", "") for t in ticks])
    axes.set_yticks([], minor=True)


def _words(data: Roofline, left: float, low: float) -> str:
    said = [
        "Size: share of the step. Triangles at the left edge: operators without products, as far below the memory roof "
        "as their bandwidth is below the chip's."
    ]
    if below := sum(_at(d, left)[1] < low for d in data.dots):
        said.append(f"{below} below the lower edge stand on it.")
    links = [f"{words.percent(share)} of the {phase} step" for phase, share in data.link_share.items() if share > 0]
    if links:
        said.append(f"Not shown: communication, {' and '.join(links)}.")
    return " ".join(said)


def _names(axes: Axes, data: Roofline, left: float, every: Any, radii: list[float], narrow: bool) -> None:
    """Names of the longest operators and of the roofs, where nothing else stands."""
    from matplotlib import rcParams

    size = float(rcParams["font.size"]) - 1
    wanted: list[labels.Wanted] = []
    for phase in dict.fromkeys(d.phase for d in data.dots):
        longest = sorted((d for d in data.dots if d.phase == phase), key=lambda d: -d.share)
        for d in longest[: 3 if narrow else NAMED]:
            color = style.look(0 if phase == "decode" else 3).color
            wanted.append(labels.Wanted(f"{d.name} {words.percent(d.share)}", *_at(d, left), color))
    right, ridge = axes.get_xlim()[1], max(data.roofs.values()) / data.bandwidth
    top = max(data.roofs.values())
    lines = [np.array([[left, left * data.bandwidth], [ridge, top]])]
    for peak in dict.fromkeys(data.roofs.values()):  # above the memory roof nothing can stand
        knee = peak / data.bandwidth
        axes.plot([left, knee], [peak, peak], color=style.FAINT, linewidth=0.5, linestyle=":", zorder=1)
        dtypes = ", ".join(d for d, p in data.roofs.items() if p == peak)
        said = f"{dtypes} {units.format_flops(peak)}"
        axes.text(left * 1.2, peak * 0.93, said, va="top", fontsize=size, color=style.INK).set_in_layout(False)
        lines.append(np.array([[peak / data.bandwidth, peak], [right, peak]]))
    slope = _angle(axes, data.bandwidth)
    at = np.sqrt(left * ridge)
    axes.text(
        at, at * data.bandwidth * 1.15, f"memory {units.format_bytes_per_s(data.bandwidth)}", rotation=slope,
        rotation_mode="anchor", ha="center", va="bottom", fontsize=size, color=style.INK,
    ).set_in_layout(False)  # fmt: skip
    boxes = [t.get_window_extent() for t in axes.texts]
    labels.place(axes, wanted, every, lines, size=size, radii=radii, blocked=boxes, far=60.0)


def _angle(axes: Axes, bandwidth: float) -> float:
    """Degrees at which the memory roof rises on the page."""
    (x0, y0), (x1, y1) = axes.transData.transform([(1.0, bandwidth), (10.0, 10.0 * bandwidth)])
    return float(np.degrees(np.arctan2(y1 - y0, x1 - x0)))
