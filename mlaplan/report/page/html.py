"""A page as one HTML file: its own style, inline SVG, no script and nothing from elsewhere.

Elements are built as a tree and written by the standard library, so that no text of a model, a chip or a command
line can become markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from mlaplan.report.page import elements as e
from mlaplan.report.page import svg

SHORT = 20  # rows that a printer keeps together
WIDE = 28  # letters of a text from which on its column keeps some width
STYLE = Path(__file__).with_name("page.css")


def document(page: e.Page) -> str:
    """The file's text; the same page gives the same bytes."""
    root = ET.Element("html", lang="en")
    head = ET.SubElement(root, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    ET.SubElement(head, "meta", name="generator", content=page.made_by)
    ET.SubElement(head, "meta", name="color-scheme", content="light dark")
    # a browser would ask the server for a picture of the site
    ET.SubElement(head, "link", rel="icon", href="data:,")
    ET.SubElement(head, "title").text = page.title
    ET.SubElement(head, "style").text = STYLE.read_text("utf-8")
    body = ET.SubElement(root, "body")
    header = ET.SubElement(body, "header")
    ET.SubElement(header, "h1").text = page.title
    _inline(ET.SubElement(header, "p", {"class": "about"}), page.about)
    body.append(_contents(page.sections))
    main = ET.SubElement(body, "main")
    for section in page.sections:
        main.append(_section(section))
    _inline(ET.SubElement(ET.SubElement(body, "footer"), "p"), f"Written by {page.made_by}.")
    data = ET.SubElement(body, "script", type="application/json", id="numbers")
    data.text = _json(page.numbers)
    _lines(root)
    return "<!DOCTYPE html>\n" + ET.tostring(root, encoding="unicode", method="html") + "\n"


def numbers(text: str) -> dict[str, Any]:
    """The data in a page that `document` wrote."""
    start = text.index('<script type="application/json" id="numbers">')
    found: dict[str, Any] = json.loads(text[text.index(">", start) + 1 : text.index("</script>", start)])
    return found


def _json(data: Any) -> str:
    """JSON in which nothing can end the script element that holds it."""
    from mlaplan.report.tables import as_json

    return as_json(data).replace("<", "\\u003c")


def _contents(sections: Sequence[e.Section]) -> ET.Element:
    nav = ET.Element("nav", {"aria-label": "Contents"})
    items = ET.SubElement(nav, "ul")
    for section in sections:
        ET.SubElement(ET.SubElement(items, "li"), "a", href=f"#{section.name}").text = section.title
    return nav


def _section(section: e.Section) -> ET.Element:
    found = ET.Element("section", {"aria-labelledby": section.name})
    ET.SubElement(found, "h2", id=section.name).text = section.title
    for number, element in enumerate(section.elements, 1):
        found.extend(_written(element, f"{section.name}-{number}"))
    return found


@singledispatch
def _written(element: e.Element, name: str) -> list[ET.Element]:
    """An element as HTML; `name` is unique on the page."""
    raise TypeError(f"{name}: {type(element).__name__} is no element of a page")


@_written.register
def _(element: e.Text, name: str) -> list[ET.Element]:  # noqa: ARG001
    found = ET.Element("p", {} if element.kind == "plain" else {"class": element.kind})
    _inline(found, element.text)
    return [found]


@_written.register
def _(element: e.Items, name: str) -> list[ET.Element]:  # noqa: ARG001
    found = ET.Element("ol" if element.numbered else "ul")
    for item in element.items:
        _inline(ET.SubElement(found, "li"), item)
    return [found]


@_written.register
def _(element: e.Facts, name: str) -> list[ET.Element]:  # noqa: ARG001
    found = ET.Element("dl")
    for term, told in element.rows:
        pair = ET.SubElement(found, "div")
        ET.SubElement(pair, "dt").text = term
        _inline(ET.SubElement(pair, "dd"), told)
    return [found]


@_written.register
def _(element: e.Cards, name: str) -> list[ET.Element]:  # noqa: ARG001
    found = ET.Element("dl", {"class": "cards"})
    for card in element.cards:
        one = ET.SubElement(found, "div")
        ET.SubElement(one, "dt").text = card.name
        ET.SubElement(one, "dd", {"class": "value"}).text = card.value
        for part in (card.band, card.remark):
            if part:
                ET.SubElement(one, "dd").text = part
    return [found]


@_written.register
def _(element: e.Table, name: str) -> list[ET.Element]:
    caption = f"{name}-caption"
    box = _scrolling(caption, "scroll short" if len(element.rows) <= SHORT else "scroll")
    found = ET.SubElement(box, "table")
    _inline(ET.SubElement(ET.SubElement(found, "caption", id=caption), "span"), element.caption)
    wide = [max((len(row[i]) for row in element.rows), default=0) > WIDE for i in range(len(element.columns))]
    head = ET.SubElement(ET.SubElement(found, "thead"), "tr")
    for column in element.columns:
        # a corner without a title heads nothing
        cell = ET.SubElement(
            head, "th" if column.title else "td", _side(column.left) | _scope("col" if column.title else "")
        )
        cell.text = e.heading(column)
    body = ET.SubElement(found, "tbody")
    for number, row in enumerate(element.rows):
        line = ET.SubElement(body, "tr", {"class": "marked"} if number in element.marked else {})
        for place, (content, column) in enumerate(zip(row, element.columns, strict=True)):
            is_head = place == element.head
            kind = {"class": "wide"} if wide[place] and column.left else _side(column.left)
            cell = ET.SubElement(line, "th" if is_head else "td", kind | _scope("row" if is_head else ""))
            _inline(cell, content)
    out = [box]
    for note in element.notes:
        out.append(ET.Element("p", {"class": "note"}))
        _inline(out[-1], note)
    return out


def _scrolling(label: str, kind: str) -> ET.Element:
    """A box that is as wide as the page while what is in it may be wider; the keyboard reaches it."""
    return ET.Element("div", {"class": kind, "role": "region", "aria-labelledby": label, "tabindex": "0"})


def _side(left: bool) -> dict[str, str]:
    return {} if left else {"class": "number"}


def _scope(of: str) -> dict[str, str]:
    return {"scope": of} if of else {}


@_written.register
def _(element: e.Code, name: str) -> list[ET.Element]:  # noqa: ARG001
    label = ET.Element("p", {"class": "label"})
    _inline(label, element.label)
    found = ET.Element("pre")
    ET.SubElement(found, "code").text = element.text
    return [label, found]


@_written.register
def _(element: e.Picture, name: str) -> list[ET.Element]:
    found = ET.Element("figure")
    box = _scrolling(f"{name}-caption", "scroll")
    box.append(svg.inline(element.draw(), element.name, element.told))
    found.append(box)
    _inline(ET.SubElement(found, "figcaption", id=f"{name}-caption"), element.caption)
    return [found]


def _inline(parent: ET.Element, text: str) -> None:
    """Text into an element, what stands between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick of its own is a letter like any other
        parent.text = text
        return
    parent.text, last = parts[0], None
    for number, part in enumerate(parts[1:], 1):
        if number % 2:
            last = ET.SubElement(parent, "code")
            last.text = part
        elif last is not None:
            last.tail = part


BLOCKS = {
    "head", "body", "header", "nav", "main", "section", "footer", "ul", "ol", "dl", "div", "figure", "table", "thead",
    "tbody", "tr",
}  # fmt: skip


def _lines(root: ET.Element) -> None:
    """A line break between blocks, where white space means nothing, so that two pages can be compared by line."""
    for block in _blocks(root):
        block.text = "\n"
        for child in block:
            child.tail = "\n"


def _blocks(root: ET.Element) -> Iterator[ET.Element]:
    return (one for one in root.iter() if one.tag in BLOCKS)
