"""YAML text to nodes: the only file that imports yaml. Works on events, so nesting costs no recursion."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from mlaplan.errors import Problem, SpecError
from mlaplan.specs.source import MAX_DEPTH, Mark, Node

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT = re.compile(r"[+-]?(\.[0-9]+|(0|[1-9][0-9]*(_[0-9]+)*)(\.[0-9]*)?)([eE][+-]?[0-9]+)?")
_ODD_INT = re.compile(r"[+-]?0[0-9]+|0[xob][0-9a-fA-F]+")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_INFINITE = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}

# PyYAML's phrases, in either of its two parsers, and what a person would say
_PHRASES = (
    (
        "mapping values are not allowed",
        "a second ':' on this line",
        "one 'key: value', or quotes around the text",
    ),
    ("cannot start any token", "a value starts with a tab or a special character", "quotes around the text"),
    ("did not find expected ',' or ']'", "a list opened with '[' is not closed", "']'"),
    ("expected ',' or ']'", "a list opened with '[' is not closed", "']'"),
    ("did not find expected ',' or '}'", "a mapping opened with '{' is not closed", "'}'"),
    ("expected ',' or '}'", "a mapping opened with '{' is not closed", "'}'"),
    ("unexpected end of stream", "a quoted text is not closed", "a closing quote"),
    ("unknown escape character", "an unknown escape after '\\' in a quoted text", "'\\\\', or single quotes"),
    ("did not find expected key", "this line does not line up with the lines above", "the same indent"),
    (
        "did not find expected '-' indicator",
        "this line does not line up with the list above",
        "'- ' or a smaller indent",
    ),
    ("expected <block end>", "this line does not line up with the lines above", "the same indent"),
    ("expected node content", "a value is missing", "a value or a closing bracket"),
    ("expected the node content", "a value is missing", "a value or a closing bracket"),
    ("could not find expected ':'", "a key has no ':' after it", "'key: value'"),
    ("incompatible YAML document", "a %YAML directive for another version", "YAML 1.1 or 1.2"),
    ("maximum nesting depth", f"values are nested more than {MAX_DEPTH} deep", "a flatter document"),
    ("tab", "a tab is used as indent", "spaces"),
)


def nodes(text: str, file: str) -> Node:
    """The root node of the only document in `text`."""
    try:
        return _Composer(file).compose(text)
    except yaml.MarkedYAMLError as error:
        raise SpecError([told(error, text, file)]) from None
    except yaml.YAMLError as error:
        index = getattr(error, "position", None)
        line = text.count("\n", 0, index) + 1 if index is not None else None
        raise SpecError([Problem(file, line, None, "the text holds a character YAML does not allow")]) from None


def told(error: yaml.MarkedYAMLError, text: str, file: str) -> Problem:
    """The complaint of a YAML parser in a person's words."""
    mark = error.problem_mark or error.context_mark
    line, col = (mark.line + 1, mark.column + 1) if mark else (None, None)
    raw = error.problem or "cannot be read"
    lines = text.split("\n")
    if line is not None and line <= len(lines) and re.match(r" *\t", lines[line - 1]):
        return Problem(file, line, lines[line - 1].index("\t") + 1, "a tab is used as indent", "spaces")
    for phrase, message, expected in _PHRASES:
        if phrase in raw:
            if "not closed" in message and error.context_mark:  # where it was opened says more than where text ends
                line, col = error.context_mark.line + 1, error.context_mark.column + 1
            return Problem(file, line, col, f"not valid YAML: {message}", expected)
    return Problem(file, line, col, f"not valid YAML: {raw}")


class _Composer:
    def __init__(self, file: str) -> None:
        self.file = file
        self.anchors: dict[str, Node] = {}

    def compose(self, text: str) -> Node:
        root: Node | None = None
        stack: list[tuple[str, list[Any], Mark, str | None]] = []  # kind, children, mark, anchor
        documents = 0
        events: Any = yaml.parse(text, Loader=_LOADER)
        for event in events:
            mark = (event.start_mark.line + 1, event.start_mark.column + 1)
            node: Node | None = None
            if isinstance(event, yaml.ScalarEvent):
                self._refuse_tag(event, mark)
                node = self._named(Node("scalar", self._scalar(event, mark), mark), event.anchor)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._refuse_tag(event, mark)
                kind = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
                stack.append((kind, [], mark, event.anchor))
                if len(stack) > MAX_DEPTH:
                    raise self._error(mark, f"values are nested more than {MAX_DEPTH} deep", "a flatter document")
            elif isinstance(event, yaml.CollectionEndEvent):
                kind, children, start, anchor = stack.pop()
                pairs = list(zip(children[::2], children[1::2], strict=True)) if kind == "map" else children
                node = self._named(Node(kind, pairs, start), anchor)
            elif isinstance(event, yaml.AliasEvent):
                node = self._alias(str(event.anchor), mark, stack)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error(mark, "a second document starts here", "one document in a file")
            if node is not None:
                if stack:
                    stack[-1][1].append(node)
                else:
                    root = node
        return root or Node("scalar", None, (1, 1))

    def _named(self, node: Node, anchor: str | None) -> Node:
        if anchor is not None:
            self.anchors[anchor] = node
        return node

    def _alias(self, anchor: str, mark: Mark, stack: list[tuple[str, list[Any], Mark, str | None]]) -> Node:
        if any(anchor == open_anchor for *_, open_anchor in stack):
            raise self._error(mark, f"the alias '*{anchor}' stands inside the value it refers to")
        if anchor not in self.anchors:
            raise self._error(mark, f"the alias '*{anchor}' refers to no anchor above", f"'&{anchor}' before it")
        return self.anchors[anchor]

    def _refuse_tag(self, event: Any, mark: Mark) -> None:
        if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:str"):
            raise self._error(mark, f"the tag '{event.tag}' is not used here", "a plain value")

    def _scalar(self, event: Any, mark: Mark) -> Any:
        value: str = event.value
        if not event.implicit[0]:  # quoted, a block scalar, or tagged as text
            return value
        if value in _WORDS:
            return _WORDS[value]
        if value[0] not in "+-.0123456789":
            return value
        if value.lower() in _INFINITE:
            return _INFINITE[value.lower()]
        if _ODD_INT.fullmatch(value):
            raise self._error(mark, f"the number {value} is written in another base", "a decimal number, or quotes")
        if len(value) <= 40:
            if _INT.fullmatch(value):
                return int(value.replace("_", ""))
            if _FLOAT.fullmatch(value):
                return float(value.replace("_", ""))
        return value

    def _error(self, mark: Mark, message: str, expected: str | None = None) -> SpecError:
        return SpecError([Problem(self.file, *mark, message, expected)])
