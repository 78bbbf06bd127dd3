"""Engine names and versions to profiles: `vllm`, `vllm@0.33.0`, `sglang@0.5.23`, `generic`.

A profile file tells what changed between versions in two ways: a list entry may carry `since` and `until`,
and any value may be written as `{by_version: {0.9.2: ..., 0.26.0: ...}}`: an entry holds from its version on.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError, UnknownName, did_you_mean
from mlaplan.specs.source import Document, read

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile
    from mlaplan.specs.chip import Chip

FOLDER = Path(__file__).resolve().parent / "profiles"
ANY = "generic"
OF_CLASS = {"ascend": "vllm_ascend"}  # engines that chips of a class are planned for where none is named


@lru_cache(maxsize=1)
def engine_names() -> tuple[str, ...]:
    """Engines with a profile."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def spelled(name: str) -> str:
    """An engine's name as users and its own documentation write it; with an underscore it is read too."""
    return name.replace("_", "-")


def engine_versions(name: str) -> tuple[str, ...]:
    """Versions the engine's facts are known for, oldest first."""
    return tuple(_document(name).data["versions"])


def split_name(name: str) -> tuple[str, str]:
    """`vllm@0.33.0` -> ('vllm', '0.33.0'); without a version the newest. An error for what is not known."""
    engine, at, version = name.partition("@")
    engine = engine.replace("-", "_")
    if engine not in engine_names():
        raise UnknownName("engine", spelled(engine), map(spelled, engine_names()))
    known = engine_versions(engine)
    if not at:
        return engine, known[-1]
    if version not in known:
        hint = did_you_mean(version, known)
        told = [
            f"unknown version '{version}' of {spelled(engine)}",
            *([hint] if hint else []),
            f"known: {', '.join(known)}",
        ]
        raise MlaplanError("; ".join(told))
    return engine, version


def asked_release(name: str) -> tuple[str, str | None]:
    """`trtllm@1.1.0` -> ('trtllm', '1.1.0'), whose kernels are asked for; `trtllm` leaves the release open."""
    engine, version = split_name(name)
    return engine, version if "@" in name else None


def default_engine(chip: Chip) -> str:
    """The engine that a chip is planned for where none is named: that of its class, else the idealised one."""
    own = OF_CLASS.get(chip.efficiency_class)
    return own if own is not None and chip.name not in load_profile(own).not_on else ANY


@lru_cache(maxsize=32)
def load_profile(name: str) -> Profile:
    """The profile of an engine at a version."""
    from mlaplan.engines.profile import Profile
    from mlaplan.specs.validate import build

    engine, version = split_name(name)
    profile: Profile = build(Profile, at_version(_document(engine), version))
    return profile


@lru_cache(maxsize=8)
def _document(engine: str) -> Document:
    return read(FOLDER / f"{engine}.yaml")


def at_version(document: Document, version: str) -> Document:
    """The document with everything that does not hold at `version` taken out, positions kept."""
    order = {known: i for i, known in enumerate(document.data["versions"])}
    out = Document(document.file, None, shipped=document.shipped)

    def keep(old: tuple[str | int, ...], new: tuple[str | int, ...]) -> None:
        for source, target in ((document.values, out.values), (document.keys, out.keys)):
            if old in source:
                target[new] = source[old]

    def walk(value: Any, old: tuple[str | int, ...], new: tuple[str | int, ...]) -> Any:
        keep(old, new)
        if isinstance(value, dict) and set(value) == {"by_version"}:
            chosen = [key for key in value["by_version"] if order[key] <= order[version]]
            if not chosen:
                return None
            key = max(chosen, key=order.__getitem__)
            return walk(value["by_version"][key], (*old, "by_version", key), new)
        if isinstance(value, dict):
            names = [key for key in value if key not in ("since", "until")]
            return {key: walk(value[key], (*old, key), (*new, key)) for key in names}
        if isinstance(value, list):
            alive = [(i, item) for i, item in enumerate(value) if _holds(item, order, version)]
            return [walk(item, (*old, i), (*new, j)) for j, (i, item) in enumerate(alive)]
        return value

    out.data = {**walk(document.data, (), ()), "version": version}
    return out


def _holds(item: Any, order: dict[str, int], version: str) -> bool:
    if not isinstance(item, dict):
        return True
    first, last = order[item.get("since", next(iter(order)))], order[item.get("until", next(reversed(order)))]
    return first <= order[version] <= last
