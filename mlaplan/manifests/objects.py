"""Parts that all objects share: containers, pod specs, and the text of a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlaplan.engines import emit
from mlaplan.engines.handover import HOST
from mlaplan.engines.load import load_profile
from mlaplan.engines.request import EmitRequest
from mlaplan.errors import MlaplanError
from mlaplan.manifests.deployment import MODELS, Deployment, Manifest, Role, file_name, in_store, object_name
from mlaplan.manifests.platform import platform
from mlaplan.manifests.pods import Group, Pod, Variables, group

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip

CLAIM = "model-store"
INTERFACE = "eth0"
# where the server listens, and the words that make it do so for others than its own host
PORTS = {"vllm": 8000, "vllm_ascend": 8000, "sglang": 30000}
LISTEN = {"vllm": (), "vllm_ascend": (), "sglang": ("--host", "0.0.0.0")}
WIDTH = 110


def one_copy(d: Deployment, role: Role, names: Variables) -> Group:
    """The pods of one copy of a role, listening to others."""
    if d.engine_name not in PORTS:
        raise MlaplanError(f"manifests start vLLM, SGLang or vLLM-Ascend; {load_profile(d.engine).label} is none")
    request = replace(role.request, model=in_store(role.request.model), replicas=1, devices=None)
    found = group(emit(d.engine, request), request, model_path(request), names)
    found.leader.add(*LISTEN[d.engine_name], "--port", str(PORTS[d.engine_name]))
    return found


def model_path(request: EmitRequest) -> str:
    """Where a converted copy of the checkpoint lies."""
    return f"{MODELS}/{object_name(request.model.rpartition('/')[2])}-{request.weight_dtype}"


def pod_spec(d: Deployment, role: Role, pod: Pod, *, serves: bool) -> dict[str, Any]:
    """A pod of one container, with the model store, shared memory, and a probe where it serves."""
    port, found, ascend = PORTS[d.engine_name], platform(d, role), d.chip_of(role).efficiency_class == "ascend"
    container: dict[str, Any] = {"name": d.engine_name.replace("_", "-"), "image": found.image, "command": pod.command}
    container["env"] = _env(pod, ascend)
    if serves:
        container["ports"] = [{"name": "http", "containerPort": port}]
        container["readinessProbe"] = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 10}
    devices = {found.resource: str(pod.chips)}
    container["resources"] = {"limits": devices, "requests": dict(devices)}
    mounts = [{"name": "models", "mountPath": MODELS}, {"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [
        {"name": "models", "persistentVolumeClaim": {"claimName": CLAIM}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if ascend:
        mounts.append({"name": "hccn", "mountPath": "/etc/hccn.conf", "readOnly": True})  # type: ignore[dict-item]
        volumes.append({"name": "hccn", "hostPath": {"path": "/etc/hccn.conf", "type": "File"}})
    container["volumeMounts"] = mounts
    selector = {"nodeSelector": dict(found.selector)} if found.selector else {}
    return {**selector, "containers": [container], "volumes": volumes}


def _env(pod: Pod, ascend: bool) -> list[dict[str, Any]]:
    own = [{"name": name, "value": value} for name, value in pod.env.items() if value != HOST]
    own.append({"name": "HF_HOME", "value": f"{MODELS}/hub"})
    addresses = {name: "status.podIP" for name, value in pod.env.items() if value == HOST}
    if ascend:
        addresses["HCCL_IF_IP"] = "status.podIP"
        own += [{"name": f"{name}_SOCKET_IFNAME", "value": INTERFACE} for name in ("HCCL", "GLOO", "TP")]
    return own + [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in addresses.items()]


def manifest(
    d: Deployment, kind: str, api: str, body: dict[str, Any], notes: list[str], *, chip: Chip | None = None,
    name: str = "",
) -> Manifest:  # fmt: skip
    """The file of one object, headed by what it is, what it stands for and what is left to fill in.

    chip: of its pods, where it is not the deployment's. name: of the file, before the kind, likewise.
    """
    import yaml

    label = load_profile(d.engine).label
    lines = [f"{kind} for {_line(d.model)} with {label}", f"fields as in {api}", *notes]
    engine = f"{d.engine_name.replace('_', '-')}@{d.version}"
    model = f" model={d.model_spec}" if d.model_spec and not _unlike(d) else ""
    # roles on chips of their own have node labels instead
    known = f"chip={(chip or d.chip).name}" if chip is not None or d.one_kind else ""
    said = f"{known}{model} engine={engine}".strip()
    text = "".join(f"# {line}\n" for line in lines) + f"# mlaplan: {said}\n"
    text += yaml.safe_dump(body, sort_keys=False, width=WIDTH, allow_unicode=True)
    return Manifest(file_name(name or d.name, kind), text)


def _line(text: str) -> str:
    """A name in a comment: nothing in it begins another line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _unlike(d: Deployment) -> bool:
    """Whether some checkpoint is a converted copy in another dtype than `check` takes for this model and chip."""
    from mlaplan.costs.precision import weight_targets
    from mlaplan.specs.lookup import load_model

    if not any(role.request.weight_conversion for role in d.roles):
        return False
    model = load_model(d.model_spec)
    return any(role.request.weight_dtype != weight_targets(d.chip_of(role), model)[0] for role in d.roles)


def notes(d: Deployment, groups: list[tuple[Role, Group]]) -> list[str]:
    """Devices by role, and placeholders."""
    lines, given = [], d.roles[0].request.model
    found = {role.name: platform(d, role) for role, _ in groups}
    for role, one in groups:
        pods = "1 pod" if one.nodes == 1 else f"{one.nodes} pods"
        copies = "1 copy" if role.count == 1 else f"{role.count} copies"
        lines.append(
            f"{role.name}: {copies} of {pods} and {one.chips} chips: {role.chips} x {found[role.name].resource}"
        )
    lines += d.notes
    lines.append(f"placeholders: the PersistentVolumeClaim {CLAIM} (ReadWriteMany), mounted at {MODELS}")
    for role, _ in groups:
        if role.request.weight_conversion:
            path, dtype = model_path(role.request), role.request.weight_dtype
            lines.append(f"placeholders: {path}, a copy of {_line(given)} converted to {dtype} weights")
            break
    else:
        if d.model != given:
            lines.append(f"placeholders: {d.model}, a copy of {_line(given)}")
    for other in dict.fromkeys(one.other for one in found.values() if one.other):
        lines.append(f"placeholders: the network interface {INTERFACE}; {other} is the resource on CCE")
    for image in dict.fromkeys(one.image for one in found.values() if one.unseen):
        lines.append(f"placeholders: {image} is by pattern: no source names this tag")
    for role, _ in groups:
        if not d.one_kind and not found[role.name].selector:
            lines.append(f"placeholders: a node selector for {role.name}, which runs on {d.chip_of(role).name}")
    return lines


def prepared(d: Deployment, names: Variables) -> list[tuple[Role, Group]]:
    """The groups of all roles."""
    return [(role, one_copy(d, role, names)) for role in d.roles]
