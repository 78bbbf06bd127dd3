"""A source to what it holds: launches, or a spec for `validate_file`, or nothing that is known here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

from mlaplan.errors import Problem
from mlaplan.lint.comments import Comments, read_comments
from mlaplan.lint.launch import Launch, find_launch
from mlaplan.lint.shell import Command, read_shell
from mlaplan.lint.shell_tokens import MOST_TOKENS
from mlaplan.lint.text import Source, Word

if TYPE_CHECKING:
    from mlaplan.lint.tree import Node

MOST_LAUNCHES = 64  # of one file
SPEC_KINDS = {"chip", "model", "calibration"}
YAML_SUFFIXES = (".yaml", ".yml")
SHELL_SUFFIXES = (".sh", ".bash", ".env", ".txt", ".md")
_ENGINE = re.compile(r"vllm|sglang|trtllm")
# keys that only an engine's own config file has at its top
ENGINE_KEYS = {
    "vllm": {"tensor-parallel-size", "gpu-memory-utilization", "max-num-seqs", "max-model-len", "served-model-name"},
    "sglang": {"tp-size", "mem-fraction-static", "model-path", "max-running-requests", "attn-dp-size"},
    "trtllm": {"enable-attention-dp", "moe-expert-parallel-size", "enable-chunked-prefill", "max-batch-size"},
}  # fmt: skip


@dataclass(slots=True)
class Content:
    """What one source holds. `kind`: launches, spec, plan or unknown."""

    source: Source
    kind: str
    launches: list[Launch] = field(default_factory=list)
    unread: list[tuple[Word, str]] = field(default_factory=list)
    stray: list[Word] = field(default_factory=list)  # flags that stand as a command of their own
    problems: list[Problem] = field(default_factory=list)
    comments: Comments = field(default_factory=Comments)


def read_content(source: Source, engine: str | None = None) -> Content:
    """What the text holds, by content first and by name where that leaves it open."""
    suffix = PurePath(source.name).suffix.lower()
    comments = read_comments(source)
    if suffix == ".json":
        content = Content(source, "plan" if '"mlaplan.plan/' in source.text[:4000] else "spec")
    elif suffix in YAML_SUFFIXES or (suffix not in SHELL_SUFFIXES and _looks_like_yaml(source)):
        content = _yaml(source, comments.hints, engine)
    else:
        content = _shell(source)
    content.comments = comments
    _bound(content)
    with_ray = "ray start" in source.text
    for launch in content.launches:
        launch.spread = launch.spread or (with_ray and launch.nodes is None)
        launch.hints = comments.hints
    return content


def _bound(content: Content) -> None:
    """Leaves out launches after the many words that are enough for one file: each is read at every version."""
    total = 0
    for i, launch in enumerate(content.launches):
        total += len(launch.words) + len(launch.settings)
        if i == MOST_LAUNCHES or total > MOST_TOKENS:
            what = f"{MOST_LAUNCHES} launches" if i == MOST_LAUNCHES else f"{MOST_TOKENS:,} words of launches"
            content.unread.append((launch.anchor, f"more than {what} in one file"))
            del content.launches[i:]
            return


def names_engine(source: Source) -> bool:
    """Whether an engine is named at all: a file that cannot be read is told of for what may be in it."""
    return _ENGINE.search(source.text) is not None


def _looks_like_yaml(source: Source) -> bool:
    first = next((line for line in source.lines if line.strip() and not line.lstrip().startswith("#")), "")
    return first.strip() == "---" or re.match(r"[A-Za-z_][\w-]*:(\s|$)", first) is not None


def _shell(source: Source) -> Content:
    out = Content(source, "launches" if _ENGINE.search(source.text) else "unknown")
    if out.kind == "unknown":
        return out
    script = read_shell(source.mapped(), source.name)
    out.unread = script.unread
    take(out, script.commands)
    trees: dict[str, Node | None] = {}
    total = 0
    for launch in out.launches:
        if total <= MOST_TOKENS:
            _with_file(launch, script.files, trees, source)
        total += len(launch.words) + len(launch.settings)
    if not out.launches and not out.unread:
        out.kind = "unknown"
    return out


CONFIG_FLAGS = ("--extra_llm_api_options", "--config")


def _with_file(
    launch: Launch, files: dict[str, tuple[int, str]], trees: dict[str, Node | None], source: Source
) -> None:
    """Adds what the config file of a launch says, if the script itself writes it; else something stays open."""
    named = _config_file(launch)
    if named is None:
        return
    if named.text not in files or "$" in files[named.text][1]:
        launch.open = launch.open or named.text
        return
    from mlaplan.lint import configs

    first, text = files[named.text]
    padded = "\n" * (first - 1) + text  # so that its lines are those of the script
    inner = Source(source.name, padded, padded.split("\n"))
    if named.text not in trees:
        trees[named.text] = _options(inner)
    root = trees[named.text]
    if root is None:
        launch.open = launch.open or named.text
    elif launch.engine == "trtllm":
        launch.settings = configs.read_settings(root, inner)
    else:
        launch.words = [*configs.flags_of(root, inner), *launch.words]


def _options(inner: Source) -> Node | None:
    """The mapping in an options file; None where it is none."""
    from mlaplan.lint.tree import TreeError, read_tree

    try:
        roots = read_tree(inner)
    except TreeError:
        return None
    return roots[0] if len(roots) == 1 and roots[0].kind == "map" else None


def _config_file(launch: Launch) -> Word | None:
    words = launch.words
    for i, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name in CONFIG_FLAGS:
            if equals:
                return Word(value, word.file, word.line, word.col, word.width, word.unknown)
            return words[i + 1] if i + 1 < len(words) else None
    return None


class Gathered(Protocol):
    """What launches are gathered in."""

    launches: list[Launch]
    unread: list[tuple[Word, str]]
    stray: list[Word]


def take(out: Gathered, commands: list[Command], image: Word | None = None) -> None:
    """Adds the launches among these commands, and flags that a launch before them has lost."""
    before: Launch | None = None
    for command in commands:
        if not command.words:
            continue
        if len(out.launches) > MOST_LAUNCHES:
            return  # told where the whole file is known
        found = find_launch(command.words, {}, image)
        if found is not None:
            found.env = {**command.env, **found.env}
            out.launches.append(found)
        elif before is not None and re.match(r"--[a-z]", command.words[0].text):
            out.stray.append(command.words[0])
            continue
        before = found


def _yaml(source: Source, hints: dict[str, Word], engine: str | None) -> Content:
    from mlaplan.lint.tree import TreeError, read_tree

    kind = re.search(r"^kind:\s*([\w-]+)", source.text, re.MULTILINE)
    if kind and kind[1] in SPEC_KINDS:
        return Content(source, "spec")
    from mlaplan.lint import configs, manifests

    out = Content(source, "unknown")
    try:
        roots = read_tree(source)
    except TreeError as error:
        out.kind = "launches"
        if "{{" in source.text:  # Helm's templates are seldom YAML before they are rendered
            p = error.problem
            where = Word("", source.name, p.line or 1, p.col or 1)
            out.unread.append((where, "a template that is no YAML yet; check what it renders to"))
        else:
            out.problems = [error.problem]
        return out
    for root in roots:
        if manifests.is_manifest(root):
            found = manifests.read_manifest(root, source)
        elif manifests.is_compose(root):
            found = manifests.read_compose(root, source)
        else:
            named = hints["engine"].text if "engine" in hints else engine
            launch = configs.read_config(root, source, named)
            if launch is None:
                continue
            found = manifests.Found([launch])
        out.kind = "launches"
        out.launches += found.launches
        out.unread += found.unread
        out.stray += found.stray
    return out
