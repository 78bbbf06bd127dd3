"""Text of a YAML or JSON file to plain data, with the line and column of every key and value.

YAML is read by the rules a person expects (the 1.2 core schema): `no` and `on` are text, `1e9` is a number,
`012` is refused. Everything that could make a small file costly or ambiguous is refused with a position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mlaplan.errors import Problem, SpecError, Unreadable
from mlaplan.specs.shipped import is_shipped

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 50_000  # after aliases are expanded

Path_ = tuple[str | int, ...]
Mark = tuple[int, int]  # line and column, both from 1


class Node(NamedTuple):
    """A parsed value: `value` is a scalar, a list of nodes, or a list of (key node, value node)."""

    kind: str  # scalar | list | map
    value: Any
    mark: Mark


@dataclass(slots=True)
class Document:
    """The data of one file and where each part of it stands."""

    file: str
    data: Any
    values: dict[Path_, Mark] = field(default_factory=dict)
    keys: dict[Path_, Mark] = field(default_factory=dict)
    overrides: dict[Path_, str] = field(default_factory=dict)  # path -> the `--set` text that put it there
    shipped: bool = False  # as it was when it was last validated for shipping

    def problem(
        self,
        path: Path_,
        message: str,
        *,
        expected: str | None = None,
        hint: str | None = None,
        at_key: bool = False,
        severity: str = "error",
    ) -> Problem:
        """A Problem at the value of `path` (or its key), or at the nearest part around it that exists."""
        for end in range(len(path), -1, -1):
            if (flag := self.overrides.get(path[:end])) is not None:
                return Problem(flag, None, None, message, expected, hint, severity)
        line, col = self.mark(path, at_key=at_key)
        return Problem(self.file, line, col, message, expected, hint, severity)

    def get(self, path: Path_) -> Any:
        """The value at `path`, or None where there is none."""
        here = self.data
        for step in path:
            if isinstance(here, dict):
                here = here.get(step)
            elif isinstance(here, list) and isinstance(step, int) and step < len(here):
                here = here[step]
            else:
                return None
        return here

    def mark(self, path: Path_, *, at_key: bool = False) -> Mark:
        if at_key and path in self.keys:
            return self.keys[path]
        for end in range(len(path), -1, -1):
            if path[:end] in self.values:
                return self.values[path[:end]]
        return (1, 1)


def read(path: str | Path) -> Document:
    """Reads a YAML file, or a JSON file where the name ends in .json."""
    raw = read_bytes(path)
    document = parse(raw, str(path))
    document.shipped = is_shipped(path, raw)
    return document


def read_bytes(path: str | Path) -> bytes:
    """The raw bytes of a file, with every way of failing told in words."""
    shown = str(path)
    path = Path(path)
    try:
        if path.is_dir():
            raise Unreadable([Problem(shown, None, None, "is a folder", "a YAML or JSON file")])
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable([Problem(shown, None, None, "no such file")]) from None
    except PermissionError:
        raise Unreadable([Problem(shown, None, None, "no permission to read this file")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable([Problem(shown, None, None, f"cannot be read: {reason}")]) from None
    if len(raw) > MAX_BYTES:
        raise _error(shown, None, "is larger than 1 MiB", "a spec of at most 1 MiB")
    return raw


def parse(raw: bytes | str, file: str) -> Document:
    """The document in `raw`; `file` is the name to show, and its suffix `.json` selects JSON."""
    text = decoded(raw, file)
    if not text.strip():
        raise _error(file, (1, 1), "the file is empty", "a mapping of keys to values")
    if file.endswith(".json"):
        from mlaplan.specs.json_nodes import nodes
    else:
        from mlaplan.specs.yaml_nodes import nodes
    root = nodes(text, file)
    document = Document(file, None)
    _Builder(document).build(root)
    if not isinstance(document.data, dict):
        if document.data is None:
            raise _error(file, (1, 1), "the file is empty", "a mapping of keys to values")
        kind = "a list" if isinstance(document.data, list) else "a single value"
        raise _error(file, root.mark, f"the document is {kind}", "a mapping of keys to values")
    return document


def decoded(raw: bytes | str, file: str) -> str:
    """The text of a file; SpecError with a position for what is no text."""
    if isinstance(raw, bytes):
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise _error(file, None, "is encoded in UTF-16", "UTF-8")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            before = raw[: error.start].decode("utf-8")
            mark = _position(before, len(before))
            raise _error(file, mark, f"byte 0x{raw[error.start]:02x} is not UTF-8", "UTF-8 text") from None
    else:
        text = raw
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_BYTES:
        raise _error(file, None, "is larger than 1 MiB", "a spec of at most 1 MiB")
    if found := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]", text):
        name = "NUL character" if found[0] == "\0" else f"control character U+{ord(found[0]):04X}"
        raise _error(file, _position(text, found.start()), f"the text holds a {name}", "plain text")
    return text


def _position(text: str, index: int) -> Mark:
    line_start = text.rfind("\n", 0, index) + 1
    return text.count("\n", 0, index) + 1, index - line_start + 1


def _error(file: str, mark: Mark | None, message: str, expected: str | None = None) -> SpecError:
    line, col = mark or (None, None)
    return SpecError([Problem(file, line, col, message, expected)])


class _Builder:
    """Turns nodes into data and records marks; all duplicate keys are reported together."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.count = 0

    def build(self, root: Node) -> None:
        self.document.data = self._data(root, (), 0)
        if self.problems:
            raise SpecError(self.problems)

    def _data(self, node: Node, path: Path_, depth: int) -> Any:
        file = self.document.file
        self.count += 1
        if self.count > MAX_NODES:
            raise _error(file, None, f"expands to more than {MAX_NODES} values", "a spec without nested aliases")
        if depth > MAX_DEPTH:
            raise _error(file, node.mark, f"values are nested more than {MAX_DEPTH} deep", "a flatter document")
        self.document.values[path] = node.mark
        if node.kind == "list":
            return [self._data(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        if node.kind == "map":
            return self._mapping(node, path, depth)
        return node.value

    def _mapping(self, node: Node, path: Path_, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if key_node.kind != "scalar" or key is None:
                self._complain(key_node.mark, "a key is not plain text", "a word followed by a colon")
                continue
            key = str(key).lower() if isinstance(key, bool) else str(key)
            here = (*path, key)
            if key in data:
                line = self.document.keys[here][0]
                self._complain(key_node.mark, f"duplicate key '{key}', first given on line {line}", "each key once")
                continue
            self.document.keys[here] = key_node.mark
            data[key] = self._data(value_node, here, depth + 1)
        return data

    def _complain(self, mark: Mark, message: str, expected: str) -> None:
        self.problems.append(Problem(self.document.file, *mark, message, expected))
