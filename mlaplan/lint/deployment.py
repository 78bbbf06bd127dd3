"""A launch with its context: engine and version, chip, devices, nodes, model, each with where it was learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.errors import MlaplanError
from mlaplan.lint import names
from mlaplan.lint.launch import Launch, engine_of, tag_version
from mlaplan.lint.text import Word
from mlaplan.lint.versions import BASE, VERSION, Candidates, candidates

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

MOST_DEVICES = 1_000_000


class Asked(NamedTuple):
    """What the user says of all deployments that do not say it themselves."""

    chip: str | None = None
    devices: int | None = None
    model: str | None = None
    engine: str | None = None
    version: str | None = None
    node: int | None = None


@dataclass(slots=True)
class Deployment:
    """What is deployed, as far as it is known. `odd`: hints that could not be used, as (word, why)."""

    launch: Launch
    candidates: Candidates
    version: str | None = None
    chip: Chip | None = None
    chip_from: Word | None = None
    model: Model | None = None
    model_word: Word | None = None
    heads: int | None = None  # of a model that can be read and not priced
    devices: int | None = None
    devices_from: Word | None = None
    odd: list[tuple[Word, str]] = field(default_factory=list)

    @property
    def engine(self) -> str:
        return self.launch.engine

    @property
    def base(self) -> str:
        """The engine whose rules hold."""
        return BASE.get(self.engine, self.engine)


def deployment(launch: Launch, asked: Asked, model_word: Word | None, folder: Path | None) -> Deployment:
    """The deployment of a launch. The file itself says more than the options, and comments more than labels."""
    hints = launch.hints
    if launch.engine == "vllm" and hints.get("engine") and hints["engine"].text == "vllm_ascend":
        launch.engine = "vllm_ascend"
    version = _version(launch, asked)
    out = Deployment(launch, candidates(launch.engine, version), version, model_word=model_word)
    _chip(out, asked, folder)
    _model(out, asked, folder)
    _devices(out, asked)
    return out


def _in_folder(text: str, folder: Path | None) -> str:
    """What a comment names: a name as it is, a path beside the file, which must not lead out of what is checked."""
    if not text.startswith("~") and "/" not in text and not text.lower().endswith((".yaml", ".yml", ".json")):
        return text
    root = folder or Path()
    try:
        inside = (
            not text.startswith("~") and "\0" not in text and (root / text).resolve().is_relative_to(root.resolve())
        )
    except (OSError, RuntimeError):
        inside = False
    if not inside:
        raise MlaplanError(f"{text} leads out of the folder that is checked; expected a name, or a path below it")
    return str(root / text)


def _version(launch: Launch, asked: Asked) -> str | None:
    if "version" in launch.hints and _hint_is_for(launch):
        return launch.hints["version"].text
    same = engine_of(launch.image) == launch.engine
    tagged = tag_version(launch.image) if launch.image is not None and same else None
    if tagged is not None:
        return tagged
    return asked.version if asked.engine in (None, launch.engine, BASE.get(launch.engine)) else None


def _hint_is_for(launch: Launch) -> bool:
    engine = launch.hints.get("engine")
    return engine is None or engine.text in (launch.engine, BASE.get(launch.engine))


def _chip(out: Deployment, asked: Asked, folder: Path | None) -> None:
    # versions of an engine that extends another are its own
    release = out.version if out.base == out.engine else None
    hint, node = out.launch.hints.get("chip"), (*_node_size(out, asked), release)
    if hint is not None:
        try:
            out.chip, out.chip_from = names.chip(_in_folder(hint.text, folder), out.base, *node), hint
        except MlaplanError as error:
            out.odd.append((hint, str(error)))
        return
    for label in out.launch.labels:
        if (name := names.chip_of_label(label.text)) is not None:
            out.chip, out.chip_from = names.chip(name, out.base, *node), label
            return
    if asked.chip is not None:
        out.chip = names.chip(asked.chip, out.base, *node)


def _node_size(out: Deployment, asked: Asked) -> tuple[int | None, int | None]:
    """Chips of a node: as a comment or the user says it, and as pods of one server or --nnodes suggest it."""
    launch, hint = out.launch, out.launch.hints.get("node")
    if hint is not None:
        if hint.text.isdigit() and 0 < int(hint.text[:9]) <= MOST_DEVICES:
            return int(hint.text), None
        out.odd.append((hint, f"node={hint.text} is no number of devices"))
    if launch.nodes is not None and launch.nodes > 1 and launch.gpus is not None:
        return asked.node, launch.gpus[0]
    nodes = _number(launch, ("--nnodes", "-n"))
    if nodes > 1 and launch.gpus is not None:
        return asked.node, launch.gpus[0]
    ranks = _number(launch, ("--tp", "--tp-size", "--tensor-parallel-size", "-tp"), 1)
    ranks *= _number(launch, ("--pp-size", "--pipeline-parallel-size", "-pp"), 1)
    if nodes > 1 and ranks % nodes == 0 and out.engine == "sglang":
        return asked.node, ranks // nodes
    return asked.node, None


def _number(launch: Launch, flags: tuple[str, ...], default: int = 0) -> int:
    """A flag's value before flags are read by version; the default where it is not a plain number."""
    for i, word in enumerate(launch.words):
        name, equals, value = word.text.partition("=")
        if name.replace("_", "-") in flags:
            follows = launch.words[i + 1].text if i + 1 < len(launch.words) else ""
            text = value if equals else follows
            return int(text) if text.isdigit() and len(text) < 9 else default
    return default


def _model(out: Deployment, asked: Asked, folder: Path | None) -> None:
    hint, served = out.launch.hints.get("model"), out.model_word
    if hint is not None:
        try:
            out.model = names.model(_in_folder(hint.text, folder))
        except MlaplanError as error:
            out.odd.append((hint, str(error)))
        return
    if served is not None and served.unknown is None:
        file = names.model_near(served.text, folder) or names.model_file(served.text)
        if file is not None:
            out.model = names.found_model(file)
            out.heads = None if out.model is not None else names.heads(file)
            return
    if asked.model is not None:
        out.model = names.model(asked.model)


def _devices(out: Deployment, asked: Asked) -> None:
    launch = out.launch
    hint = launch.hints.get("devices")
    if hint is not None:
        if hint.text.isdigit() and 0 < int(hint.text[:9]) <= MOST_DEVICES:
            out.devices, out.devices_from = int(hint.text), hint
        else:
            out.odd.append((hint, f"devices={hint.text} is no number of devices"))
    elif launch.gpus is not None:
        out.devices, out.devices_from = launch.gpus[0] * (launch.nodes or 1), launch.gpus[1]
    elif asked.devices is not None:
        out.devices = asked.devices


def known_version(text: str) -> bool:
    """Whether a text is a version at all."""
    return VERSION.fullmatch(text) is not None
