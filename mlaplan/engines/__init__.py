"""Engines: what they can do (profiles), launch commands for a plan, and plans read from launch commands.

    profile = load_profile("vllm@0.33.0")
    for text in emit("vllm@0.33.0", request): print(text)          # one text per node
    parse("vllm@0.33.0", "vllm serve ... -tp 8")["tp"]             # 8

An engine is added by a profile and a flag table in `profiles/`, a module with `emit` and `parse`, and a line
in MODULES.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlaplan.engines.load import engine_names, engine_versions, load_profile, spelled, split_name
from mlaplan.errors import MlaplanError, UnknownName

if TYPE_CHECKING:
    from types import ModuleType

    from mlaplan.engines.request import EmitRequest

__all__ = [
    "MODULES",
    "EmitRequest",
    "bench_command",
    "emit",
    "engine_names",
    "engine_versions",
    "load_profile",
    "parse",
    "spelled",
    "split_name",
]

MODULES = {
    "vllm": "mlaplan.engines.vllm",
    "sglang": "mlaplan.engines.sglang",
    "trtllm": "mlaplan.engines.trtllm",
    "vllm_ascend": "mlaplan.engines.vllm_ascend",
}


def __getattr__(name: str) -> Any:
    """The request's class where it is asked for: reading flags needs none, and making it takes time."""
    if name == "EmitRequest":
        from mlaplan.engines.request import EmitRequest

        return EmitRequest
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def emit(engine: str, request: EmitRequest) -> list[str]:
    """Shell text that launches the plan, one per node of a copy. Names what cannot be expressed."""
    from mlaplan.engines.flags import load_flags
    from mlaplan.engines.limits import told_limits

    module, name, version = _module(engine)
    profile = load_profile(f"{name}@{version}")
    if found := told_limits(profile, request, moe=request.moe):
        raise MlaplanError("\n".join(found))
    texts: list[str] = module.emit(profile, load_flags(name, version), request)
    return texts


def parse(engine: str, argv: str | Sequence[str], *, attention: str = "mla") -> dict[str, Any]:
    """The plan in a launch command (words, or shell text), by the names of EmitRequest, with the raw `flags`.

    `attention` is the model's kind (`profile.attention_kind`), which decides what some cache dtypes mean.
    What a command leaves out is None, or the engine's default of 1 for a degree. Raises MlaplanError for a
    line that the engine would refuse.
    """
    from mlaplan.engines.flags import load_flags, read_flags
    from mlaplan.engines.launch import arguments

    module, name, version = _module(engine)
    table = load_flags(name, version)
    env, words = arguments(table, argv)
    line = read_flags(table, words)
    if line.complaints:
        raise MlaplanError("\n".join(c.text() for c in line.complaints))
    if hasattr(module, "settings_in") and isinstance(argv, str):
        line.values |= module.settings_in(argv)
    plan: dict[str, Any] = module.parse(load_profile(f"{name}@{version}"), line, env, attention)
    return {**plan, "flags": dict(line.values), "env": env}


def bench_command(
    engine: str, request: EmitRequest, *, isl: int, osl: int, concurrency: int, prefix_tokens: int = 0,
    port: int | None = None,
) -> str:  # fmt: skip
    """The engine's benchmark client for this workload, against a server that `emit` launched, or a router's port."""
    from mlaplan.engines import bench

    _, name, version = _module(engine)
    return bench.command(load_profile(f"{name}@{version}"), request, isl, osl, concurrency, prefix_tokens, port)


def _module(engine: str) -> tuple[ModuleType, str, str]:
    from importlib import import_module

    name, version = split_name(engine)
    if name not in MODULES:
        raise UnknownName("engine to launch", spelled(name), map(spelled, MODULES))
    return import_module(MODULES[name]), name, version
