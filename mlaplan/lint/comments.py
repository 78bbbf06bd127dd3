"""What comments say to the linter: the context of a deployment, and findings to ignore.

# mlaplan: engine=vllm@0.33.0 chip=h200-sxm devices=8 model=deepseek-v3
# mlaplan: ignore[MLA503, enforce-eager]      on the line itself, or alone on the line above
# vLLM 0.33.0                                 as `recommend --emit` heads its commands
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from mlaplan.lint.text import Source, Word

MOST_IGNORES = 1_000  # of one file
MOST_ODD = 20
KEYS = ("engine", "version", "chip", "devices", "node", "model")
_OURS = re.compile(r"#\s*mlaplan:\s*(.*)$")
_IGNORE = re.compile(r"ignore\[([^\]]*)\]")
_PAIR = re.compile(r"([A-Za-z_]+)=(\S+)")
_HEADING = re.compile(r"^\s*# (vLLM|SGLang|TensorRT-LLM|vLLM-Ascend) (\d+\.\d+\.\d+)\b")
_TITLES = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "trtllm", "vLLM-Ascend": "vllm_ascend"}


@dataclass(slots=True)
class Ignore:
    """One code or slug to ignore on some lines, and whether it has ignored anything."""

    name: str
    word: Word
    lines: tuple[int, ...]
    used: bool = False


@dataclass(slots=True)
class Comments:
    """All that a file's comments say."""

    hints: dict[str, Word] = field(default_factory=dict)
    ignores: list[Ignore] = field(default_factory=list)
    odd: list[tuple[Word, str]] = field(default_factory=list)


def read_comments(source: Source) -> Comments:
    """The comments of a file that concern the linter. The first of equal hints counts."""
    out = Comments()
    if "#" not in source.text or not ("mlaplan:" in source.text or _any_heading(source.text)):
        return out
    for number, line in enumerate(source.lines, 1):
        if "#" not in line or len(out.odd) > MOST_ODD:
            continue
        if match := _HEADING.match(line):
            word = Word(match[2], source.name, number, match.start(2) + 1, len(match[2]))
            out.hints.setdefault("version", word)
            out.hints.setdefault("engine", Word(_TITLES[match[1]], source.name, number, match.start(1) + 1))
        if match := _OURS.search(line):
            _ours(out, source, number, line, match)
    return out


def _any_heading(text: str) -> bool:
    return any(f"# {title} " in text for title in _TITLES)


def _ours(out: Comments, source: Source, number: int, line: str, match: re.Match[str]) -> None:
    said = False
    for ignore in _IGNORE.finditer(line, match.start()):
        said = True
        alone = not line[: match.start()].strip()
        lines = (number, number + 1) if alone else (number,)
        for name in re.finditer(r"[^\s,]+", ignore[1]):
            col = ignore.start(1) + name.start() + 1
            if len(out.ignores) == MOST_IGNORES:
                out.odd.append((Word("", source.name, number, col), f"more than {MOST_IGNORES:,} ignores in one file"))
                return
            out.ignores.append(Ignore(name[0], Word(name[0], source.name, number, col, len(name[0])), lines))
    for pair in _PAIR.finditer(match[1]):
        said = True
        start = match.start(1) + pair.start()
        word = Word(pair[2], source.name, number, start + len(pair[1]) + 2, len(pair[2]))
        if pair[1] in KEYS:
            _hint(out, pair[1], word)
        else:
            out.odd.append((Word(pair[1], source.name, number, start + 1, len(pair[1])), f"unknown key '{pair[1]}'"))
    if not said:
        word = Word(match[1], source.name, number, match.start() + 1, len(match[0]))
        out.odd.append((word, "a comment for mlaplan that says nothing"))


def _hint(out: Comments, key: str, word: Word) -> None:
    if key == "engine" and "@" in word.text:
        name, _, version = word.text.partition("@")
        shift = len(name) + 1
        out.hints.setdefault("version", Word(version, word.file, word.line, word.col + shift, len(version)))
        word = Word(name, word.file, word.line, word.col, len(name))
    if key == "engine":
        word = replace(word, text=word.text.replace("-", "_"))
    out.hints.setdefault(key, word)
