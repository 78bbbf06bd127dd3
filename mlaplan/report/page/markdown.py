"""A page as Markdown: the same sections and tables as GitHub renders them; pictures are told, not shown."""

from __future__ import annotations

import re
from functools import singledispatch

from mlaplan.report.page import elements as e
from mlaplan.report.tables import as_markdown

MARKS = re.compile(r"([\\*<>\[\]#~]|(?<!\w)_|_(?!\w))")  # an underscore within a word means nothing


def document(page: e.Page) -> str:
    """The file's text."""
    parts = [f"# {_escaped(page.title)}", _inline(page.about)]
    for section in page.sections:
        parts.append(f"## {_escaped(section.title)}")
        parts += [text for element in section.elements if (text := _written(element))]
    return "\n\n".join([*parts, "---", f"Written by {_inline(page.made_by)}."]) + "\n"


@singledispatch
def _written(element: e.Element) -> str:
    raise TypeError(f"{type(element).__name__} is no element of a page")


@_written.register
def _(element: e.Text) -> str:
    text = _inline(element.text)
    return text if element.kind == "plain" else f"**{text}**" if element.kind == "verdict" else f"> {text}"


@_written.register
def _(element: e.Items) -> str:
    return "\n".join(
        f"{f'{i}.' if element.numbered else '-'} {_inline(item)}" for i, item in enumerate(element.items, 1)
    )


@_written.register
def _(element: e.Facts) -> str:
    return "\n".join(f"- {_escaped(term)}: {_inline(told)}" for term, told in element.rows)


@_written.register
def _(element: e.Cards) -> str:
    rows = [[_escaped(cell) for cell in card] for card in element.cards]
    return as_markdown(("figure", "value", "80 % band", ""), rows)


@_written.register
def _(element: e.Table) -> str:
    columns = [_escaped(e.heading(column)) for column in element.columns]
    rows = []
    for number, row in enumerate(element.rows):
        cells = [_inline(cell) for cell in row]
        if number in element.marked:
            cells[element.head] = f"**{cells[element.head]}**"
        rows.append(cells)
    lines = as_markdown(columns, rows).split("\n")
    lines[1] = "| " + " | ".join("---" if column.left else "---:" for column in element.columns) + " |"
    return "\n\n".join([f"*{_inline(element.caption)}*", "\n".join(lines), *map(_inline, element.notes)])


@_written.register
def _(element: e.Code) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", element.text)), default=0))
    return f"{_inline(element.label)}\n\n{fence}sh\n{element.text}\n{fence}"


@_written.register
def _(element: e.Picture) -> str:
    return _inline(element.told)


def _inline(text: str) -> str:
    """Marks of Markdown as letters, except in what stands between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _escaped(text).replace("`", "\\`")
    return "`".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    return MARKS.sub(r"\\\1", text)
