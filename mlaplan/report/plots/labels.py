"""Labels beside points that cover neither each other nor the points: the nearest free place, with a line to it.

Places are tried in rings around the point. A place must lie in the axes and be free of other labels and of points;
among the free ones the nearest counts, lines and leaders that it covers or crosses against it. Where nothing is free,
the label is left to the caller, which has a key for those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

RINGS = (5.0, 8.0, 12.0, 17.0, 23.0, 30.0, 38.0, 48.0, 60.0, 75.0, 95.0, 120.0)  # points from the anchor
TURNS = 24  # directions of a ring
PAD = 1.2  # points kept free around a label
LEADER = 9.0  # points of distance from which on a line joins label and point


class Box(NamedTuple):
    """A rectangle in points of 1/72 inch."""

    x0: float
    y0: float
    x1: float
    y1: float

    def overlaps(self, other: Box) -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def within(self, other: Box) -> bool:
        return self.x0 >= other.x0 and self.y0 >= other.y0 and self.x1 <= other.x1 and self.y1 <= other.y1


@dataclass(frozen=True, slots=True)
class Wanted:
    """A label for the point (x, y) in data coordinates."""

    text: str
    x: float
    y: float
    color: str = "0.15"


def letter(i: int) -> str:
    """a, b, ..., z, aa, ab, ...: what stands for a name without a place."""
    return chr(ord("a") + i) if i < 26 else letter(i // 26 - 1) + letter(i % 26)


def place(
    axes: Axes, wanted: Sequence[Wanted], points: NDArray[np.float64], lines: Sequence[NDArray[np.float64]] = (),
    size: float = 6.5, radii: Sequence[float] | float = 3.0, blocked: Sequence[Any] = (), far: float = RINGS[-1],
) -> list[Wanted]:  # fmt: skip
    """Put labels into finished axes; those without a place are returned.

    points: [n, 2] in data coordinates, none of which a label may cover; radii: theirs, in 1/72 inch; lines: [m, 2]
    each, better not covered; blocked: boxes in pixels where other text stands; far: the largest distance, in 1/72 inch.
    """
    from mlaplan.report.plots.sheet import text_width

    at = _in_points(axes, points)
    radius = np.broadcast_to(np.asarray(radii, dtype=float), len(at))
    paths = [_dense(_in_points(axes, line)) for line in lines]
    path = np.concatenate(paths) if paths else np.empty((0, 2))
    frame = _frame(axes)
    k = 72.0 / axes.figure.dpi
    taken = [Box(b.x0 * k, b.y0 * k, b.x1 * k, b.y1 * k) for b in blocked]
    leaders: list[NDArray[np.float64]] = []
    left: list[Wanted] = []
    anchors = _in_points(axes, np.array([[w.x, w.y] for w in wanted]).reshape(-1, 2))
    # the most crowded first: later ones have to go round them
    crowd = [int(np.sum(np.hypot(*(anchors - a).T) < 40)) for a in anchors]
    away = [np.hypot(*(at - a).T) for a in anchors]
    own = [float(radius[d < 0.5].max(initial=3.0)) for d in away]  # of the point that a label belongs to
    others = [at[d > r] for d, r in zip(away, own, strict=True)]
    for i in sorted(range(len(wanted)), key=lambda i: (-crowd[i], i)):
        w, anchor = wanted[i], anchors[i]
        wide, tall = text_width(w.text, size) * 72 + 2 * PAD, size * 1.1 + 2 * PAD
        best: tuple[float, Box, float, float] | None = None
        for ring in (r for r in RINGS if r <= far):
            if best is not None and best[0] <= ring:
                break
            for turn in range(TURNS):
                box = _around(anchor, ring + own[i] - 3.0, 2 * math.pi * turn / TURNS, wide, tall)
                if not box.within(frame) or any(box.overlaps(b) for b in taken) or _holds(box, at, radius):
                    continue
                leader = _leader(anchor, box, own[i])
                if any(_crosses(leader, b) for b in taken):
                    continue
                cost = (
                    ring + 5.0 * math.sqrt(_count(box, path)) + 25.0 * sum(_cross(leader, other) for other in leaders)
                )
                cost += 10.0 * sum(_crosses(other, box) for other in leaders) + 2.0 * _along(leader, path)
                cost += 15.0 * _along(leader, others[i], 3.0)
                if best is None or cost < best[0] - 1e-9:
                    best = (cost, box, ring, turn)
        if best is None:
            left.append(w)
            continue
        _, box, ring, _ = best
        taken.append(box)
        line = _leader(anchor, box, own[i])
        _write(axes, w, anchor, box, size, line if ring > LEADER else None)
        if ring > LEADER:
            leaders.append(line)
    return left


def _write(
    axes: Axes, w: Wanted, anchor: NDArray[np.float64], box: Box, size: float, line: NDArray[np.float64] | None
) -> None:
    middle = ((box.x0 + box.x1) / 2 - anchor[0], (box.y0 + box.y1) / 2 - anchor[1])
    note = axes.annotate(
        w.text, (w.x, w.y), xytext=middle, textcoords="offset points", ha="center", va="center", fontsize=size,
        color=w.color, annotation_clip=False, zorder=6, gid="label",
    )  # fmt: skip
    note.set_in_layout(False)
    if line is None:
        return
    ends = [tuple(end - anchor) for end in line]
    arrow = axes.annotate(
        "", (w.x, w.y), xytext=ends[1], textcoords="offset points", annotation_clip=False, zorder=5,
        arrowprops={"arrowstyle": "-", "lw": 0.5, "color": "0.45", "shrinkA": 0, "shrinkB": 3},
    )  # fmt: skip
    arrow.set_in_layout(False)


def _in_points(axes: Axes, data: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(data):
        return np.empty((0, 2))
    return np.asarray(axes.transData.transform(data), dtype=float) * 72.0 / axes.figure.dpi


def _frame(axes: Axes) -> Box:
    box = axes.get_window_extent()
    k = 72.0 / axes.figure.dpi
    return Box(box.x0 * k + 1, box.y0 * k + 1, box.x1 * k - 1, box.y1 * k - 1)


def _around(anchor: NDArray[np.float64], ring: float, angle: float, wide: float, tall: float) -> Box:
    """The box whose nearest edge is about `ring` away from the anchor in this direction."""
    c, s = math.cos(angle), math.sin(angle)
    x = anchor[0] + ring * c + (0.5 * wide * c if abs(c) < 0.3 else math.copysign(0.5 * wide, c))
    y = anchor[1] + ring * s + (0.5 * tall * s if abs(s) < 0.3 else math.copysign(0.5 * tall, s))
    return Box(x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2)


def _holds(box: Box, points: NDArray[np.float64], radius: NDArray[np.float64]) -> bool:
    x, y = points[:, 0], points[:, 1]
    inside = (x > box.x0 - radius) & (x < box.x1 + radius) & (y > box.y0 - radius) & (y < box.y1 + radius)
    return bool(inside.any())


def _count(box: Box, points: NDArray[np.float64]) -> int:
    if not len(points):
        return 0
    x, y = points[:, 0], points[:, 1]
    return int(np.sum((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)))


def _leader(anchor: NDArray[np.float64], box: Box, radius: float) -> NDArray[np.float64]:
    """From the point's edge to the nearest place of the box."""
    end = np.array([min(max(anchor[0], box.x0), box.x1), min(max(anchor[1], box.y0), box.y1)])
    way = end - anchor
    length = float(np.hypot(*way))
    start = anchor + way * min(radius / length, 1.0) if length > 0 else anchor
    return np.array([start, end])


def _dense(line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points every two points of length along a line."""
    out = [line[:1]]
    for a, b in pairwise(line):
        n = max(int(np.hypot(*(b - a)) / 2), 1)
        out.append(a + (b - a) * np.linspace(0, 1, n + 1)[1:, None])
    return np.concatenate(out) if len(line) else line


def _crosses(line: NDArray[np.float64], box: Box) -> bool:
    """Whether a line passes through a box."""
    return _count(box, _dense(line)) > 0


def _along(leader: NDArray[np.float64], path: NDArray[np.float64], near: float = 1.5) -> int:
    """How much of a leader, beyond its start, lies on other things: it must not be taken for a part of them."""
    points = _dense(leader)[2:]
    if not len(points) or not len(path):
        return 0
    return int(np.sum(np.min(np.hypot(*(points[:, None] - path[None]).transpose(2, 0, 1)), axis=1) < near))


def _cross(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Whether two segments cross."""

    def side(p: NDArray[np.float64], q: NDArray[np.float64], r: NDArray[np.float64]) -> float:
        return float((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]))

    return side(a[0], a[1], b[0]) * side(a[0], a[1], b[1]) < 0 and side(b[0], b[1], a[0]) * side(b[0], b[1], a[1]) < 0
