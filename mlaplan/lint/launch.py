"""A launch command with what stands around it, whatever document it came from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from mlaplan.lint.text import Word

MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
}
SCRIPTS = {"sglang/launch_server.py": "sglang", "openai/api_server.py": "vllm"}
IMAGES = (
    (re.compile(r"(^|/)vllm-ascend(:|@|$)"), "vllm_ascend", True),
    (re.compile(r"(^|/)(vllm-openai(-rocm)?|vllm-cpu-release-repo)(:|@|$)"), "vllm", True),
    (re.compile(r"(^|/)vllm(-dev|-rocm)?(:|@|$)"), "vllm", False),
    (re.compile(r"(^|/)sglang(-[a-z]+)?(:|@|$)"), "sglang", False),
    (re.compile(r"tensorrt-llm/release(:|@|$)"), "trtllm", False),
)
VERSION = re.compile(r"(?:^|[^\d.])v?(\d+\.\d+(?:\.\d+)?)(?![\d.]*\d)")
RUNNERS = {"docker", "podman", "nerdctl"}
_TAKES_VALUE = re.compile(r"-[evpuwhl]|--[a-z-]+")


class Setting(NamedTuple):
    """A value in an options file, and the word of its key."""

    value: Any
    word: Word


@dataclass(slots=True)
class Launch:
    """One launch: the engine, the words after its program, the environment, and the place that stands for it all.

    `gpus`: devices of the one process or pod that runs it; `nodes`: how many of these make up one server.
    `open`: something that may hold further flags could not be read.
    """

    engine: str
    anchor: Word
    words: list[Word]
    env: dict[str, Word] = field(default_factory=dict)
    image: Word | None = None
    gpus: tuple[int, Word] | None = None
    nodes: int | None = None
    spread: bool = False  # other pods or processes that are not seen here may belong to the same server
    labels: list[Word] = field(default_factory=list)
    hints: dict[str, Word] = field(default_factory=dict)
    open: str | None = None
    settings: dict[str, Setting] = field(default_factory=dict)  # of an options file, by dotted key


def find_launch(words: Sequence[Word], env: dict[str, Word], image: Word | None = None) -> Launch | None:
    """The launch in a command's words, or None."""
    boxed = _container(words, env)
    if boxed is not None:
        return boxed
    found = _program(words)
    if found is not None:
        engine, at, anchor = found
        if engine == "vllm" and engine_of(image) == "vllm_ascend":
            engine = "vllm_ascend"
        return Launch(engine, anchor, list(words[at:]), dict(env), image)
    return None


def _program(words: Sequence[Word]) -> tuple[str, int, Word] | None:
    for i, word in enumerate(words):
        name = PurePosixPath(word.text).name if "/" in word.text else word.text
        following = words[i + 1].text if i + 1 < len(words) else ""
        if name in ("vllm", "sglang") and following == "serve":
            return name, i + 2, word
        if name == "trtllm-serve":
            return "trtllm", i + 2 if following == "serve" else i + 1, word
        if name == "-m" and following in MODULES:
            return MODULES[following], i + 2, words[i + 1]
        for tail, engine in SCRIPTS.items():
            if word.text.endswith(tail):
                return engine, i + 1, word
        if i >= 40:
            break
    return None


def _container(words: Sequence[Word], env: dict[str, Word]) -> Launch | None:
    """`docker run ... vllm/vllm-openai:TAG --model ...`: the image's own program runs the rest."""
    if len(words) < 3 or words[0].text not in RUNNERS or words[1].text != "run":
        return None
    own = dict(env)
    gpus: tuple[int, Word] | None = None
    for i, word in enumerate(words[2:], 2):
        before = words[i - 1].text
        if before in ("-e", "--env") and "=" in word.text:
            name, _, value = word.text.partition("=")
            own[name] = Word(value, word.file, word.line, word.col, word.width, word.unknown)
        value = word.text.partition("=")[2] if word.text.startswith("--gpus=") else word.text
        if (before == "--gpus" or word.text.startswith("--gpus=")) and value.isdigit():
            gpus = (int(value), word)
        engine = engine_of(word)
        is_value = before.startswith("-") and "=" not in before and _TAKES_VALUE.fullmatch(before) is not None
        if (
            engine is None
            or word.text.startswith("-")
            or (is_value and before not in ("--rm", "-d", "-it", "-i", "-t"))
        ):
            continue
        inner = _program(words[i + 1 :])
        if inner is not None:
            name, at, anchor = inner
            return Launch(
                name if engine != "vllm_ascend" else engine, anchor, list(words[i + 1 + at :]), own, word, gpus
            )
        return of_image(word, list(words[i + 1 :]), own, gpus) if starts_server(word) else None
    return None


def of_image(
    image: Word, words: list[Word], env: dict[str, Word], gpus: tuple[int, Word] | None = None
) -> Launch | None:
    """Arguments alone, for an image whose entry point is the server."""
    engine = engine_of(image)
    return Launch(engine, image, words, dict(env), image, gpus) if engine else None


def engine_of(image: Word | None) -> str | None:
    """The engine of an image by its name."""
    if image is None:
        return None
    return next((engine for pattern, engine, _ in IMAGES if pattern.search(image.text)), None)


def starts_server(image: Word) -> bool:
    """Whether an image's entry point is the server itself."""
    return any(starts for pattern, _, starts in IMAGES if pattern.search(image.text))


def tag_version(image: Word) -> str | None:
    """The version in an image's tag: v0.11.0, 0.11.0-cu128; None for latest, nightly or a digest."""
    tag = image.text.rpartition(":")[2] if ":" in image.text.rpartition("/")[2] else ""
    match = VERSION.search(tag)
    return match[1] if match else None
