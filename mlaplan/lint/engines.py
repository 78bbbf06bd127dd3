"""What the linter needs to know of each engine before a rule runs."""

from __future__ import annotations

from mlaplan.lint.launch import Launch
from mlaplan.lint.text import Word

KNOWN = ("vllm", "sglang", "trtllm", "vllm_ascend")
MODEL_FLAGS = ("--model", "--model-path")


def known(engine: str) -> bool:
    """Whether the flags of an engine are known."""
    return engine in KNOWN


def model_word(launch: Launch) -> Word | None:
    """The word that names the model: the flag's value, or the first word that is no flag."""
    words = launch.words
    if "model" in launch.settings and isinstance(launch.settings["model"].value, str):
        key = launch.settings["model"].word
        return Word(launch.settings["model"].value, key.file, key.line, key.col, key.width)
    for i, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name.replace("_", "-") in MODEL_FLAGS:
            if equals:
                return Word(value, word.file, word.line, word.col, word.width, word.unknown)
            return words[i + 1] if i + 1 < len(words) else None
    if launch.engine in ("vllm", "vllm_ascend", "trtllm") and words and not words[0].text.startswith("-"):
        return words[0]
    return None
