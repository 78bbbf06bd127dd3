"""Command-line flags of an engine at one version, and reading a command line by argparse's rules.

The tables in `profiles/flags/*.yaml` name every flag: what it takes, its other spellings, its choices, the
versions it exists in. Reading follows argparse: `--flag=value`, unique prefixes, repeated flags (the last one
counts), `_` for `-` and dotted keys where the engine allows them. Nothing is expanded or run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from mlaplan.errors import MlaplanError, did_you_mean

FOLDER = Path(__file__).resolve().parent / "profiles" / "flags"
KINDS = ("int", "size", "float", "str", "json", "list", "optional", "bool", "switch")
MOST_COMPLAINTS = 50  # of one command line: what has more is for another engine, or no command line at all
MOST_HINTS = 4  # each looks at all names
MOST_DEPTH = 32  # of a JSON value
_BRACKET = re.compile(r"[\[\]{}]")
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")  # argparse reads these as values


class Flag(NamedTuple):
    """One flag. `kind`: int, size (1k), float, str, json, list (1 or more values), optional (0 or 1), bool
    (has a --no- form), switch."""

    name: str
    kind: str
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    glued: bool = False  # its short form may run into the value: -O3


class Complaint(NamedTuple):
    """What is wrong with one word of a command line, and which word."""

    token: int
    message: str
    expected: str | None = None
    hint: str | None = None

    def text(self) -> str:
        """`message; expected ...; did you mean ...`"""
        expected = f"expected {self.expected}" if self.expected else None
        return "; ".join(part for part in (self.message, expected, self.hint) if part)


class Given(NamedTuple):
    """One flag as it stands on the command line: the table's name, the value, and the words it came from."""

    name: str
    value: Any
    token: int
    spelled: str


@dataclass(slots=True)
class CommandLine:
    """A command line read against a table. `values` has the last value of each flag, by the table's name."""

    table: FlagTable
    values: dict[str, Any] = field(default_factory=dict)
    given: list[Given] = field(default_factory=list)
    positionals: list[tuple[int, str]] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    stopped: int | None = None  # the word where reading ended for too many complaints

    def get(self, spelled: str, default: Any = None) -> Any:
        """The value of a flag by any of its spellings."""
        name = self.table.name(spelled)
        return self.values.get(name, default) if name else default


class FlagTable(NamedTuple):
    """Every flag of an engine at one version, by every spelling."""

    engine: str
    version: str
    programs: tuple[tuple[str, ...], ...]
    underscores: bool
    dotted: bool
    sizes: dict[str, int]
    spellings: dict[str, Flag]
    lifetimes: dict[str, tuple[str, str]]  # name -> first and last version it exists in, of all that are known
    prefixes: bool = True  # any unique beginning of a name is taken for it
    settings: frozenset[str] = frozenset()  # keys of the engine's options file, where it has one

    def name(self, spelled: str) -> str | None:
        """The table's name of a flag by any spelling, or None where this version lacks it."""
        flag = self.spellings.get(spelled)
        return flag.name if flag else None

    def flag(self, name: str) -> Flag:
        """The flag, or an error that says when it exists."""
        if name in self.spellings:
            return self.spellings[name]
        if name in self.lifetimes:
            span = _span(self.lifetimes[name])
            raise MlaplanError(f"{self.engine} {self.version} has no flag {name}: it exists {span}")
        hint = did_you_mean(name, self.spellings)
        raise MlaplanError(f"{self.engine} {self.version} has no flag {name}" + (f"; {hint}" if hint else ""))


@lru_cache(maxsize=8)
def flag_data(engine: str) -> dict[str, Any]:
    """The file of an engine's flags."""
    from mlaplan.specs.source import read

    found: dict[str, Any] = read(FOLDER / f"{engine}.yaml").data
    return found


def flag_versions(engine: str) -> tuple[str, ...]:
    """Versions whose flags are known, oldest first."""
    return tuple(flag_data(engine)["versions"])


@lru_cache(maxsize=16)
def load_flags(engine: str, version: str) -> FlagTable:
    """The table of an engine at a version."""
    data = flag_data(engine)
    if "of" in data:
        return _plugin_flags(data, version)
    order = {known: i for i, known in enumerate(data["versions"])}
    rows = [(row["flag"], row) for row in data["flags"]]
    rows += [(name, group) for group in data["others"] for name in group["names"]]
    spellings: dict[str, Flag] = {}
    lifetimes: dict[str, tuple[str, str]] = {}
    for name, row in rows:
        first, last = row.get("since", data["versions"][0]), row.get("until", data["versions"][-1])
        for spelled in (name, *row.get("also", ())):
            known = lifetimes.get(spelled, (first, last))
            lifetimes[spelled] = min(known[0], first, key=order.get), max(known[1], last, key=order.get)  # type: ignore[arg-type]
        if order[first] <= order[version] <= order[last]:
            flag = Flag(
                name,
                row["is"],
                tuple(row.get("also", ())),
                tuple(str(c) for c in row.get("choices", ())),
                bool(row.get("glued")),
            )
            for spelled in _spellings(flag):
                spellings[spelled] = flag
    return FlagTable(
        engine=engine,
        version=version,
        programs=tuple(tuple(text.split()) for text in data["programs"]),
        underscores=data["underscores"],
        dotted=data["dotted"],
        sizes=data["sizes"],
        spellings=spellings,
        lifetimes=lifetimes,
        prefixes=data.get("prefixes", True),
        settings=frozenset(key for row in data.get("settings", ()) for key in row),
    )


def _plugin_flags(data: dict[str, Any], version: str) -> FlagTable:
    """The table of a plugin: of the engine it extends, at a version near to this one, with what differs."""
    row = data["versions"][version]
    base = load_flags(data["of"], row["like"])
    gone = {word for name in row.get("without", ()) for word in (name, f"--no-{name[2:]}")}
    spellings = {word: flag for word, flag in base.spellings.items() if word not in gone}
    for like, names in row.get("also", {}).items():
        other = load_flags(data["of"], like)
        for name in names:
            spellings |= dict.fromkeys(_spellings(other.spellings[name]), other.spellings[name])
    return base._replace(engine=data["engine"], version=version, spellings=spellings)


def _spellings(flag: Flag) -> list[str]:
    words = [flag.name, *flag.also]
    if flag.kind == "bool":
        words += [f"--no-{word[2:]}" for word in words if word.startswith("--")]
    return words


def read_flags(table: FlagTable, argv: Sequence[str]) -> CommandLine:
    """The flags of a command line without its program. What cannot be read is a complaint."""
    out = CommandLine(table)
    words = list(argv)
    at = 0
    only_positionals = False
    while at < len(words):
        if len(out.complaints) > MOST_COMPLAINTS:
            out.stopped = at
            break
        word = words[at]
        if word == "--" and not only_positionals:
            only_positionals = True
        elif only_positionals or not _is_option(table, word):
            out.positionals.append((at, word))
        else:
            at += _option(table, words, at, out)
            continue
        at += 1
    return out


def _is_option(table: FlagTable, word: str) -> bool:
    return word.startswith("-") and word != "-" and not (_NUMBER.match(word) and word not in table.spellings)


def _option(table: FlagTable, words: list[str], at: int, out: CommandLine) -> int:
    """Reads the flag at `at` and its values; returns how many words it took."""
    spelled, equals, attached = words[at].partition("=")
    key = ""
    if table.dotted and "." in spelled:
        spelled, _, key = spelled.partition(".")
    flag, negated, complaint = _resolve(table, spelled, hints=len(out.complaints) < MOST_HINTS)
    glued = ""
    if flag is None and not spelled.startswith("--"):
        flag, glued = _glued(table, spelled)
        complaint = None if flag else complaint
    if flag is None:
        out.complaints.append(Complaint(at, *(complaint or ("",))))
        # what follows is most likely its value, and no positional
        return 2 if not equals and at + 1 < len(words) and not _is_option(table, words[at + 1]) else 1
    values = [attached] if equals else [glued] if glued else []
    taken = 1
    if not values and flag.kind not in ("switch", "bool"):
        most = len(words) if flag.kind == "list" else 1
        while taken <= most and at + taken < len(words) and not _is_option(table, words[at + taken]):
            values.append(words[at + taken])
            taken += 1
    if key.count(".") > MOST_DEPTH:
        out.complaints.append(Complaint(at, f"{flag.name} is given a key of more than {MOST_DEPTH} parts"))
        return taken
    if key and values:
        value = _loads(values[0])
    else:
        value = _value(table, flag, values, negated, bool(equals), at, out)
    if value is not _BAD:
        _store(out, flag, value, key, at, words[at])
    return taken


def _resolve(
    table: FlagTable, spelled: str, *, hints: bool = True
) -> tuple[Flag | None, bool, tuple[str, str | None, str | None] | None]:
    """The flag that a spelling means, whether it is its --no- form, and else what is wrong."""
    word = spelled
    if table.underscores and word.startswith("--"):
        word = "--" + word[2:].replace("_", "-")
    if word in table.spellings:
        flag = table.spellings[word]
        return flag, _negates(flag, word), None
    shortens = table.prefixes and word.startswith("--") and word != "--"
    found = sorted(s for s in table.spellings if s.startswith(word)) if shortens else []
    if len(found) == 1:
        flag = table.spellings[found[0]]
        return flag, _negates(flag, found[0]), None
    message = f"{table.engine} {table.version} has no flag {spelled}"
    if word in table.lifetimes:
        message += f": it exists {_span(table.lifetimes[word])}"
    if found:
        message += ", and it is short for more than one"
        return (
            None,
            False,
            (message, f"one of {', '.join(found[:4])}{', ...' if len(found) > 4 else ''}", None),
        )
    hint = did_you_mean(word, table.spellings) if hints and word not in table.lifetimes else None
    return None, False, (message, None, hint)


def _span(lifetime: tuple[str, str]) -> str:
    first, last = lifetime
    return f"in {first} only" if first == last else f"from {first} to {last}"


def _negates(flag: Flag, spelled: str) -> bool:
    return flag.kind == "bool" and spelled not in (flag.name, *flag.also)


def _glued(table: FlagTable, spelled: str) -> tuple[Flag | None, str]:
    for word, flag in table.spellings.items():
        if flag.glued and not word.startswith("--") and spelled.startswith(word) and len(spelled) > len(word):
            return flag, spelled[len(word) :]
    return None, ""


_BAD = object()


def _value(
    table: FlagTable, flag: Flag, values: list[str], negated: bool, equals: bool, at: int, out: CommandLine
) -> Any:
    if flag.kind in ("switch", "bool"):
        if equals:
            out.complaints.append(Complaint(at, f"{flag.name} takes no value"))
            return _BAD
        return not negated
    if not values:
        if flag.kind == "optional":
            return True
        out.complaints.append(Complaint(at, f"{flag.name} has no value", _wanted(flag)))
        return _BAD
    if flag.kind == "list":
        return [_scalar(v) for v in values]
    text = values[0]
    try:
        value = convert(flag.kind, text, table.sizes)
    except ValueError:
        if "$" in text or "{{" in text:
            return text  # a variable or a template: its value is not known here
        out.complaints.append(Complaint(at, f"{flag.name} {text!r}", _wanted(flag)))
        return _BAD
    if flag.choices and str(value) not in flag.choices and "$" not in text and "{{" not in text:
        hint = did_you_mean(str(value), flag.choices)
        message = f"{flag.name} {text} is none of the choices in {table.engine} {table.version}"
        out.complaints.append(Complaint(at, message, f"one of {', '.join(flag.choices)}", hint))
        return _BAD
    return value


def convert(kind: str, text: str, sizes: dict[str, int]) -> Any:
    """The value of a flag's text; ValueError if it is not of the kind."""
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "json":
        return _json(text)
    if kind == "size":
        if text.lower() == "auto":
            return -1
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]+)", text.strip())
        if match is None:
            return int(text)
        number, factor = match[1], sizes.get(match[2])
        if factor is None or ("." in number and factor % 1000):
            raise ValueError(text)
        return int(float(number) * factor) if "." in number else int(number) * factor
    return text


def _scalar(text: str) -> Any:
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else text


def _wanted(flag: Flag) -> str:
    kinds = {
        "int": "a whole number",
        "size": "a whole number such as 4096 or 4k",
        "float": "a number",
        "json": "a JSON value",
        "list": "one or more values",
    }
    return f"one of {', '.join(flag.choices)}" if flag.choices else kinds.get(flag.kind, "a value")


def _store(out: CommandLine, flag: Flag, value: Any, key: str, at: int, spelled: str) -> None:
    if key:
        nested = value
        for part in reversed(key.split(".")):
            nested = {part: nested}
        old = out.values.get(flag.name)
        value = _merged(old, nested) if isinstance(old, dict) else nested
    out.values[flag.name] = value
    out.given.append(Given(flag.name, value, at, spelled))


def _json(text: str) -> Any:
    """A JSON value; ValueError if it is none, or nested too deep to be one that an engine takes."""
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MOST_DEPTH:
            raise ValueError(text)
    import json

    return json.loads(text)


def _loads(text: str) -> Any:
    try:
        return _json(text)
    except ValueError:
        return text


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    out = dict(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out
