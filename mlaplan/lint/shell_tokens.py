"""Shell text to tokens: words made of parts, and operators. Here-documents are taken out, and kept by their file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_TOKENS = 40_000
LONGEST = 1 << 16  # characters of a word, also after variables are filled in
_SIMPLE = re.compile(r"[\w./:=@%+,~^-]+(?=[ \t\n]|\Z)")  # what most words are: all of it as written
_PLAIN = re.compile(r"[^\s\\'\"$`;&|()<>{]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_REDIRECT = re.compile(r"\d*(?:<<<|<<-?|<>|>>|>&|<&|&>>?|>\||<|>)")
_PLACEHOLDER = re.compile(r"<[A-Za-z_][\w ./-]*>")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*|\d+):-([^${}`\\'\"]*)\}")
_OPERATOR = re.compile(r"&&|\|\||;;&?|;&|\|&|[;&|()\n]")


class Part(NamedTuple):
    """A piece of a word: text as written, or a variable (`name`), or something unknown (`why`)."""

    text: str
    quoted: bool
    name: str | None = None
    default: str | None = None
    why: str | None = None
    array: bool = False


class Token(NamedTuple):
    """An operator (`parts` empty) or a word."""

    start: int
    end: int
    text: str
    parts: tuple[Part, ...] = ()
    operator: bool = False


class _TooLong(Exception):
    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start


class Lexer:
    """Splits one text. `unread`: (offset, width, why); `files`: offset and text of what here-documents write."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.unread: list[tuple[int, int, str]] = []
        self.files: dict[str, tuple[int, str]] = {}

    def tokens(self) -> Iterator[Token]:
        """The tokens, up to where the text is too much to read."""
        try:
            yield from self._tokens()
        except _TooLong as found:
            why = f"a word of more than {LONGEST:,} characters, and what follows it"
            self.unread.append((found.start, 1, why))

    def _tokens(self) -> Iterator[Token]:
        text, at, count = self.text, 0, 0
        ends: list[str] = []
        target: str | None = None
        while at < len(text):
            count += 1
            if count > MOST_TOKENS:
                self.unread.append((at, 1, f"more than {MOST_TOKENS:,} words"))
                return
            c = text[at]
            if c in " \t\r\f\v":
                at += 1
            elif match := _SIMPLE.match(text, at):
                at = match.end()
                if at - match.start() > LONGEST:
                    raise _TooLong(match.start())
                yield Token(match.start(), at, match[0], (Part(match[0], False),))
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
        text = self.text
        while at < len(text) and text[at] in " \t":
            at += 1
        return at

    def _skip_here(self, at: int, ends: list[str], target: str | None) -> int:
        """Past the here-documents that begin at `at`; the last of them is what is written to `target`."""
        text = self.text
        for word in ends:
            start, stop = at, at
            while at < len(text):
                stop = text.find("\n", at)
                stop = len(text) if stop < 0 else stop
                line = text[at:stop]
                if "vllm serve" in line or "sglang" in line or "trtllm-serve" in line:
                    self.unread.append((at, max(len(line), 1), "a here-document"))
                at = stop + 1
                if line.strip() == word:
                    break
            if target is not None:
                body = text[start : max(stop - len(word), start)]
                self.files[target] = start, body.rstrip(" \t")
        ends.clear()
        return min(at, len(text))

    def _word(self, at: int) -> Token:
        text, start = self.text, at
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
        text = self.text
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
