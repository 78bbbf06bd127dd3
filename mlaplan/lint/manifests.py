"""Kubernetes objects of any kind, and compose files, to launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from mlaplan.lint.documents import take
from mlaplan.lint.launch import Launch, find_launch, of_image, starts_server
from mlaplan.lint.shell import read_shell
from mlaplan.lint.shell_tokens import LONGEST
from mlaplan.lint.text import Source, Word
from mlaplan.lint.tree import Node, mapped, walk, word

SHELLS = {"sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/env", "dash", "/bin/dash"}
SHELL_FLAG = re.compile(r"-[a-z]*c[a-z]*")
DEVICES = {
    "nvidia.com/gpu": "", "amd.com/gpu": "", "huawei.com/Ascend910": "", "huawei.com/ascend-1980": "",
}  # fmt: skip
# objects whose pods each run a server of their own
ONE_POD = {"Pod", "Deployment", "StatefulSet", "Job", "CronJob", "DaemonSet", "ReplicaSet", "PodTemplate"}
DEFAULT = re.compile(r"\$\{[A-Za-z_]\w*:-([^${}]*)\}")
REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")


@dataclass(slots=True)
class Found:
    """Launches of one document, and what could not be read, as (word, why)."""

    launches: list[Launch] = field(default_factory=list)
    unread: list[tuple[Word, str]] = field(default_factory=list)
    stray: list[Word] = field(default_factory=list)


def is_manifest(root: Node) -> bool:
    """Whether a document is a Kubernetes object."""
    return root.kind == "map" and root.get("apiVersion") is not None and root.get("kind") is not None


def is_compose(root: Node) -> bool:
    """Whether a document is a compose file."""
    services = root.get("services")
    return services is not None and services.kind == "map" and root.get("apiVersion") is None


def read_manifest(root: Node, source: Source) -> Found:
    """The launches of all containers in an object, whatever its kind."""
    out = Found()
    roles = _roles(root)
    if roles:
        for role, nodes in roles:
            _pods(role, source, out, nodes, alone=True)
        return out
    nodes_of_all = _group_size(root)
    alone = nodes_of_all is not None or root.scalar("kind") in ONE_POD
    _pods(root, source, out, nodes_of_all, alone=alone)
    return out


def _pods(root: Node, source: Source, out: Found, nodes: int | None, *, alone: bool) -> None:
    for pod in walk(root):
        containers = pod.get("containers") if pod.kind == "map" else None
        if containers is None or containers.kind != "list":
            continue
        labels = _labels(pod, source)
        for container in containers.items:
            if container.kind == "map":
                for launch in _container(container, source, out):
                    launch.labels, launch.nodes, launch.spread = labels, nodes, not alone
                    out.launches.append(launch)


def _roles(root: Node) -> list[tuple[Node, int]]:
    """Roles of a Kthena ModelServing, with the pods of one server: an entry and its workers. None if one is unclear."""
    listed = root.get("spec", "template", "roles") if root.scalar("kind") == "ModelServing" else None
    found = []
    for role in listed.items if listed is not None else []:
        workers = role.scalar("workerReplicas") if role.kind == "map" else None
        if workers is None or not workers.isdigit() or len(workers) > 5:
            return []
        found.append((role, 1 + int(workers)))
    return found


def _group_size(root: Node) -> int | None:
    """Pods of one server in a LeaderWorkerSet; None where the object does not say."""
    size = root.scalar("spec", "leaderWorkerTemplate", "size")
    return int(size) if size and size.isdigit() else None


def _labels(pod: Node, source: Source) -> list[Word]:
    """Values of the node selector and of required node affinities."""
    found = []
    selector = pod.get("nodeSelector")
    if selector is not None:
        found += [word(value, source) for _, value in selector.pairs if value.kind == "scalar"]
    terms = pod.get("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if terms is not None:
        for node in walk(terms):
            if node.kind == "map" and node.scalar("operator") == "In":
                values = node.get("values")
                items = values.items if values is not None else []
                found += [word(item, source) for item in items if len(items) == 1 and item.kind == "scalar"]
    return found


def _container(container: Node, source: Source, out: Found) -> Iterator[Launch]:
    env = _environment(container.get("env"), source)
    image = _image(container, source)
    command, args = container.get("command"), container.get("args")
    nodes = [*_entries(command), *_entries(args)]
    gpus = _devices(container, source)
    for launch in _launches(nodes, command is not None, env, image, source, out, _filled):
        launch.gpus = gpus
        if container.get("envFrom") is not None:
            launch.open = launch.open or "envFrom"
        yield launch


def _launches(
    nodes: list[Node],
    has_command: bool,
    env: dict[str, Word],
    image: Word | None,
    source: Source,
    out: Found,
    fill: Callable[[Node, dict[str, Word], Source], Word],
) -> Iterator[Launch]:
    """Launches in a command and its arguments: as words, or as a script for a shell."""
    script = _script(nodes)
    if script is not None:
        read = read_shell(mapped(script, source), source.name, env)
        inner = Found(unread=read.unread)
        take(inner, read.commands, image)
        out.unread += inner.unread
        out.stray += inner.stray
        for one in inner.launches:
            one.env = {**env, **one.env}
            yield one
        return
    words = [fill(node, env, source) for node in nodes]
    launch = find_launch(words, env, image)
    if launch is None and not has_command and image is not None and starts_server(image) and words:
        launch = of_image(image, words, env)
    if launch is not None:
        yield launch


def _entries(node: Node | None) -> list[Node]:
    if node is None:
        return []
    return [node] if node.kind == "scalar" else [item for item in node.items if item.kind == "scalar"]


def _script(nodes: list[Node]) -> Node | None:
    """The text after `sh -c`."""
    if not nodes or nodes[0].text not in SHELLS:
        return None
    for i, node in enumerate(nodes[1:], 1):
        if SHELL_FLAG.fullmatch(node.text):
            return nodes[i + 1] if i + 1 < len(nodes) else None
    return None


def _filled(node: Node, env: dict[str, Word], source: Source) -> Word:
    """A word with `$(NAME)` of literal variables of the container filled in, as the kubelet does."""
    found = word(node, source)
    if "$(" not in found.text:
        return found
    unknown = found.unknown

    def value(match: re.Match[str]) -> str:
        nonlocal unknown
        known = env.get(match[1])
        if known is None or known.unknown:
            unknown = unknown or match[0]
            return match[0]
        return known.text

    length = sum(len(known.text) for name in REFERENCE.findall(found.text) if (known := env.get(name)) is not None)
    if length > LONGEST:  # values of values grow without bound
        return replace(found, unknown="a very long value")
    text = REFERENCE.sub(value, found.text)
    return replace(found, text=text, unknown=unknown)


def _environment(listed: Node | None, source: Source) -> dict[str, Word]:
    """Variables with a literal value; others are unknown words."""
    out: dict[str, Word] = {}
    for item in listed.items if listed is not None else []:
        name, value = item.scalar("name"), item.get("value")
        if name is None:
            continue
        if value is not None and value.kind == "scalar":
            out[name] = _filled(value, out, source)
        else:
            out[name] = Word(f"${name}", source.name, item.line, item.col, 1, unknown=f"${name}")
    return out


def _image(container: Node, source: Source) -> Word | None:
    node = container.get("image")
    return word(node, source) if node is not None and node.kind == "scalar" else None


def _devices(container: Node, source: Source) -> tuple[int, Word] | None:
    """Devices that the container asks for, by the resource names of device plugins."""
    for part in ("limits", "requests"):
        listed = container.get("resources", part)
        for name, value in listed.pairs if listed is not None else []:
            if name.text in DEVICES and value.text.isdigit() and len(value.text) < 6:
                return int(value.text), word(value, source)
    return None


def read_compose(root: Node, source: Source) -> Found:
    """The launches of all services of a compose file."""
    out = Found()
    services = root.get("services")
    for _, service in services.pairs if services is not None else []:
        if service.kind != "map":
            continue
        env = _compose_environment(service.get("environment"), source)
        image = _image(service, source)
        gpus = _compose_devices(service, source)
        command, entry = service.get("command"), service.get("entrypoint")
        for launch in _service(command, entry, env, image, source, out):
            launch.gpus = gpus
            out.launches.append(launch)
    return out


def _service(
    command: Node | None, entry: Node | None, env: dict[str, Word], image: Word | None, source: Source, out: Found
) -> Iterator[Launch]:
    nodes = [*_entries(entry), *_entries(command)]
    if all(node is None or node.kind == "list" for node in (command, entry)) or _script(nodes) is not None:
        yield from _launches(nodes, entry is not None, env, image, source, out, _interpolated)
        return
    words: list[Word] = []  # a text is split as a shell would
    for part in (entry, command):
        if part is None:
            continue
        if part.kind == "list":
            words += [_interpolated(item, env, source) for item in part.items if item.kind == "scalar"]
            continue
        read = read_shell(mapped(part, source), source.name)
        words += [one for found in read.commands for one in found.words]
    launch = find_launch(words, env, image)
    if launch is None and entry is None and image is not None and starts_server(image) and words:
        launch = of_image(image, words, env)
    if launch is not None:
        yield launch


def _interpolated(node: Node, _env: dict[str, Word], source: Source) -> Word:
    """A word as compose fills it in: `$$` is a dollar sign, `${X:-literal}` its literal, other variables unknown."""
    found = word(node, source)
    if "$" not in found.text:
        return found
    text = DEFAULT.sub(lambda match: match[1], found.text)
    unknown = text if "$" in text.replace("$$", "") else found.unknown
    return replace(found, text=text.replace("$$", "$"), unknown=unknown)


def _compose_environment(node: Node | None, source: Source) -> dict[str, Word]:
    out: dict[str, Word] = {}
    if node is None:
        return out
    for key, value in node.pairs:
        if value.kind == "scalar":
            out[key.text] = _interpolated(value, out, source)
    for item in node.items:
        found = _interpolated(item, out, source)
        name, equals, text = found.text.partition("=")
        out[name] = replace(found, text=text, unknown=found.unknown if equals else name)
    return out


def _compose_devices(service: Node, source: Source) -> tuple[int, Word] | None:
    listed = service.get("deploy", "resources", "reservations", "devices")
    for device in listed.items if listed is not None else []:
        count = device.get("count")
        if count is not None and count.text.isdigit() and len(count.text) < 6:
            return int(count.text), word(count, source)
        ids = device.get("device_ids")
        if ids is not None and ids.items:
            first = word(ids.items[0], source)
            return len(ids.items), first
    return None
