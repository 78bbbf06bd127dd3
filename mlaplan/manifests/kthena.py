"""Kthena: a ModelServing with a role for each task, the ModelServer that finds its pods, and the ModelRoute to it.

Fields: volcano-sh/kthena v1.0.0, pkg/apis/{workload,networking}/v1alpha1.
"""

from __future__ import annotations

from typing import Any

from mlaplan.errors import MlaplanError
from mlaplan.manifests.deployment import DECODE, PREFILL, Deployment, Manifest, Role
from mlaplan.manifests.objects import PORTS, manifest, notes, pod_spec, prepared
from mlaplan.manifests.pods import Group, Variables

WORKLOAD = "workload.serving.volcano.sh/v1alpha1"
NETWORKING = "networking.serving.volcano.sh/v1alpha1"
RELEASE = "Kthena v1.0.0"
NAMES = Variables("ENTRY_ADDRESS", "WORKER_INDEX")
LABEL = "modelserving.volcano.sh"
ENTRY = {f"{LABEL}/entry": "true"}  # the pod of a group that serves
# what its router must know to pass a request from one role to the other, by engine and connector
CONNECTORS = {
    ("vllm", "nixl"): "nixl",
    ("vllm_ascend", "mooncake"): "mooncake",
    ("sglang", "mooncake"): "http",
    ("sglang", "nixl"): "http",
    ("sglang", "ascend"): "http",
}
ENGINES = {"vllm": "vLLM", "vllm_ascend": "vLLM", "sglang": "SGLang"}


def manifests(d: Deployment) -> list[Manifest]:
    """The workload, and the way to it."""
    groups = prepared(d, NAMES)
    serving = {
        "apiVersion": WORKLOAD,
        "kind": "ModelServing",
        "metadata": {"name": d.name},
        "spec": {
            "replicas": 1,
            "schedulerName": "volcano",
            "recoveryPolicy": "RoleRecreate",
            "template": {"roles": [_role(d, role, group) for role, group in groups]},
        },
    }
    return [
        manifest(d, "ModelServing", f"{WORKLOAD} of {RELEASE}", serving, notes(d, groups)),
        manifest(d, "ModelServer", f"{NETWORKING} of {RELEASE}", _server(d), ["finds the pods that serve"]),
        manifest(d, "ModelRoute", f"{NETWORKING} of {RELEASE}", _route(d), ["requests by the model's name"]),
    ]


def _role(d: Deployment, role: Role, group: Group) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": role.name,
        "replicas": role.count,
        "entryTemplate": {"spec": pod_spec(d, role, group.leader, serves=True)},
        "workerReplicas": group.nodes - 1,
    }
    if group.worker is not None:
        out["workerTemplate"] = {"spec": pod_spec(d, role, group.worker, serves=False)}
    return out


def _server(d: Deployment) -> dict[str, Any]:
    selector: dict[str, Any] = {"matchLabels": {f"{LABEL}/name": d.name, **ENTRY}}
    spec: dict[str, Any] = {
        "model": d.model,
        "inferenceEngine": ENGINES[d.engine_name],
        "workloadSelector": selector,
        "workloadPort": {"port": PORTS[d.engine_name]},
    }
    if d.split:
        selector["pdGroup"] = {
            "groupKey": f"{LABEL}/group-name",
            "prefillLabels": {f"{LABEL}/role": PREFILL},
            "decodeLabels": {f"{LABEL}/role": DECODE},
        }
        spec["kvConnector"] = {"type": _connector(d)}
    return {"apiVersion": NETWORKING, "kind": "ModelServer", "metadata": {"name": d.name}, "spec": spec}


def _connector(d: Deployment) -> str:
    c = d.connector
    assert c is not None  # roles of a split hand over
    if (c.engine, c.name) not in CONNECTORS:
        known = [name for engine, name in CONNECTORS if engine == c.engine]
        raise MlaplanError(f"the router of {RELEASE} knows no {c.word}: --kv-connector {' or '.join(known)}")
    return CONNECTORS[c.engine, c.name]


def _route(d: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": NETWORKING,
        "kind": "ModelRoute",
        "metadata": {"name": d.name},
        "spec": {
            "modelName": d.model,
            "rules": [{"name": "default", "targetModels": [{"modelServerName": d.name}]}],
        },
    }
