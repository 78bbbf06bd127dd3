"""Timeline of the KV slices of a decode core: copy engine, memory or link, and compute, with what is idle.

A track is one chip's (or core's) pipeline over the first slices of a step. Tracks come from a plan, whose slices
arrive from the chip's own memory, or from a study of a group, whose slices come over the link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.costs import chain, overlap, slices
from mlaplan.report.plots import scale, style, subject
from mlaplan.report.plots.sheet import Sheet, text_width
from mlaplan.report.plots.subject import Unfit
from mlaplan.report.words import kib
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlaplan.costs.chunks import GatherPlan, LocalPlan
    from mlaplan.costs.mapping import Buffered
    from mlaplan.costs.slices import Pipeline
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.specs.chip import Chip

SHOWN = 12  # slices, and rounds, that a track shows
TURNS = (style.Look("#0072B2", "", "-", ""), style.Look("#9CCBE8", "", "-", ""))  # slices take turns: dark and light
IDLE = style.Look("#F4B8A0", "", "-", "xxxx")


class Busy(NamedTuple):
    """A slice on a resource: row, number of the slice, start and end in seconds."""

    row: int
    slice: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Track:
    """idle: spans in which compute, the last row, waits; until_s: where the picture ends, of a step of total_s."""

    title: str
    rows: tuple[str, ...]
    busy: tuple[Busy, ...]
    idle: tuple[tuple[float, float], ...]
    until_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    about: str
    tracks: tuple[Track, ...]


def of_plan(q: Question, e: Explanation) -> Timeline:
    """The slices of one core in the decode step of a plan."""
    from mlaplan.costs.plan_chunks import of_strategy

    found = of_strategy(q.setting, e.strategy, q.workload.mean_context)
    if found is None:
        raise Unfit("timeline: slices are known of dense MLA with whole latents, which this plan does not decode")
    about = f"{e.strategy.label()}, {e.strategy.batch} a rank: {subject.of_question(q, e.strategy.devices)}"
    return Timeline(about, (local(found),))


def local(p: LocalPlan) -> Track:
    """The first slices from the chip's own memory in one core."""
    rows = {"dma": "DMA", "link": "memory", "compute": "compute"}
    if not p.pipeline.descriptor_s:
        rows.pop("dma")
    return of_pipeline(p.pipeline, rows, f"own memory, one core: slices of {kib(p.slice_bytes)}, {p.depth} deep")


def gathered(p: GatherPlan) -> Track:
    """The first slices of the gather on copy engine, link and compute."""
    one = overlap.pipeline(p.work, p.rates, p.picked.slice_bytes, p.picked.depth)
    what = f"gathered in slices of {kib(p.picked.slice_bytes)}, {p.picked.depth} deep, {p.work.form}"
    return of_pipeline(one, {"dma": "DMA", "link": "link", "compute": "compute"}, what)


def of_pipeline(p: Pipeline, rows: dict[str, str], title: str) -> Track:
    """A track of the first slices; rows: resource of the timeline -> its name, compute last."""
    head = replace(p, slices=min(p.slices, SHOWN + p.depth + 2))  # of a long step only what is drawn
    t = slices.timeline(head if head.tasks <= SHOWN else slices.one_task(head))
    total = slices.closed_form_s(p)
    slot = max(p.transfer_s, p.tasks * p.task_s, p.descriptor_s)
    until = min(total, p.latency_s + (SHOWN + 1) * slot)
    order = list(rows)
    busy = tuple(
        Busy(order.index(b.resource), b.slice, b.start_s, min(b.end_s, until))
        for b in t.bars if b.resource in rows and b.start_s < until
    )  # fmt: skip
    idle = tuple((b.start_s, min(b.end_s, until)) for b in t.bubbles if b.start_s < until)
    return Track(title, tuple(rows.values()), busy, idle, until, total)


def buffered(b: Buffered, chip: Chip) -> Track:
    """Pages from device memory into L2, from L2 into the core, compute, with two buffers between."""
    count = min(b.items, SHOWN)
    times = np.tile([b.gather_s, b.copy_s, b.compute_s], (count, 1))
    found = chain.schedule(times, (0.0, 0.0), [chain.Span(0, 1, 2), chain.Span(1, 2, 2)])
    named = {"SDMA", "GDMA"} <= set(chip.dma.engines if chip.dma is not None else ())
    rows = ("SDMA: DDR to L2", "GDMA: L2 to core", "compute") if named else ("to L2", "to core", "compute")
    busy = tuple(
        Busy(r, i, float(found.start[i, r]), float(found.end[i, r])) for i in range(count) for r in range(3)
    )  # fmt: skip
    until = float(found.end[count - 1, 2])
    saved = f"{format_seconds(b.overlapped_s)} instead of {format_seconds(b.serial_s)} ({b.saving:.0%} less)"
    return Track(
        f"own memory, whole sequences to each core, two buffers: {saved}", rows, busy, (), until, b.overlapped_s
    )


def figure(data: Timeline, width: float = style.FULL) -> Figure:
    """Every track with its rows; slices in turns of dark and light, with numbers; compute that waits is hatched."""
    with style.drawing(width):
        rows = [len(t.rows) for t in data.tracks]
        inches = 0.26 * sum(rows) + 0.62 * len(rows)
        sheet = Sheet(width, inches, "KV slices of a decode step", data.about)
        axes = sheet.figure.subplots(len(rows), 1, squeeze=False, height_ratios=[n + 1.2 for n in rows]).ravel()
        for ax, track in zip(axes, data.tracks, strict=True):
            draw(ax, track, width / 2)
        sheet.legend(*marks(any(t.idle for t in data.tracks)))
        sheet.finish()
        for ax, track in zip(axes, data.tracks, strict=True):
            number(ax, track)
        return sheet.figure


def marks(idle: bool) -> tuple[list[Any], list[str]]:
    """Entries of the legend."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=look.color) for look in TURNS] + [Patch(facecolor=IDLE.color, hatch=IDLE.hatch)] * idle
    return handles, ["even slices", "odd slices"] + ["compute waits"] * idle


def draw(ax: Axes, t: Track, room: float = 3.0) -> None:
    """One track into its axes."""
    from mlaplan.report.plots.sheet import folded

    factor, unit = scale.seconds_unit(t.until_s)
    for b in t.busy:
        color, long = TURNS[b.slice % 2].color, max(b.end_s - b.start_s, 0.003 * t.until_s)  # long enough to be seen
        ax.barh(
            b.row, long * factor, left=b.start_s * factor, height=0.72, color=color, edgecolor="white",
            linewidth=0.4 if long > 0.02 * t.until_s else 0.0,
        )  # fmt: skip
    for start, end in t.idle:
        ax.barh(
            len(t.rows) - 1, (end - start) * factor, left=start * factor, height=0.72, color=IDLE.color,
            hatch=IDLE.hatch, edgecolor="white", linewidth=0.4,
        )  # fmt: skip
    ax.set_yticks(range(len(t.rows)), t.rows)
    ax.set_ylim(len(t.rows) - 0.5, -0.5)
    ax.set_xlim(0, t.until_s * factor)
    ax.grid(axis="y", visible=False)
    ax.set_title(folded(t.title, max(room * 1.7, 2.4), 7.0), loc="left")
    shown = (
        "the whole step"
        if t.until_s >= t.total_s
        else f"the first {format_seconds(t.until_s)} of {format_seconds(t.total_s)}"
    )
    ax.set_xlabel(f"{unit}: {shown}")


def number(ax: Axes, t: Track) -> None:
    """Numbers of slices in bars that have room for them; for finished axes."""
    from matplotlib import rcParams

    size = float(rcParams["font.size"]) - 2
    factor, _ = scale.seconds_unit(t.until_s)
    inches = ax.get_window_extent().width / ax.figure.dpi / t.until_s
    for b in t.busy:
        if (b.end_s - b.start_s) * inches > text_width(str(b.slice), size) + 0.03:
            middle = (b.start_s + b.end_s) / 2 * factor
            color = "white" if b.slice % 2 == 0 else "black"
            ax.text(middle, b.row, str(b.slice), ha="center", va="center", fontsize=size, color=color)
