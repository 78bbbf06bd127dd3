"""From the commands of a plan's nodes to the pods of one group: a leader, and workers that are all alike.

Workers share one template, so that what their commands differ in must be a multiple of the pod's index.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import NamedTuple

from mlaplan.engines.launch import split_commands
from mlaplan.engines.request import EmitRequest
from mlaplan.errors import MlaplanError

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_LOCAL = "--data-parallel-size-local"
RAY = ["ray", "start"]


class Variables(NamedTuple):
    """Environment variables that a controller sets in every pod: the leader's address, and the pod's own index."""

    address: str
    pod_index: str


@dataclass(slots=True)
class Pod:
    """A container's command, environment and devices. `script`: it is for a shell, which computes or runs several."""

    words: list[str]
    chips: int
    env: dict[str, str] = field(default_factory=dict)
    script: str | None = None

    def add(self, *words: str) -> None:
        """Further words of the server's command."""
        self.words += words
        if self.script is not None and words:
            self.script += " " + " ".join(map(_quoted, words))

    @property
    def command(self) -> list[str]:
        return self.words if self.script is None else ["/bin/sh", "-c", self.script]


@dataclass(slots=True)
class Group:
    """The pods of one copy of the model: the leader serves."""

    leader: Pod
    worker: Pod | None
    nodes: int

    @property
    def pods(self) -> list[Pod]:
        return [self.leader, *([self.worker] if self.worker else [])]

    @property
    def chips(self) -> int:
        return self.leader.chips + (self.worker.chips * (self.nodes - 1) if self.worker else 0)


def group(texts: list[str], request: EmitRequest, model_path: str, names: Variables) -> Group:
    """The group that runs what `engines.emit` printed for one copy, one text per node."""
    nodes = [[_filled(words, model_path, names) for words in split_commands(text)] for text in texts]
    found = Group(_pod(nodes[0], request, len(nodes)), None, len(nodes))
    if len(nodes) > 1:
        found.worker = _worker(nodes[1:], request, len(nodes), names)
    if found.chips != request.world:
        raise MlaplanError(
            f"{len(nodes)} nodes hold {request.world} chips in unequal shares, and all workers of a group are alike: "
            "choose degrees that fill every node"
        )
    return found


def _filled(words: list[str], model_path: str, names: Variables) -> list[str]:
    given = {"$HEAD_ADDR": f"$({names.address})", "$MODEL_PATH": model_path}
    out = []
    for word in words:
        for name, value in given.items():
            word = word.replace(name, value)
        out.append(word)
    return out


def _pod(commands: list[list[str]], request: EmitRequest, nodes: int) -> Pod:
    """One node's pod. Assignments before the server's command are its environment."""
    *before, words = commands
    env = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        env[match[1]] = match[2]
        words = words[1:]
    chips = request.world // nodes
    if _LOCAL in words:
        chips = int(words[words.index(_LOCAL) + 1]) * request.tp * request.pp
    pod = Pod(list(words), chips, env)
    if words[:2] == RAY:  # until the leader's is there
        pod.script = f"until {' '.join(map(_quoted, words))}; do sleep 5; done"
    elif before or any(" * " in word for word in words):
        lines = [" ".join(map(_quoted, one)) for one in before]
        pod.script = " && ".join([*lines, "exec " + " ".join(map(_quoted, words))])
    return pod


def _worker(nodes: list[list[list[str]]], request: EmitRequest, count: int, names: Variables) -> Pod:
    """The one pod that stands for all workers."""
    shape = [[len(words) for words in commands] for commands in nodes]
    if any(one != shape[0] for one in shape):
        raise MlaplanError("workers run different commands, and all workers of a group are alike")
    commands = [
        [_common([node[i][j] for node in nodes], names) for j in range(size)] for i, size in enumerate(shape[0])
    ]
    return _pod(commands, request, count)


def _common(values: list[str], names: Variables) -> str:
    """One word for all workers, the first of which has index 1."""
    if len(set(values)) == 1:
        return values[0]
    step = int(values[0]) if values[0].isdigit() else 0
    if not step or values != [str(step * i) for i in range(1, len(values) + 1)]:
        raise MlaplanError(
            f"workers run with {' and '.join(dict.fromkeys(values))}, and all workers of a group are alike: "
            "choose degrees that fill every node"
        )
    return f"$({names.pod_index})" if step == 1 else f"$(({names.pod_index} * {step}))"


def _quoted(word: str) -> str:
    """For a shell; variables that the kubelet fills in, and arithmetic, stay as they are."""
    return word if re.fullmatch(r"[\w.:/=-]*\$\(.*\)[\w.:/-]*", word) else shlex.quote(word)
