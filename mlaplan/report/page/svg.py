"""A matplotlib figure as an inline SVG element: ids of its own, text as text, ink and paper those of the page.

Text is kept as text: it can be selected and searched, and takes a tenth of the space of its outlines. It was laid out
with DejaVu Sans, which is wider than most, so that another font leaves room.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from mlaplan.report.plots.style import LOOKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILY = re.compile(r"font-family:[^;]*;? ?")
UNTURNED = re.compile(r"rotate\(-?0 [^)]*\)")
DROPPED = ("metadata", "style")
LARGEST = 1.8  # pixels of a point
PLACES = 2  # decimals of a coordinate: hundredths of a point
NUMBER = re.compile(r"-?\d+\.\d{3,}(?![\d%e])")
REFERENCE = re.compile(r"(url\(#|^#)([^)]+)")
HUE = re.compile(r"#[0-9a-f]{6}\b", re.I)
HUES = {look.color.lower(): number for number, look in enumerate(LOOKS)}
GREY = re.compile(r"#([0-9a-f]{2})\1\1\b", re.I)


def inline(figure: Figure, name: str, told: str) -> ET.Element:
    """The figure as an `svg` element that scales with the page. told: what it shows.

    name: begins all ids, with a digest of the picture, so that pictures of several pages can stand on one.
    """
    root = ET.fromstring(_drawn(figure))
    found = _without_names(root)
    _, _, width, height = (float(x) for x in found.attrib["viewBox"].split())
    for attribute in ("width", "height", "version"):
        found.attrib.pop(attribute, None)
    found.attrib |= {"role": "img", "aria-label": told, "style": f"max-width: {width * LARGEST:.0f}px"}
    found.set("viewBox", f"0 0 {width:g} {height:g}")
    digest = hashlib.sha256(ET.tostring(found)).hexdigest()[:8]
    _named(found, f"{name}-{digest}")
    return found


def _drawn(figure: Figure) -> bytes:
    from matplotlib import rc_context

    stream = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "mlaplan"}):
        # no date, so that the same figure gives the same bytes
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return stream.getvalue()


def _without_names(element: ET.Element) -> ET.Element:
    """The element and what is in it without XML namespaces, which HTML does not have, and without white space."""
    found = ET.Element(element.tag.rpartition("}")[2])
    for key, value in element.attrib.items():
        found.set(key.rpartition("}")[2], _plain(value))
    if found.tag in ("text", "tspan"):
        found.text = element.text if not len(element) else None  # else white space between parts
        _without_font(found)
    for child in element:
        if isinstance(child.tag, str) and child.tag.rpartition("}")[2] not in DROPPED:
            inner = _without_names(child)
            if inner.tag == "g" and not len(inner):
                continue
            found.append(inner)
    return found


def _plain(value: str) -> str:
    """Coordinates of a hundredth of a point; greys and the colours of series as the page's own."""
    short = NUMBER.sub(lambda m: f"{float(m[0]):.{PLACES}f}".rstrip("0").rstrip(".").replace("-0", "-0"), value)
    shaded = GREY.sub(_shade, short)
    return " ".join(HUE.sub(_hue, shaded).split())


def _hue(match: re.Match[str]) -> str:
    """Colours of series are lighter on dark paper; one that is not theirs stays."""
    found = HUES.get(match[0].lower())
    return match[0] if found is None else f"var(--look-{found})"


def _shade(match: re.Match[str]) -> str:
    """Greys stand for the distance between ink and paper."""
    level = int(match[1], 16)
    if level == 0x00:
        return "var(--ink)"
    return "var(--paper)" if level == 0xFF else f"var(--grey-{level * 9 // 255})"


def _without_font(text: ET.Element) -> None:
    """The style sheet names the font; a line that is not turned needs no turning."""
    text.set("style", FAMILY.sub("", text.attrib.get("style", "")))
    if UNTURNED.fullmatch(text.attrib.get("transform", "")):
        del text.attrib["transform"]


def _named(root: ET.Element, name: str) -> None:
    """Ids and references to them begin with the figure's name; an id that nothing refers to is dropped."""
    used = {m[2] for one in root.iter() for v in one.attrib.values() for m in REFERENCE.finditer(v)}
    names = {old: f"{name}-{number}" for number, old in enumerate(_ids(root, used), 1)}
    for one in root.iter():
        for key, value in list(one.attrib.items()):
            if key == "id":
                if value in names:
                    one.set(key, names[value])
                else:
                    del one.attrib[key]
            elif "#" in value:
                one.set(key, REFERENCE.sub(lambda m: m[1] + names.get(m[2], m[2]), value))


def _ids(root: ET.Element, used: set[str]) -> Iterator[str]:
    return (one.attrib["id"] for one in root.iter() if one.attrib.get("id") in used)
