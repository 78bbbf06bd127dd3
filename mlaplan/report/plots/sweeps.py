"""From the rows of a sweep to pictures: one kind as asked, or every kind that the rows allow.

A picture shows two or three columns of the question. Asked for one kind, the others must be chosen by the user;
for all kinds the value with most feasible rows is taken, of these the middle one, and told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError
from mlaplan.report.plots import KINDS, breakdown, frames, heatmap, memory, pareto, scaling, sensitivity, subject
from mlaplan.report.plots.style import FULL, LOOKS
from mlaplan.report.plots.subject import Unfit
from mlaplan.sweep.rows import IDENTITY

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OPERATORS = ("roofline", "timeline")  # of which the rows of a sweep hold nothing
TAKES = {
    "pareto": ("x", "y", "by"),
    "heatmap": ("x", "y", "by"),
    "breakdown": ("x",),
    "scaling": ("y", "by"),
    "memory": ("x", "by"),
    "sensitivity": ("y",),
}
LOADS = ("concurrency", "rate")
SHOWN = {"pareto": ("devices", *LOADS), "heatmap": ("isl", *LOADS), "scaling": ("devices",), "memory": ("isl", *LOADS)}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A kind with its file, or why there is none; `at`: what was chosen of columns that it does not show."""

    kind: str
    path: Path | None
    why: str
    at: dict[str, str]

    def __str__(self) -> str:
        if self.path is None:
            return f"not drawn: {self.why if self.why.startswith(self.kind) else f'{self.kind}: {self.why}'}"
        chosen = ", ".join(f"{name} {value}" for name, value in self.at.items())
        return f"written to {self.path} ({chosen})" if chosen else f"written to {self.path}"


def one(
    frame: pd.DataFrame, kind: str, width: float = FULL, x: str | None = None, y: str | None = None,
    by: Sequence[str] | None = None,
) -> Figure:  # fmt: skip
    """The picture of one kind; Unfit where the rows cannot give it, MlaplanError for a column it does not have."""
    if kind in OPERATORS:
        raise Unfit(
            f"{kind}: the rows of a sweep hold no operators; ask one question: "
            f"mlaplan plot --kind {kind} MODEL CHIP --devices N"
        )
    for name, value in (("x", x), ("y", y), ("by", by)):
        if value and name not in TAKES[kind]:
            taken = ", ".join(f"--{n}" for n in TAKES[kind])
            raise MlaplanError(f"--{name} is not for a {kind}; it takes {taken}")
    if frame.empty:
        raise Unfit(f"{kind}: the file holds no rows")
    if kind == "pareto":
        return pareto.figure(pareto.of_frame(frame, x or "tok_s_user", y or "tok_s_chip", by), width)
    if kind == "heatmap":
        return _heatmap(frame, width, x, y, by)
    if kind == "breakdown":
        return breakdown.figure(breakdown.of_frame(frame, x), width)
    if kind == "scaling":
        return scaling.figure(scaling.of_frame(frame, y or "tok_s_chip", by), width)
    if kind == "memory":
        return memory.figure(memory.of_frame(frame, x or "isl", by), width)
    return sensitivity.figure(sensitivity.of_frame(frame, y or "tok_s_chip"), width)


def _heatmap(frame: pd.DataFrame, width: float, x: str | None, y: str | None, by: Sequence[str] | None) -> Figure:
    """y is the upright axis where it is a column of the question or the batch, else what the shade shows."""
    asked = {c.name for c in IDENTITY} | {"batch", *subject.what_if(frame)}
    found = frames.numbers(frame, y, "--y") if y else None
    upright, shade = (found, "tok_s_chip") if found in asked else (None, found or "tok_s_chip")
    return heatmap.figure(heatmap.of_frame(frame, x or "isl", upright, shade, by), width)


def draw_sweep(frame: pd.DataFrame, directory: str | Path, form: str = "svg", width: float = FULL) -> list[Drawn]:
    """Every kind that the rows allow, in files of the folder, which is made if need be."""
    from mlaplan.report.picture import save

    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlaplanError(f"{folder}: cannot be made: {error.strerror or error}") from None
    out = []
    for kind in KINDS:
        try:
            rows, at = narrowed(frame, kind)
            made = one(rows, kind, width)
        except Unfit as reason:
            out.append(Drawn(kind, None, str(reason), {}))
            continue
        path = folder / f"{kind}.{form}"
        save(made, str(path))
        out.append(Drawn(kind, path, "", at))
    return out


def narrowed(frame: pd.DataFrame, kind: str) -> tuple[pd.DataFrame, dict[str, str]]:
    """(the rows of one value of each column that the kind cannot show, those values)."""
    if kind in OPERATORS or frame.empty:
        return frame, {}
    shown = list(SHOWN.get(kind, ()))
    varying = frames.axes_of(frame)
    if kind == "breakdown":
        shown = varying[:1]
    elif kind == "sensitivity":
        shown = [c for c in subject.what_if(frame) if c.endswith(".factor")]
    else:
        shown += _told_apart(frame, kind)
    at: dict[str, str] = {}
    for name in varying:
        if name not in shown and frame[name].nunique() > 1:
            value = _middle(frame, name)
            frame = frame[frame[name] == value]
            at[name] = frames.value_text(name, value)
    return frame, at


def _told_apart(frame: pd.DataFrame, kind: str) -> list[str]:
    """Chips, then models, as far as their groups can be told apart."""
    room = heatmap.MOST_PANELS if kind == "heatmap" else len(LOOKS)
    if kind == "memory":
        room //= max(frame["kv_layout"].nunique(), 1)
    found, groups = [], 1
    for name in ("chip", "model"):
        groups *= max(frame[name].nunique(), 1)
        if groups <= room:
            found.append(name)
    return found


def _middle(frame: pd.DataFrame, name: str) -> Any:
    """The value with most feasible rows; among several the middle one."""
    counts = frame[frame["feasible"].astype(bool)][name].value_counts()
    if counts.empty:
        return frame[name].dropna().iloc[0]
    most = sorted(counts[counts == counts.max()].index)
    return most[len(most) // 2]
