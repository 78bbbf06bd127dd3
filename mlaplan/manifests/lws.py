"""A LeaderWorkerSet with a Service: one group of pods for each copy of the plan.

Fields: kubernetes-sigs/lws v0.10.0, api/leaderworkerset/v1/leaderworkerset_types.go, and Kubernetes v1.
"""

from __future__ import annotations

from typing import Any

from mlaplan.errors import MlaplanError
from mlaplan.manifests.deployment import Deployment, Manifest
from mlaplan.manifests.objects import PORTS, manifest, notes, pod_spec, prepared
from mlaplan.manifests.pods import Variables

API = "leaderworkerset.x-k8s.io/v1"
RELEASE = "LWS v0.10.0"
NAMES = Variables("LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX")
LABEL = "leaderworkerset.sigs.k8s.io"


def manifests(d: Deployment) -> list[Manifest]:
    """The set, and the service in front of its leaders."""
    if d.split:
        raise MlaplanError("a LeaderWorkerSet has one role: --emit kthena has prefill and decode")
    groups, found = prepared(d, NAMES)
    ((role, group),) = groups
    leader = {"spec": pod_spec(d, group.leader, found, serves=True)}
    template: dict[str, Any] = {"size": group.nodes, "restartPolicy": "RecreateGroupOnPodRestart"}
    if group.worker is None:  # the leader takes the workers' template where it has none of its own
        template["workerTemplate"] = leader
    else:
        template["leaderTemplate"] = leader
        template["workerTemplate"] = {"spec": pod_spec(d, group.worker, found, serves=False)}
    body = {
        "apiVersion": API,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": d.name},
        "spec": {"replicas": role.count, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template},
    }
    return [
        manifest(d, "LeaderWorkerSet", f"{API} of {RELEASE}", body, notes(d, groups, found)),
        manifest(d, "Service", "v1 of Kubernetes", _service(d), ["in front of the leaders, which serve"]),
    ]


def _service(d: Deployment) -> dict[str, Any]:
    port = PORTS[d.engine_name]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": d.name},
        "spec": {
            "selector": {f"{LABEL}/name": d.name, f"{LABEL}/worker-index": "0"},
            "ports": [{"name": "http", "port": port, "targetPort": port}],
        },
    }
