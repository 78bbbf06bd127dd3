"""A saved plan where a model is expected: what reads plans, and the command that prices its strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlaplan.errors import MlaplanError

MARK = b'"mlaplan.plan/1"'
HEAD = 200  # bytes of a file in which its schema stands


def refuse(model: str) -> str:
    """The name of a model; a saved plan in its place is refused with what to use instead."""
    if not model.endswith(".json") or not _is_plan(model):
        return model
    from mlaplan.validation.measured import plan_data

    commands = _commands(plan_data(model))
    shown = f"; its strategies are priced by: {' and '.join(commands)}" if commands else ""
    raise MlaplanError(f"{model}: is a saved plan, expected MODEL CHIP; mlaplan simulate, check and compare read plans"
                       f"{shown}")  # fmt: skip


def _is_plan(file: str) -> bool:
    try:
        with Path(file).open("rb") as found:
            return MARK in found.read(HEAD)
    except (OSError, ValueError):
        return False


def _commands(data: dict[str, Any]) -> list[str]:
    """`explain` of the plan, or of each of its pools; none where the file is not whole."""
    import shlex
    from dataclasses import fields

    from mlaplan.cli.launching import strategy_flags
    from mlaplan.strategy import Strategy

    try:
        model, work, engine = data["model"]["name"], data["workload"], data["engine"]
        pools = data.get("pools") or {"": {"chip": data["chip"]["name"], "strategy": data["strategy"]}}
        out = []
        for role, pool in pools.items():
            one = Strategy(**{f.name: pool["strategy"][f.name] for f in fields(Strategy)})
            words = ["mlaplan", "explain", model, pool["chip"], *strategy_flags(one)]
            lengths = ["--isl", str(work["isl_tokens"]), "--osl", str(work["osl_tokens"])]
            if role == "prefill":
                lengths = ["--isl", str(work["isl_tokens"]), "--prefill", str(work["isl_tokens"])]
            elif role == "decode":
                lengths = ["--context", str(work["isl_tokens"] + work["osl_tokens"] // 2)]
            named = [] if engine["name"] == "generic" else ["--engine", f"{engine['name']}@{engine['version']}"]
            out.append(shlex.join([*words, *lengths, *named]))
    except (KeyError, TypeError, AttributeError):
        return []
    return out
