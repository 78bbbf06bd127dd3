"""Kthena: a ModelServing with a role for each task, the ModelServer that finds its pods, and the ModelRoute to it.

Fields: volcano-sh/kthena v1.0.0, pkg/apis/{workload,networking}/v1alpha1.
"""

from __future__ import annotations

from typing import Any

from mlaplan.manifests import transfer
from mlaplan.manifests.deployment import DECODE, PREFILL, Deployment, Manifest, Role
from mlaplan.manifests.objects import PORTS, manifest, notes, pod_spec, prepared
from mlaplan.manifests.platform import Platform
from mlaplan.manifests.pods import Group, Variables

WORKLOAD = "workload.serving.volcano.sh/v1alpha1"
NETWORKING = "networking.serving.volcano.sh/v1alpha1"
RELEASE = "Kthena v1.0.0"
NAMES = Variables("ENTRY_ADDRESS", "WORKER_INDEX")
LABEL = "modelserving.volcano.sh"
ENTRY = {f"{LABEL}/entry": "true"}  # the pod of a group that serves
ENGINES = {"vllm": "vLLM", "vllm_ascend": "vLLM", "sglang": "SGLang"}


def manifests(d: Deployment) -> list[Manifest]:
    """The workload, and the way to it."""
    groups, found = prepared(d, NAMES)
    said = notes(d, groups, found)
    if d.split:
        said.append("prefill and decode run the plan given for each; the pair was not priced as a split deployment")
    serving = {
        "apiVersion": WORKLOAD,
        "kind": "ModelServing",
        "metadata": {"name": d.name},
        "spec": {
            "replicas": 1,
            "schedulerName": "volcano",
            "recoveryPolicy": "RoleRecreate",
            "template": {"roles": [_role(d, role, group, found) for role, group in groups]},
        },
    }
    return [
        manifest(d, "ModelServing", f"{WORKLOAD} of {RELEASE}", serving, said),
        manifest(d, "ModelServer", f"{NETWORKING} of {RELEASE}", _server(d), ["finds the pods that serve"]),
        manifest(d, "ModelRoute", f"{NETWORKING} of {RELEASE}", _route(d), ["requests by the model's name"]),
    ]


def _role(d: Deployment, role: Role, group: Group, found: Platform) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": role.name,
        "replicas": role.count,
        "entryTemplate": {"spec": pod_spec(d, group.leader, found, serves=True)},
        "workerReplicas": group.nodes - 1,
    }
    if group.worker is not None:
        out["workerTemplate"] = {"spec": pod_spec(d, group.worker, found, serves=False)}
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
        spec["kvConnector"] = {"type": transfer.CONNECTOR[d.engine_name]}
    return {"apiVersion": NETWORKING, "kind": "ModelServer", "metadata": {"name": d.name}, "spec": spec}


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
