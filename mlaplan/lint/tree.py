"""YAML and JSON text to a tree that keeps where each character of each scalar stands; several documents in a file.

Unlike the reader of specs it takes what manifests hold: tags, octal modes, any number of documents. Nothing is
constructed from it: a scalar stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from mlaplan.errors import Problem
from mlaplan.lint.text import Mapped, Source, Word
from mlaplan.specs.yaml_nodes import told

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MOST_NODES = 50_000
MOST_DEPTH = 64


class Node:
    """A scalar (`text`), a list (`items`) or a mapping (`pairs`). `size`: values in it, aliases written out."""

    __slots__ = ("col", "end", "items", "kind", "line", "pairs", "size", "start", "style", "text")

    def __init__(
        self, kind: str, line: int, col: int, start: int = 0, end: int = 0, text: str = "", style: str | None = None
    ) -> None:
        self.kind, self.line, self.col, self.start, self.end = kind, line, col, start, end
        self.text, self.style, self.size = text, style, 1
        self.items: list[Node] = NONE if kind != "list" else []
        self.pairs: list[tuple[Node, Node]] = NONE if kind != "map" else []

    def get(self, *keys: str) -> Node | None:
        """The value under these keys, or None."""
        here: Node | None = self
        for key in keys:
            if here is None:
                return None
            here = next((value for name, value in here.pairs if name.text == key and name.kind == "scalar"), None)
        return here

    def scalar(self, *keys: str) -> str | None:
        """The text under these keys, or None."""
        found = self.get(*keys)
        return found.text if found is not None and found.kind == "scalar" else None


NONE: Any = ()  # what a scalar holds


class TreeError(Exception):
    """What stops the reading of a file."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text())
        self.problem = problem


def read_tree(source: Source) -> list[Node]:
    """The documents of a file; TreeError at the first thing that is not YAML."""
    try:
        return list(_documents(source))
    except yaml.MarkedYAMLError as error:
        problem = told(error, source.text, source.name)
        if problem.line is not None and problem.line > len(source.lines):  # behind the end of the text
            problem = problem._replace(line=len(source.lines), col=len(source.lines[-1]) + 1)
        raise TreeError(problem) from None
    except (yaml.YAMLError, RecursionError):
        raise TreeError(Problem(source.name, None, None, "not valid YAML")) from None


def _documents(source: Source) -> Iterator[Node]:
    stack: list[Node] = []
    anchors: dict[str, Node] = {}
    keys: list[Node | None] = []
    names: list[str | None] = []
    count = 0
    root: Node | None = None

    loader: Any = _LOADER(source.text)
    while True:
        event = loader.get_event()
        kind = type(event)
        if kind is yaml.ScalarEvent:
            mark, end = event.start_mark, event.end_mark
            node = Node(
                "scalar", mark.line + 1, mark.column + 1, mark.index, end.index, event.value, event.style or None
            )
            count += 1
            if event.anchor is not None:
                anchors[event.anchor] = node
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            mark = event.start_mark
            stack.append(Node("map" if kind is yaml.MappingStartEvent else "list", mark.line + 1, mark.column + 1))
            count += 1
            keys.append(None)
            names.append(event.anchor)
            if len(stack) > MOST_DEPTH:
                raise TreeError(_at(event, source, f"values are nested more than {MOST_DEPTH} deep"))
            continue
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            node = stack.pop()
            keys.pop()
            for item in node.items:
                node.size += item.size
            for _, item in node.pairs:
                node.size += item.size
            if (name := names.pop()) is not None:
                anchors[name] = node
        elif kind is yaml.AliasEvent:
            node = anchors.get(event.anchor) or Node("scalar", event.start_mark.line + 1, event.start_mark.column + 1)
            count += node.size  # aliases of aliases grow without bound
        else:
            if kind is yaml.DocumentEndEvent:
                if root is not None:
                    yield root
                root = None
                anchors.clear()
            elif kind is yaml.StreamEndEvent:
                return
            continue
        if count > MOST_NODES:
            raise TreeError(_at(event, source, f"holds more than {MOST_NODES:,} values"))
        if not stack:
            root = node
            continue
        around = stack[-1]
        if around.kind == "list":
            around.items.append(node)
        elif (key := keys[-1]) is None:
            keys[-1] = node
        else:
            around.pairs.append((key, node))
            keys[-1] = None


def _at(event: Any, source: Source, message: str) -> Problem:
    return Problem(source.name, event.start_mark.line + 1, event.start_mark.column + 1, message)


def walk(root: Node) -> Iterator[Node]:
    """Every list and mapping below, each once, in the order in which they stand."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        children = node.items if node.kind == "list" else [value for _, value in node.pairs]
        stack.extend([child for child in reversed(children) if child.kind != "scalar"])


def word(node: Node, source: Source) -> Word:
    """A scalar as a word of a command."""
    offset = 1 if node.style in ("'", '"') else 0
    width = len(source.text[node.start : node.end].split("\n", 1)[0]) - 2 * offset
    unknown = node.text if "{{" in node.text else None
    return Word(node.text, source.name, node.line, node.col + offset, max(width, 1), unknown)


def mapped(node: Node, source: Source) -> Mapped:
    """A scalar's text with the place of every character, through folding, indents, quotes and escapes.

    Runs of characters without blanks stand in the file in the same order, each in one piece but for escapes.
    """
    raw, at, end = source.text, node.start, node.end
    if node.style in ("|", ">"):
        line_end = raw.find("\n", at)
        at = end if line_end < 0 else line_end + 1
    elif node.style in ("'", '"'):
        at += 1
    marks: list[tuple[int, int]] = [(0, at)]  # offset in the text, offset in the file
    for run in _RUN.finditer(node.text):
        if raw.startswith(run[0], at := _blanks(raw, at)) and at + len(run[0]) <= end:
            _mark(marks, run.start(), at)
            at += len(run[0])
            continue
        for offset, char in enumerate(run[0], run.start()):
            at = raw.find(char, at, end)
            if at < 0:  # an escape that stands for another character: what follows is placed from the last one found
                return _placed(node.text, marks, source)
            _mark(marks, offset, at)
            at += 1 + (node.style == "'" == char)
    return _placed(node.text, marks, source)


_RUN = re.compile(r"\S+")
_BLANKS = re.compile(r"\s*")


def _blanks(raw: str, at: int) -> int:
    found = _BLANKS.match(raw, at)
    return found.end() if found else at


def _mark(marks: list[tuple[int, int]], offset: int, at: int) -> None:
    """Notes where a character stands, unless it follows from the last note."""
    if at - offset != marks[-1][1] - marks[-1][0]:
        marks.append((offset, at))


def _placed(text: str, marks: list[tuple[int, int]], source: Source) -> Mapped:
    """The text with lines and columns for offsets in the file; these grow."""
    raw, line, before = source.text, 1, 0
    out = []
    for offset, at in marks:
        line += raw.count("\n", before, at)
        before = at
        out.append((offset, line, at - raw.rfind("\n", 0, at)))
    return Mapped(text, tuple(out))
