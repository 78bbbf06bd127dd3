"""Data of every kind of picture with fixed numbers, easy and hard: pictures do not change when prices do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlaplan.report.plots import breakdown, heatmap, memory, pareto, roofline, scaling, sensitivity, timeline

ABOUT = "DeepSeek-V3 on 16 x h200-sxm; 4,096 tokens in, 1,024 out, 512 in flight, TPOT up to 60.0 ms"
SHAPES = ("DP16 EP16", "DP8 EP8 x2", "TP2 DP8 EP16", "TP4 DP4 EP16", "TP8 EP8 DCP4 latent-sharded x2")


def front(name: str, height: float, points: int, shapes: tuple[str, ...] = SHAPES) -> pareto.Line:
    """A smooth front of so many points, in runs of one strategy."""
    out = []
    for i in range(points):
        x = 4.0 * 60 ** (i / max(points - 1, 1))
        y = height / (1 + (x / 60) ** 2)
        out.append(pareto.Point(x, y, 0.7 * y, 1.3 * y, shapes[i * len(shapes) // points], 256 >> min(i // 2, 8)))
    return pareto.Line(name, tuple(out))


def one_front() -> pareto.Fronts:
    return pareto.Fronts(ABOUT, "tok_s_user", "tok_s_chip", (front("", 1100, 18),))


def many_fronts() -> pareto.Fronts:
    """As many lines as can be told apart, close to each other, with long names."""
    chips = ("h100-sxm", "h200-sxm", "b200-sxm", "mi300x", "ascend-910c-die", "ascend-910b3", "k3", "sc11")
    lines = tuple(front(chip, 1100 * 0.85**i, 9) for i, chip in enumerate(chips))
    return pareto.Fronts(ABOUT, "tok_s_user", "tok_s_chip", lines, True)


def lone_point() -> pareto.Fronts:
    return pareto.Fronts(ABOUT, "tok_s_user", "tok_s_chip", (front("", 900, 1),))


def regimes() -> heatmap.Heatmap:
    """Three regimes with a step-shaped border, one cell of its own, and a corner where nothing is feasible."""
    xs, ys = [1024.0 * 2**i for i in range(7)], [4.0**i for i in range(6)]
    names = [["TP8 x2" if j < 2 else "TP4 DP4 EP16" if j + i < 7 else SHAPES[1] for i in range(7)] for j in range(6)]
    names[0][6], names[5][6] = "TP8 EP8 PP2 DCP8 CP2", ""
    values = [[40.0 * 2**j / 1.5**i for i in range(7)] for j in range(6)]
    values[5][6] = math.nan
    panel = heatmap.Panel("", tuple(map(tuple, values)), tuple(map(tuple, names)))
    return heatmap.Heatmap(ABOUT, "isl", "concurrency", "tok_s_chip", tuple(xs), tuple(ys), (panel,))


def patchwork() -> heatmap.Heatmap:
    """Panels in which every cell has a strategy of its own: no name has room."""
    xs, ys = [1024.0 * 2**i for i in range(5)], [2.0**i for i in range(4)]
    panels = []
    for k in range(3):
        names = [[f"TP{2**k} DP{i + 1} EP{j + 1} DCP2 latent-sharded" for i in range(5)] for j in range(4)]
        values = [[10.0 + i + j for i in range(5)] for j in range(4)]
        panels.append(heatmap.Panel(f"chip {k}", tuple(map(tuple, values)), tuple(map(tuple, names))))
    return heatmap.Heatmap(ABOUT, "isl", "concurrency", "tok_s_chip", tuple(xs), tuple(ys), tuple(panels))


def steps() -> breakdown.Breakdown:
    """Five plans, one of them mostly waiting."""
    panels = []
    for name, size in (("decode step", 0.060), ("prefill step", 0.26)):
        bars = []
        for i, shape in enumerate(SHAPES):
            shares = [0.25, 0.11, 0.4 - 0.04 * i, 0.04, 0.03, 0.05, 0.11 + 0.03 * i, 0.01 * (1 + 10 * (i == 2))]
            parts = {p: size * s for p, s in zip(breakdown.PARTS, shares, strict=True)}
            total = sum(parts.values())
            bars.append(breakdown.Bar(shape, parts, 0.8 * total, 1.3 * total))
        panels.append(breakdown.Panel(name, tuple(bars)))
    return breakdown.Breakdown(ABOUT, tuple(panels))


def roofs() -> roofline.Roofline:
    """Forty operators of two phases, crowded below the ridge, and those without products."""
    dots = []
    for k, phase in enumerate(("decode", "prefill")):
        for i in range(20):
            flops = 0.0 if i % 4 == 3 else 1e12 * (1 + i) * (1 + 9 * k)
            nbytes = 5e10 / (1 + i % 5) * (1 if k else 2)
            time_s = max(flops / 0.8e15, nbytes / 4e12) * (1.1 + 0.2 * (i % 3))
            dots.append(roofline.Dot(f"operator_{i}_{phase}", phase, flops, nbytes, time_s, 0.3 / (1 + i)))
    measured = tuple(roofline.Measured("gemm", 2e12 * i, 1e10, 2e12 * i / 5e14) for i in range(1, 9))
    return roofline.Roofline(
        f"DP8 EP8 x2, 32 a rank: {ABOUT}", 4.8e12, {"fp8": 1.979e15, "bf16": 9.895e14}, tuple(dots), measured,
        {"decode": 0.11, "prefill": 0.2},
    )  # fmt: skip


def layouts() -> memory.Capacity:
    contexts = tuple(1024.0 * 2**i for i in range(8))
    lines = tuple(
        memory.Line(name, contexts, tuple(n * 1024 / c for c in contexts))
        for name, n in zip(SHAPES, (12000, 9000, 7000, 2500, 13000), strict=True)
    )
    return memory.Capacity(ABOUT, lines, (5120.0, 512.0), ("DP16",))


def counts() -> scaling.Scaling:
    points = tuple(
        scaling.Point(8 * 2**i, 900 / 1.3**i, 600 / 1.3**i, 1200 / 1.3**i, 0.1 + 0.06 * i, 0.2 + 0.05 * i, SHAPES[i])
        for i in range(5)
    )
    return scaling.Scaling(ABOUT, "tok_s_chip", (scaling.Line("", points),))


def counts_of_chips() -> scaling.Scaling:
    lines = tuple(
        scaling.Line(chip, tuple(p.__class__(p.devices, p.y * f, p.low * f, p.high * f, p.decode_comm * f,
                                             p.prefill_comm, p.label) for p in counts().lines[0].points))
        for chip, f in (("h100-sxm", 1.0), ("h200-sxm", 1.2), ("ascend-910c-die", 0.4))
    )  # fmt: skip
    return scaling.Scaling(ABOUT, "tok_s_chip", lines)


def slices() -> timeline.Timeline:
    busy = []
    for i in range(12):
        busy += [timeline.Busy(0, i, 8e-6 * i, 8e-6 * i + 2e-7), timeline.Busy(1, i, 8e-6 * i, 8e-6 * i + 5e-6)]
        busy += [timeline.Busy(2, i, 8e-6 * i + 5e-6, 8e-6 * i + 12e-6)]
    track = timeline.Track(
        "own memory, one core: slices of 144 KiB, 2 deep", ("DMA", "memory", "compute"), tuple(busy), ((0.0, 5e-6),),
        1e-4, 3e-4,
    )  # fmt: skip
    return timeline.Timeline(ABOUT, (track,))


def tornado() -> sensitivity.Tornado:
    """A figure without which nothing is feasible, and one whose change makes another plan the best."""

    def swing(name: str, low: float | None, high: float | None, label: str = SHAPES[0], kept: float | None = None):  # type: ignore[no-untyped-def]
        return sensitivity.Swing(
            name,
            sensitivity.Outcome(0.8, low, label if low else "", kept if label != SHAPES[0] else low),
            sensitivity.Outcome(1.25, high, SHAPES[0], high),
        )

    return sensitivity.Tornado(
        ABOUT, "tok_s_chip", 785.0, SHAPES[0],
        (
            swing("memory capacity", None, 850.0),
            swing("matrix peak, all dtypes", 704.0, 863.0),
            swing("memory bandwidth", 727.0, 838.0, SHAPES[1], 700.0),
            swing("scale-up bandwidth", 759.0, 808.0),
            swing("start of a kernel", 795.0, 773.0),
            swing("scale-out latency", 785.0, 785.0),
        ),
    )  # fmt: skip


EXAMPLES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "pareto": (pareto, one_front),
    "heatmap": (heatmap, regimes),
    "roofline": (roofline, roofs),
    "breakdown": (breakdown, steps),
    "scaling": (scaling, counts),
    "memory": (memory, layouts),
    "timeline": (timeline, slices),
    "sensitivity": (sensitivity, tornado),
}
HARD: dict[str, tuple[Any, Callable[[], Any]]] = {
    "many fronts": (pareto, many_fronts),
    "a lone point": (pareto, lone_point),
    "patchwork": (heatmap, patchwork),
    "several chips": (scaling, counts_of_chips),
}
