"""JSON text to nodes. json.loads keeps no positions and the last of two equal keys, hence this reader."""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Any

from mlaplan.errors import Problem, SpecError
from mlaplan.specs.source import MAX_DEPTH, MAX_NODES, Mark, Node

_SPACE = re.compile(r"[ \t\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_STRING = JSONDecoder()
_WORD = re.compile(r"-?[A-Za-z]+")


def nodes(text: str, file: str) -> Node:
    """The root node of `text`."""
    reader = _Reader(text, file)
    root = reader.value(0)
    reader.skip_space()
    if reader.at < len(text):
        raise reader.error("text after the end of the JSON value", "the end of the file")
    return root


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.at = 0
        self.line = 1
        self.line_start = 0
        self.counted = 0
        self.count = 0  # values

    def value(self, depth: int) -> Node:
        self.skip_space()
        mark = self.mark()
        self.count += 1
        if self.count > MAX_NODES:
            raise self.error(f"holds more than {MAX_NODES:,} values", "a smaller file")
        if depth > MAX_DEPTH:
            raise self.error(f"values are nested more than {MAX_DEPTH} deep", "a flatter document")
        first = self.text[self.at : self.at + 1]
        if first == "{":
            return Node("map", self.members(depth), mark)
        if first == "[":
            return Node("list", self.items(depth), mark)
        if first == '"':
            return Node("scalar", self.string(), mark)
        return Node("scalar", self.literal(), mark)

    def members(self, depth: int) -> list[tuple[Node, Node]]:
        pairs: list[tuple[Node, Node]] = []
        for _ in self.entries("}"):
            mark = self.mark()
            if self.text[self.at : self.at + 1] != '"':
                raise self.error(self.found(), 'a key in double quotes such as "hidden_size"')
            key = Node("scalar", self.string(), mark)
            self.skip_space()
            if self.text[self.at : self.at + 1] != ":":
                raise self.error(self.found(), "':' after the key")
            self.at += 1
            pairs.append((key, self.value(depth + 1)))
        return pairs

    def items(self, depth: int) -> list[Node]:
        return [self.value(depth + 1) for _ in self.entries("]")]

    def entries(self, close: str) -> Any:
        """Steps through `[a, b]` or `{..}`: yields at the start of each entry, checks what stands between."""
        self.at += 1
        self.skip_space()
        if self.text[self.at : self.at + 1] == close:
            self.at += 1
            return
        while True:
            yield
            self.skip_space()
            following = self.text[self.at : self.at + 1]
            if following == close:
                self.at += 1
                return
            if following != ",":
                raise self.error(self.found(), f"',' or '{close}'")
            self.at += 1
            self.skip_space()
            if self.text[self.at : self.at + 1] == close:
                raise self.error(f"a comma stands before '{close}'", "no comma after the last entry")

    def string(self) -> str:
        try:
            value, self.at = _STRING.raw_decode(self.text, self.at)
        except JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            if error.msg.startswith("Unterminated"):
                raise self.error("a text is not closed", "a closing double quote") from None
            raise self.error("a text holds a line break or an unknown escape", "a plain text in quotes") from None
        return str(value)

    def literal(self) -> Any:
        if match := _WORD.match(self.text, self.at):
            if match[0] not in _WORDS:
                raise self.error(f"'{match[0][:40]}' is not a JSON value", "true, false, null or a text in quotes")
            self.at = match.end()
            return _WORDS[match[0]]
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise self.error(self.found(), "a value")
        if len(match[0]) > 40:
            raise self.error("a number of more than 40 characters", "a shorter number")
        self.at = match.end()
        return float(match[0]) if match[1] or match[2] else int(match[0])

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None  # the pattern matches the empty text
        self.at = match.end()

    def mark(self) -> Mark:
        # positions are asked for in ascending order, so each newline is counted once
        newlines = self.text.count("\n", self.counted, self.at)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rfind("\n", self.counted, self.at) + 1
        self.counted = max(self.counted, self.at)
        return self.line, self.at - self.line_start + 1

    def found(self) -> str:
        if self.at >= len(self.text):
            return "the file ends too early"
        return f"unexpected '{self.text[self.at]}'"

    def error(self, message: str, expected: str) -> SpecError:
        return SpecError([Problem(self.file, *self.mark(), f"not valid JSON: {message}", expected)])
