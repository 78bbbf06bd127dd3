"""Hatches of an SVG in their smallest tile: matplotlib repeats hundreds of circles where a few stand for all."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

TILES = (3, 4, 6, 8, 9, 12, 18, 24, 36)  # points; parts of matplotlib's 72
MANY = 100  # subpaths from which on a pattern is worth the work
SUBPATH = re.compile(r"M [^M]+")
POINT = re.compile(r"(-?[\d.]+) (-?[\d.]+)")
Point = tuple[float, float]


def smaller(pattern: ET.Element) -> None:
    """Gives a `pattern` the smallest square tile that its path repeats, and leaves the rest out."""
    path = next((one for one in pattern if one.tag == "path"), None)
    if path is None:
        return
    parts = [(text.strip(), _points(text)) for text in SUBPATH.findall(path.attrib["d"])]
    if len(parts) < MANY:
        return
    starts = {points[0] for _, points in parts}
    whole = float(pattern.attrib["width"])
    tile = next((size for size in TILES if _repeats(starts, size, whole)), None)
    if tile is None:
        return
    path.set("d", " ".join(text for text, points in parts if _meets(points, tile)))
    pattern.set("width", f"{tile}")
    pattern.set("height", f"{tile}")
    for one in pattern:
        if one.tag == "rect":
            one.set("width", f"{tile + 1}")
            one.set("height", f"{tile + 1}")


def _points(text: str) -> list[Point]:
    return [(float(x), float(y)) for x, y in POINT.findall(text)]


def _repeats(starts: set[Point], size: int, whole: float) -> bool:
    """Whether every start has its like one tile further right and down, as far as the pattern reaches."""
    rounded = {(round(x, 1), round(y, 1)) for x, y in starts}
    return all(
        (round(x + dx, 1), round(y + dy, 1)) in rounded
        for x, y in rounded
        for dx, dy in ((size, 0), (0, size))
        if x + dx <= whole and y + dy <= whole
    )


def _meets(points: list[Point], tile: int) -> bool:
    """Whether a subpath reaches into the tile, its stroke included."""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    return min(xs) <= tile + 1 and min(ys) <= tile + 1 and max(xs) >= -1 and max(ys) >= -1
