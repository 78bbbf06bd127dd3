"""Shell commands: rendering one from flags that exist, taking one apart, and how ranks fall onto nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlaplan.engines.flags import FlagTable
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.engines.request import EmitRequest

_PLACEHOLDER = re.compile(r"\$[A-Z_]+(:\d+)?$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
WIDTH = 100


@dataclass(slots=True)
class Command:
    """A command being put together: environment, program, flags in order."""

    table: FlagTable
    program: list[str]
    env: dict[str, str] = field(default_factory=dict)
    flags: list[tuple[str, Any]] = field(default_factory=list)

    def add(self, name: str, value: Any = True) -> None:
        """Adds a flag that this version has, with a value among its choices."""
        flag = self.table.flag(name)
        if flag.choices and str(value) not in flag.choices:
            raise MlaplanError(
                f"{self.table.engine} {self.table.version} has no {name} {value}: it has {', '.join(flag.choices)}"
            )
        self.flags.append((name, value))

    def text(self) -> str:
        """The command for a shell, one flag a line where it is long."""
        words = [f"{name}={_quoted(value)}" for name, value in self.env.items()]
        words += [_quoted(word) for word in self.program]
        parts = [" ".join(words)]
        for name, value in self.flags:
            parts.append(name if value is True else f"{name} {_quoted(_shown(value))}")
        line = " ".join(parts)
        return line if len(line) <= WIDTH else " \\\n    ".join(parts)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        import json

        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _quoted(word: str) -> str:
    return word if _PLACEHOLDER.match(word) else shlex.quote(word)


def split_commands(text: str) -> list[list[str]]:
    """The commands of a script as words, without comments, continued lines joined. Nothing is expanded."""
    joined = re.sub(r"\\\r?\n", " ", text)
    out = []
    for line in joined.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise MlaplanError(f"cannot read the command line: {error}") from None
        if words:
            out.append(words)
    return out


def arguments(table: FlagTable, argv: str | Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The environment and the arguments after the engine's program in a script or a list of words."""
    commands = split_commands(argv) if isinstance(argv, str) else [list(argv)]
    for words in commands:
        env: dict[str, str] = {}
        while words and _ASSIGNMENT.match(words[0]):
            name, _, value = words[0].partition("=")
            env[name] = value
            words = words[1:]
        for program in table.programs:
            size = len(program)
            for at in range(len(words) - size + 1):
                if tuple(words[at : at + size]) == program:
                    return env, words[at + size :]
        if len(commands) == 1:
            return env, words
    shown = " or ".join(f"'{' '.join(program)}'" for program in table.programs)
    raise MlaplanError(f"no {table.engine} command found: expected {shown}")


def check_devices(request: EmitRequest) -> None:
    """A plan that names its devices names as many as its degrees multiply to."""
    wanted = request.world * request.replicas
    if request.devices is not None and request.devices != wanted:
        product = f"{request.replicas} x pp {request.pp} x dp {request.dp} x tp {request.tp} = {wanted}"
        raise MlaplanError(f"devices={request.devices}: replicas x pp x dp x tp is {product}")


def even_nodes(request: EmitRequest, label: str, fits: Callable[[int, int], bool]) -> int:
    """The fewest nodes in equal shares for one copy; `fits(nodes, chips on each)` is the engine's rule."""
    fewest = -(-request.world // request.chips_per_node)
    for nodes in range(fewest, min(2 * fewest, request.world) + 1):
        if request.world % nodes == 0 and fits(nodes, request.world // nodes):
            return nodes
    raise MlaplanError(
        f"chips_per_node={request.chips_per_node}: {label} cannot lay {request.dp} x {request.pp} x "
        f"{request.tp} (dp, pp, tp) ranks onto {fewest} nodes in equal shares"
    )


def heading(request: EmitRequest, label: str, node: int, nodes: int) -> list[str]:
    """Comment lines over the command of one node."""
    lines = [f"# {label}"]
    if nodes > 1:
        lines = [
            f"# {label}, node {node + 1} of {nodes}",
            "# HEAD_ADDR: address of node 1 that all nodes reach",
        ]
    if request.weight_conversion:
        lines.append(f"# MODEL_PATH: a copy of {request.model} converted to {request.weight_dtype} weights")
    if request.replicas > 1:
        fit = request.chips_per_node // request.world
        where = f"up to {fit} on a node, each with its own devices and port" if fit > 1 else "each on its own nodes"
        lines.append(f"# {request.replicas} copies of this, {where}, behind a load balancer")
    return lines


def model_flags(request: EmitRequest) -> tuple[str, str | None]:
    """What to load and, if that is not the model's own name, the name to serve it under."""
    return ("$MODEL_PATH", request.model) if request.weight_conversion else (request.model, None)


def uneven(layers: Sequence[int]) -> bool:
    """Whether the stages of a pipeline differ in size."""
    return len(set(layers)) > 1
