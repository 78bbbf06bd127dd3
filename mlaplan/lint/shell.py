"""Shell text to commands: words with their positions. No shell is run.

Resolved are literal assignments that always hold where they are used, and `${X:-literal}`. Whatever else a shell
would fill in stays as written and is marked unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mlaplan.lint.shell_tokens import LONGEST, MOST_TOKENS, Lexer, Part, Token
from mlaplan.lint.text import Mapped, Word

MOST_WORDS = 4_000  # of one command, after variables are filled in
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_OPENS = {"if", "for", "while", "until", "case", "select", "{"}
_CLOSES = {"fi", "done", "esac", "}"}
_SKIPPED = {"then", "do", "else", "elif", "!", "time", "in"}
_EXPORTS = {"export", "local", "declare", "typeset", "readonly"}
_KEYWORDS = _OPENS | _CLOSES | _SKIPPED
_FORGET = {"source", ".", "eval"}


Exports = list[tuple[str, Word | None]]  # each variable as it is set, None as it is no longer known


@dataclass(slots=True)
class Command:
    """A simple command: its words, what was exported before it, and the variables that are set for it alone."""

    words: list[Word]
    exports: Exports
    before: int
    own: dict[str, Word]

    @property
    def env(self) -> dict[str, Word]:
        """The variables it runs with. Few commands are launches, so it is made where it is asked for."""
        found: dict[str, Word] = {}
        for name, word in self.exports[: self.before]:
            if word is None:
                found.pop(name, None)
            else:
                found[name] = word
        return found | self.own


@dataclass(slots=True)
class Script:
    """The commands of a text, and what could not be read, as (word, why)."""

    commands: list[Command] = field(default_factory=list)
    unread: list[tuple[Word, str]] = field(default_factory=list)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)  # what here-documents write: first line, text


def read_shell(mapped: Mapped, file: str, env: dict[str, Word] | None = None) -> Script:
    """The commands in a shell text. `env`: variables known from around it."""
    return _Reader(mapped, file, dict(env or {})).read()


class _Reader:
    def __init__(self, mapped: Mapped, file: str, env: dict[str, Word]) -> None:
        self.mapped, self.file = mapped, file
        self.variables = {name: [word] for name, word in env.items()}  # whose value is known
        self.assigned = set(env)  # known or not
        self.exports: Exports = list(env.items())
        self.exported = set(env)
        self.count = 0  # words so far
        self.depth = 0
        self.script = Script()

    def read(self) -> Script:
        words: list[Token] = []
        in_array = False
        lexer = Lexer(self.mapped.text)
        for token in lexer.tokens():
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
        for start, width, why in lexer.unread:
            self._unread(start, width, why)
        self.script.files = {name: (self.mapped.at(at)[0], text) for name, (at, text) in lexer.files.items()}
        return self.script

    def _array(self, tokens: list[Token]) -> None:
        """`NAME=(word ...)`: a literal array is a list of words."""
        match = _ASSIGN.fullmatch(tokens[0].text)
        if match is None:
            return
        name, more = match[1], bool(match[2])
        found = [word for token in tokens[1:] for word in self._expanded(token)]
        old = self.variables.get(name) if more else []
        self._forget(name)
        if old is None or len(old) + len(found) > MOST_WORDS or (self.depth and not more):
            return
        if self.depth:  # in a branch: what was there stays, and more may follow
            first = tokens[0]
            found = [self._made(f"${name}", first.start, first.end - first.start, f"{name} after a branch")]
        self.variables[name] = [*old, *found]

    # ---- commands ----

    def _command(self, tokens: list[Token]) -> None:
        at = 0
        while at < len(tokens) and tokens[at].text in _KEYWORDS:
            word = tokens[at].text
            self.depth += (word in _OPENS) - (word in _CLOSES)
            if word in ("for", "select", "case"):
                if at + 1 < len(tokens):
                    self._forget(tokens[at + 1].text)
                return
            at += 1
        env: dict[str, Word] = {}
        while at < len(tokens) and (match := _ASSIGN.match(tokens[at].text)) and tokens[at].parts:
            assigned = self._assigned(tokens[at], match.end())
            if at + 1 == len(tokens):
                self._set(match[1], assigned, more=bool(match[2]))
            elif assigned is not None and len(assigned) == 1:
                env[match[1]] = assigned[0]
            at += 1
        if at == len(tokens):
            return
        first = tokens[at].text
        if first in _EXPORTS:
            self._export(tokens[at + 1 :])
        elif first in _FORGET:
            self.variables.clear()
        elif first in ("read", "unset"):
            for token in tokens[at + 1 :]:
                self._forget(token.text)
        else:
            self._run(tokens[at:], env)

    def _run(self, tokens: list[Token], env: dict[str, Word]) -> None:
        words: list[Word] = []
        for token in tokens:
            words += self._expanded(token)
            if len(words) > MOST_WORDS or self.count + len(words) > MOST_TOKENS:
                what = f"a command of more than {MOST_WORDS:,} words"
                if len(words) <= MOST_WORDS:
                    what = f"more than {MOST_TOKENS:,} words after variables are filled in"
                if self.count <= MOST_TOKENS:
                    self._unread(tokens[0].start, 1, what)
                self.count += len(words)
                return
        self.count += len(words)
        self.script.commands.append(Command(words, self.exports, len(self.exports), env))

    def _forget(self, name: str) -> None:
        """It is assigned, and nothing is known of its value."""
        self.assigned.add(name)
        self.variables.pop(name, None)

    def _export(self, tokens: list[Token]) -> None:
        for token in tokens:
            match = _ASSIGN.match(token.text)
            if match:
                self._set(match[1], self._assigned(token, match.end()), more=bool(match[2]))
            name = match[1] if match else token.text
            found = self.variables.get(name)
            if found is not None and len(found) == 1:
                self.exported.add(name)
                self.exports.append((name, found[0]))

    def _set(self, name: str, words: list[Word] | None, *, more: bool) -> None:
        """One literal value that holds from here on, or nothing known: inside a branch or a loop it may not."""
        self._forget(name)
        if self.depth or more or words is None or any(word.unknown for word in words):
            if name in self.exported:
                self.exported.remove(name)
                self.exports.append((name, None))
        else:
            self.variables[name] = words
            if name in self.exported and words:
                self.exports.append((name, words[0]))

    def _assigned(self, token: Token, skip: int) -> list[Word] | None:
        """The value after `NAME=` as one word; its own words where the shell would split it."""
        first, *rest = token.parts
        parts = (Part(first.text[skip:], first.quoted), *rest)
        found = self._expanded(Token(token.start + skip, token.end, token.text[skip:], parts), split=False)
        return found[:1] if found else [self._made("", token.start + skip, 1)]

    def _expanded(self, token: Token, split: bool = True) -> list[Word]:
        """The words that a token becomes."""
        parts = token.parts
        if len(parts) == 1 and parts[0].name is None and parts[0].why is None:
            return [self._made(parts[0].text, token.start, token.end - token.start)]
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
        if part.default is not None and part.name not in self.assigned:
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
