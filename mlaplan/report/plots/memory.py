"""How many sequences the cache holds in each KV layout, against the length of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.report.plots import frames, scale, style, subject
from mlaplan.report.plots.sheet import Sheet
from mlaplan.report.plots.subject import Unfit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy

CONTEXTS = tuple(2**k for k in range(10, 18))  # tokens of a sequence: 1k to 128k


@dataclass(frozen=True, slots=True)
class Line:
    """Whole sequences that all chips together hold, at each context; nothing where the weights alone do not fit."""

    name: str
    contexts: tuple[float, ...]
    sequences: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """asked: (context, sequences in flight) of the workload, where it states a load."""

    about: str
    lines: tuple[Line, ...]
    asked: tuple[float, float] | None
    misfits: tuple[str, ...]  # layouts that hold no sequence of any length
    x: str = "prompt and output of a sequence, tokens"
    note: str = ""


def of_layouts(
    q: Question, strategies: Sequence[Strategy], contexts: Sequence[int] = CONTEXTS, devices: int | None = None
) -> Capacity:
    """Sequences of each strategy's layout: floor(kv_tokens / sequence) on each attention-DP rank, over all ranks.

    strategies: those of `report.why.Why.held`, say: the plan and other layouts of its chips.
    """
    from mlaplan.strategy import to_table

    if not strategies:
        raise Unfit("memory: there is no plan")
    table = to_table([replace(s, batch=1) for s in strategies])
    ranks = np.array([s.dp * s.replicas for s in strategies])
    held = np.array([_held(q, table, context) for context in contexts]) * ranks
    lines, misfits = [], []
    for i, s in enumerate(strategies):
        name = f"{s.label()}, {s.kv_dtype}" if len({x.kv_dtype for x in strategies}) > 1 else s.label()
        keep = held[:, i] >= 1
        if keep.any():
            points = [(float(c), float(n)) for c, n, k in zip(contexts, held[:, i], keep, strict=True) if k]
            lines.append(Line(name, *zip(*points, strict=True)))
        else:
            misfits.append(name)
    if not lines:
        raise Unfit("memory: no layout holds a sequence: the weights leave no room")
    load = q.workload.concurrency
    asked = (float(q.budget.max_context), float(load)) if load is not None else None
    return Capacity(subject.of_question(q, devices or strategies[0].devices), tuple(lines), asked, tuple(misfits))


def _held(q: Question, table: dict[str, np.ndarray], context: int) -> np.ndarray:
    """Sequences of a rank: what the search allows, less what so many of them take beside the cache."""
    from mlaplan.costs.capacity import sequence_tokens
    from mlaplan.costs.factor import Memo
    from mlaplan.costs.table import Table
    from mlaplan.pricing import price
    from mlaplan.search import sequences_held

    longer = replace(q, budget=q.budget._replace(max_context=context))
    room = np.maximum(sequences_held(longer, Table(table), Memo())[0], 0.0)
    full = {**table, "batch": np.maximum(room, 1).astype(np.int64)}
    tokens = price(longer, full)["kv_tokens"]
    return np.minimum(room, np.maximum(tokens // sequence_tokens(Table(full), context), 0.0))


def of_frame(frame: pd.DataFrame, x: str = "isl", by: Sequence[str] | None = None) -> Capacity:
    """The most sequences that any plan of each KV layout holds, at each context of the rows."""
    x = frames.column(frame, x, "--x")
    if frame[x].nunique() < 2:
        raise Unfit(f"memory: {x} does not vary, and capacity is drawn against the context")
    rows = frames.feasible(frame)
    free = ("concurrency", "rate", x)
    keys = [frames.column(rows, c, "--by") for c in by] if by else ["kv_layout"]
    rest = [c for c in frames.axes_of(rows) if c not in free and c not in keys]
    keys = [*rest, *keys] if by is None else keys
    frames.one_of_each(rows, (*free, *keys), "memory")
    sequences = rows["kv_tokens"] // (rows["isl"] + rows["osl"]) * rows["dp"] * rows["replicas"]
    rows = rows.assign(sequences=sequences)
    lines = []
    for name, part in frames.groups(rows, keys):
        most = part.groupby(x)["sequences"].max()
        lines.append(Line(name, tuple(map(float, most.index)), tuple(map(float, most))))
    about = subject.of_frame(rows, (*keys, *free))
    said = "The most that any plan of the sweep with this layout holds."
    return Capacity(about, tuple(lines), None, (), scale.axis_label(x), said)


def figure(data: Capacity, width: float = style.FULL) -> Figure:
    """One line for each layout, and what the workload asks for as a cross."""
    with style.drawing(width):
        sheet = Sheet(width, 2.3 if width < 5 else 3.0, "Sequences that the cache holds", data.about)
        axes = sheet.figure.subplots()
        handles = []
        for i, line in enumerate(data.lines):
            look = style.look(i)
            handles += axes.plot(
                line.contexts, line.sequences, color=look.color, marker=look.marker, linestyle=look.line,
                markerfacecolor="white" if i else look.color,
            )  # fmt: skip
        names = [line.name for line in data.lines]
        if data.asked is not None:
            handles += axes.plot(*data.asked, linestyle="", marker="P", markersize=8, color=style.INK, zorder=5)
            names.append(f"asked: {data.asked[1]:,.0f} of {scale.tokens(data.asked[0])}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        contexts = sorted({c for line in data.lines for c in line.contexts})
        scale.value_ticks(axes.xaxis, contexts, "context", 5 if width < 5 else 9)
        values = [n for line in data.lines for n in line.sequences] + ([data.asked[1]] if data.asked else [])
        axes.set_ylim(max(min(values) / 1.5, 0.5), max(values) * 1.6)
        scale.log_ticks(axes.yaxis, *axes.get_ylim())
        axes.set_xlabel(data.x)
        axes.set_ylabel("sequences, all chips")
        sheet.legend(handles, names)
        if data.note:
            sheet.note(data.note)
        if data.misfits:
            sheet.note(f"Without room for a sequence of 1k: {', '.join(data.misfits)}.")
        sheet.finish()
        return sheet.figure
