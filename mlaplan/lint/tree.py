"""YAML and JSON text to a tree that keeps where each character of each scalar stands; several documents in a file.

Unlike the reader of specs it takes what manifests hold: tags, octal modes, any number of documents. Nothing is
constructed from it: a scalar stays text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from mlaplan.errors import Problem
from mlaplan.lint.text import Mapped, Source, Word
from mlaplan.specs.yaml_nodes import told

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MOST_NODES = 50_000
MOST_DEPTH = 64


@dataclass(slots=True)
class Node:
    """A scalar (`text`), a list (`items`) or a mapping (`pairs`)."""

    kind: str
    line: int
    col: int
    start: int = 0
    end: int = 0
    text: str = ""
    style: str | None = None
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    size: int = 1  # values in it, aliases written out

    def get(self, *keys: str) -> Node | None:
        """The value under these keys, or None."""
        here: Node | None = self
        for key in keys:
            if here is None or here.kind != "map":
                return None
            here = next((value for name, value in here.pairs if name.text == key and name.kind == "scalar"), None)
        return here

    def scalar(self, *keys: str) -> str | None:
        """The text under these keys, or None."""
        found = self.get(*keys)
        return found.text if found is not None and found.kind == "scalar" else None

    @property
    def is_text(self) -> bool:
        """A quoted or block scalar, or one that is none of YAML's other words."""
        return bool(self.style)


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
            problem = replace(problem, line=len(source.lines), col=len(source.lines[-1]) + 1)
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

    def add(node: Node) -> None:
        nonlocal root
        if not stack:
            root = node
        elif stack[-1].kind == "list":
            stack[-1].items.append(node)
        elif keys[-1] is None:
            keys[-1] = node
        else:
            stack[-1].pairs.append((keys[-1], node))
            keys[-1] = None

    events: Any = yaml.parse(source.text, Loader=_LOADER)
    for event in events:
        mark: Any = event.start_mark
        end: Any = event.end_mark
        line, col = mark.line + 1, mark.column + 1
        if isinstance(event, yaml.ScalarEvent):
            count += 1
            node = Node("scalar", line, col, mark.index, end.index, event.value, event.style or None)
            if event.anchor is not None:
                anchors[event.anchor] = node
            add(node)
        elif isinstance(event, yaml.CollectionStartEvent):
            count += 1
            kind = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
            stack.append(Node(kind, line, col, mark.index))
            keys.append(None)
            names.append(event.anchor)
            if len(stack) > MOST_DEPTH:
                raise TreeError(Problem(source.name, line, col, f"values are nested more than {MOST_DEPTH} deep"))
        elif isinstance(event, yaml.CollectionEndEvent):
            node = stack.pop()
            keys.pop()
            node.size += sum(item.size for item in node.items) + sum(value.size for _, value in node.pairs)
            if (name := names.pop()) is not None:
                anchors[name] = node
            add(node)
        elif isinstance(event, yaml.AliasEvent):
            found = anchors.get(str(event.anchor)) or Node("scalar", line, col)
            count += found.size  # aliases of aliases grow without bound
            add(found)
        elif isinstance(event, yaml.DocumentEndEvent):
            if root is not None:
                yield root
            root = None
            anchors.clear()
        if count > MOST_NODES:
            raise TreeError(Problem(source.name, line, col, f"holds more than {MOST_NODES:,} values"))


def walk(root: Node) -> Iterator[Node]:
    """Every node below, each once, in the order in which they stand."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        children = node.items if node.kind == "list" else [value for _, value in node.pairs]
        stack.extend(reversed(children))


def word(node: Node, source: Source) -> Word:
    """A scalar as a word of a command."""
    offset = 1 if node.style in ("'", '"') else 0
    width = len(source.text[node.start : node.end].split("\n", 1)[0]) - 2 * offset
    unknown = node.text if "{{" in node.text else None
    return Word(node.text, source.name, node.line, node.col + offset, max(width, 1), unknown)


def mapped(node: Node, source: Source) -> Mapped:
    """A scalar's text with the place of every character, through folding, indents, quotes and escapes.

    Characters other than blanks stand in the file in the same order; they are matched one by one.
    """
    raw, text = source.text, node.text
    at = node.start
    if node.style in ("|", ">"):
        line_end = raw.find("\n", at)
        at = len(raw) if line_end < 0 else line_end + 1
    elif node.style in ("'", '"'):
        at += 1
    line, start = node.line, raw.rfind("\n", 0, node.start) + 1
    line += raw.count("\n", node.start, at)
    start = raw.rfind("\n", 0, at) + 1
    marks: list[tuple[int, int, int]] = [(0, line, at - start + 1)]
    expected = at  # where the next character would stand if nothing is skipped
    for offset, char in enumerate(text):
        if char.isspace():
            continue
        while at < node.end and raw[at] != char:
            if raw[at] == "\n":
                line, start = line + 1, at + 1
            at += 1
        if at >= node.end:
            break  # an escape that stands for another character: what follows is placed from the last one found
        if at != expected + offset - marks[-1][0]:
            marks.append((offset, line, at - start + 1))
            expected = at
        at += 1
        if node.style == "'" and char == "'":
            at += 1
    return Mapped(text, tuple(marks))
