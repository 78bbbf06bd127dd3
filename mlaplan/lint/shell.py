"""Shell text to commands: words with their positions. No shell is run.

Resolved are literal assignments that always hold where they are used, and `${X:-literal}`. Whatever else a shell
would fill in stays as written and is marked unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mlaplan.lint.text import Mapped, Word

MOST_TOKENS = 40_000
LONGEST = 1 << 16  # characters of a word, also after variables are filled in
MOST_WORDS = 4_000  # of one command, after variables are filled in

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_PLAIN = re.compile(r"[^\s\\'\"$`;&|()<>{]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_REDIRECT = re.compile(r"\d*(?:<<<|<<-?|<>|>>|>&|<&|&>>?|>\||<|>)")
_PLACEHOLDER = re.compile(r"<[A-Za-z_][\w ./-]*>")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*|\d+):-([^${}`\\'\"]*)\}")
_OPERATOR = re.compile(r"&&|\|\||;;&?|;&|\|&|[;&|()\n]")
_OPENS = {"if", "for", "while", "until", "case", "select", "{"}
_CLOSES = {"fi", "done", "esac", "}"}
_SKIPPED = {"then", "do", "else", "elif", "!", "time", "in"}
_EXPORTS = {"export", "local", "declare", "typeset", "readonly"}
_FORGET = {"source", ".", "eval"}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: text as written, or a variable (`name`), or something unknown (`why`)."""

    text: str
    quoted: bool
    name: str | None = None
    default: str | None = None
    why: str | None = None
    array: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """An operator (`parts` empty) or a word."""

    start: int
    end: int
    text: str
    parts: tuple[Part, ...] = ()
    operator: bool = False


@dataclass(slots=True)
class Command:
    """A simple command: its words, and the variables that are set for it."""

    words: list[Word]
    env: dict[str, Word]


@dataclass(slots=True)
class Script:
    """The commands of a text, and what could not be read, as (word, why)."""

    commands: list[Command] = field(default_factory=list)
    unread: list[tuple[Word, str]] = field(default_factory=list)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)  # what here-documents write: first line, text


def read_shell(mapped: Mapped, file: str, env: dict[str, Word] | None = None) -> Script:
    """The commands in a shell text. `env`: variables known from around it."""
    return _Reader(mapped, file, dict(env or {})).read()


class _TooLong(Exception):
    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start


class _Reader:
    def __init__(self, mapped: Mapped, file: str, env: dict[str, Word]) -> None:
        self.mapped, self.file = mapped, file
        self.variables: dict[str, list[Word] | None] = {name: [word] for name, word in env.items()}
        self.exported = dict(env)
        self.depth = 0
        self.script = Script()

    def read(self) -> Script:
        words: list[Token] = []
        in_array = False
        for token in self._all_tokens():
            if in_array:
                in_array = not (token.operator and token.text == ")")
                if in_array and not token.operator:
                    words.append(token)
                elif not in_array:
                    self._array(words)
                    words = []
            elif not token.operator:
                words.append(token)
            elif token.text == "(" and len(words) == 1 and re.fullmatch(r"[A-Za-z_]\w*\+?=", words[0].text):
                in_array = True
            else:
                self._command(words)
                words = []
        self._command(words)
        return self.script

    def _array(self, tokens: list[Token]) -> None:
        """`NAME=(word ...)`: a literal array is a list of words."""
        match = _ASSIGN.fullmatch(tokens[0].text)
        if match is None:
            return
        name, more = match[1], bool(match[2])
        found = [word for token in tokens[1:] for word in self._expanded(token)]
        old = self.variables.get(name) if more else []
        known = not self.depth and old is not None and len(found) <= MOST_WORDS
        self.variables[name] = [*(old or []), *found] if known else None

    # ---- words of a text ----

    def _all_tokens(self) -> Iterator[Token]:
        try:
            yield from self._tokens()
        except _TooLong as found:
            self._unread(found.start, 1, f"a word of more than {LONGEST:,} characters, and what follows it")

    def _tokens(self) -> Iterator[Token]:
        text, at, count = self.mapped.text, 0, 0
        ends: list[str] = []
        target: str | None = None
        while at < len(text):
            count += 1
            if count > MOST_TOKENS:
                self._unread(at, 1, f"more than {MOST_TOKENS:,} words")
                return
            c = text[at]
            if c in " \t\r\f\v":
                at += 1
            elif c == "\\" and text[at + 1 : at + 2] == "\n":
                at += 2
            elif c == "#":
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            elif c == "\n" and ends:
                yield Token(at, at + 1, "\n", operator=True)
                at = self._skip_here(at + 1, ends, target)
                target = None
            elif match := _PLACEHOLDER.match(text, at):
                yield Token(at, match.end(), match[0], (Part(match[0], False, why=match[0]),))
                at = match.end()
            elif match := _REDIRECT.match(text, at):
                token = self._word(self._blank(match.end()))
                written = "".join(part.text for part in token.parts)
                if match[0] in ("<<", "<<-"):
                    ends.append(written)
                elif match[0] in (">", ">|"):
                    target = written
                at = max(token.end, match.end())
            elif match := _OPERATOR.match(text, at):
                target = None if not ends else target
                yield Token(at, match.end(), match[0], operator=True)
                at = match.end()
            else:
                token = self._word(at)
                at = max(token.end, at + 1)
                yield token

    def _blank(self, at: int) -> int:
        text = self.mapped.text
        while at < len(text) and text[at] in " \t":
            at += 1
        return at

    def _skip_here(self, at: int, ends: list[str], target: str | None) -> int:
        """Past the here-documents that begin at `at`; the last of them is what is written to `target`."""
        text = self.mapped.text
        for word in ends:
            start, stop = at, at
            while at < len(text):
                stop = text.find("\n", at)
                stop = len(text) if stop < 0 else stop
                line = text[at:stop]
                if "vllm serve" in line or "sglang" in line or "trtllm-serve" in line:
                    self._unread(at, max(len(line), 1), "a here-document")
                at = stop + 1
                if line.strip() == word:
                    break
            if target is not None:
                body = text[start : max(stop - len(word), start)]
                self.script.files[target] = self.mapped.at(start)[0], body.rstrip(" \t")
        ends.clear()
        return min(at, len(text))

    def _word(self, at: int) -> Token:
        text, start = self.mapped.text, at
        parts: list[Part] = []
        quoted = False
        while at < len(text):
            if at - start > LONGEST:
                raise _TooLong(start)
            c = text[at]
            if quoted:
                if c == '"':
                    quoted = False
                    at += 1
                    continue
                if c not in '\\$`"{':
                    end = at + 1
                    while end < len(text) and text[end] not in '\\$`"{':
                        end += 1
                    parts.append(Part(text[at:end], True))
                    at = end
                    continue
            elif c == "'":
                end = text.find("'", at + 1)
                end = len(text) if end < 0 else end
                parts.append(Part(text[at + 1 : end], True))
                at = end + 1
                continue
            elif match := _PLAIN.match(text, at):
                parts.append(Part(match[0], False))
                at = match.end()
                continue
            if c == '"':
                quoted = True
                parts.append(Part("", True))
                at += 1
            elif c == "\\":
                follows = text[at + 1 : at + 2]
                if follows != "\n":
                    keep = quoted and follows not in '"\\$`'
                    parts.append(Part(f"\\{follows}" if keep else follows, True))
                elif not quoted:
                    at += 2
                    break
                at += 2
            elif c == "$":
                part, at = self._dollar(at, quoted)
                parts.append(part)
            elif c == "`":
                end = text.find("`", at + 1)
                end = len(text) if end < 0 else end + 1
                parts.append(Part(text[at:end], quoted, why=text[at:end]))
                at = end
            elif c == "{":
                if text.startswith("{{", at):
                    end = text.find("}}", at)
                    end = len(text) if end < 0 else end + 2
                    parts.append(Part(text[at:end], quoted, why=text[at:end]))
                    at = end
                else:
                    parts.append(Part("{", quoted))
                    at += 1
            else:
                break
        return Token(start, at, text[start:at], tuple(parts))

    def _dollar(self, at: int, quoted: bool) -> tuple[Part, int]:
        text = self.mapped.text
        if text.startswith("$(", at):
            end, depth = at + 2, 1
            while end < len(text) and depth:
                depth += (text[end] == "(") - (text[end] == ")")
                end += 1
            raw = text[at:end]
            return Part(raw, quoted, why=raw), end
        if match := _DEFAULT.match(text, at):
            return Part(match[0], quoted, name=match[1], default=match[2]), match.end()
        if text.startswith("${", at):
            end = text.find("}", at)
            end = len(text) if end < 0 else end + 1
            raw = text[at:end]
            if re.fullmatch(r"\$\{[A-Za-z_]\w*\}", raw):
                return Part(raw, quoted, name=raw[2:-1]), end
            if re.fullmatch(r"\$\{[A-Za-z_]\w*\[[@*]\]\}", raw):
                return Part(raw, quoted, name=raw[2:-4], array=True), end
            return Part(raw, quoted, why=raw), end
        if match := _NAME.match(text, at + 1):
            raw = text[at : match.end()]
            named = match[0][0].isalpha() or match[0][0] == "_"
            return (
                Part(raw, quoted, name=match[0] if named else None, why=None if named else raw),
                match.end(),
            )
        return Part("$", quoted), at + 1

    # ---- commands ----

    def _command(self, tokens: list[Token]) -> None:
        while tokens and tokens[0].text in _OPENS | _CLOSES | _SKIPPED:
            word = tokens[0].text
            self.depth += (word in _OPENS) - (word in _CLOSES)
            if word in ("for", "select", "case"):
                if len(tokens) > 1:
                    self.variables[tokens[1].text] = None
                return
            tokens = tokens[1:]
        env: dict[str, Word] = {}
        while tokens and (match := _ASSIGN.match(tokens[0].text)) and tokens[0].parts:
            words = self._assigned(tokens[0], match.end())
            if len(tokens) == 1:
                self._set(match[1], words, more=bool(match[2]))
            elif words is not None and len(words) == 1:
                env[match[1]] = words[0]
            tokens = tokens[1:]
        if not tokens:
            return
        if tokens[0].text in _EXPORTS:
            self._export(tokens[1:])
            return
        if tokens[0].text in _FORGET:
            self.variables = dict.fromkeys(self.variables)
            return
        if tokens[0].text in ("read", "unset"):
            for token in tokens[1:]:
                self.variables[token.text] = None
            return
        words = [word for token in tokens for word in self._expanded(token)]
        if len(words) > MOST_WORDS:
            self._unread(tokens[0].start, 1, f"a command of more than {MOST_WORDS:,} words")
            return
        self.script.commands.append(Command(words, {**self.exported, **env}))

    def _export(self, tokens: list[Token]) -> None:
        for token in tokens:
            match = _ASSIGN.match(token.text)
            if match:
                self._set(match[1], self._assigned(token, match.end()), more=bool(match[2]))
            name = match[1] if match else token.text
            found = self.variables.get(name)
            if found is not None and len(found) == 1:
                self.exported[name] = found[0]

    def _set(self, name: str, words: list[Word] | None, *, more: bool) -> None:
        """One literal value that holds from here on, or nothing known: inside a branch or a loop it may not."""
        if self.depth or more or words is None or any(word.unknown for word in words):
            self.variables[name] = None
            self.exported.pop(name, None)
        else:
            self.variables[name] = words
            if name in self.exported:
                self.exported[name] = words[0] if words else self.exported[name]

    def _assigned(self, token: Token, skip: int) -> list[Word] | None:
        """The value after `NAME=` as one word; its own words where the shell would split it."""
        first, *rest = token.parts
        parts = (Part(first.text[skip:], first.quoted), *rest)
        found = self._expanded(Token(token.start + skip, token.end, token.text[skip:], parts), split=False)
        return found[:1] if found else [self._made("", token.start + skip, 1)]

    def _expanded(self, token: Token, split: bool = True) -> list[Word]:
        """The words that a token becomes."""
        parts = token.parts
        if split and len([p for p in parts if p.text]) == 1:
            only = next(p for p in parts if p.text)
            value = self.variables.get(only.name) if only.name else None
            if only.array and value is not None:
                return list(value)
            if value is not None and len(value) == 1 and not only.quoted:
                return self._split(value[0], token)
        text, unknown = "", None
        for part in parts:
            piece, why = self._piece(part)
            text += piece
            unknown = unknown or why
            if len(text) > LONGEST:
                return [self._made("", token.start, token.end - token.start, "a very long value")]
        return [self._made(text, token.start, token.end - token.start, unknown)]

    def _piece(self, part: Part) -> tuple[str, str | None]:
        if part.name is None:
            return part.text, part.why
        value = self.variables.get(part.name)
        if value is not None and len(value) == 1:
            return value[0].text, value[0].unknown
        if part.default is not None and part.name not in self.variables:
            return part.default, None
        return part.text, part.text

    def _split(self, value: Word, token: Token) -> list[Word]:
        """An unquoted variable: its value falls apart at blanks, and each piece stands where it was assigned."""
        pieces = list(re.finditer(r"\S+", value.text))
        if len(pieces) <= 1:
            text = pieces[0][0] if pieces else ""
            return [self._made(text, token.start, token.end - token.start, value.unknown)] if text else []
        return [
            Word(p[0], value.file, value.line, value.col + p.start() + (value.width > len(value.text)), len(p[0]))
            for p in pieces
        ]

    def _made(self, text: str, start: int, width: int, unknown: str | None = None) -> Word:
        line, col = self.mapped.at(start)
        return Word(text, self.file, line, col, max(width, 1), unknown)

    def _unread(self, start: int, width: int, why: str) -> None:
        self.script.unread.append((self._made("", start, width), why))
