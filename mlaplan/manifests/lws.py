"""A LeaderWorkerSet with a Service: one group of pods for each copy of the plan; two sets and a router for a split.

Fields: kubernetes-sigs/lws v0.10.0, api/leaderworkerset/v1/leaderworkerset_types.go, and Kubernetes v1 and apps/v1. A
set makes a headless service under its own name (pkg/utils/controller/controller_utils.go), in which its leaders are
NAME-INDEX.NAME: other services have other names, and the router finds every leader by its own. LWS v0.9 and later also
have a DisaggregatedSet over such sets, under whose changing names no router could.
"""

from __future__ import annotations

from typing import Any

from mlaplan.engines.handover import ROUTER_PORT, router, router_note
from mlaplan.manifests.deployment import DECODE, PREFILL, SERVER, Deployment, Manifest, Role
from mlaplan.manifests.objects import PORTS, manifest, notes, pod_spec, prepared
from mlaplan.manifests.platform import platform
from mlaplan.manifests.pods import Group, Variables

API = "leaderworkerset.x-k8s.io/v1"
RELEASE = "LWS v0.10.0"
NAMES = Variables("LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX")
LABEL = "leaderworkerset.sigs.k8s.io"
LONGEST = 32  # of a name with a role behind it
# where the router lies in an image, by engine; it is in no image of vLLM
ROUTERS = {"sglang": "", "vllm_ascend": "/vllm-workspace/vllm-ascend/"}


def manifests(d: Deployment) -> list[Manifest]:
    """The set, and the service in front of its leaders; of a split the sets of both roles, and the way in."""
    groups = prepared(d, NAMES)
    if not d.split:
        ((role, group),) = groups
        return [
            manifest(d, "LeaderWorkerSet", f"{API} of {RELEASE}", _set(d, role, group), notes(d, groups)),
            manifest(d, "Service", "v1 of Kubernetes", _leaders(d), ["in front of the leaders, which serve"]),
        ]
    found = []
    for one in groups:
        said = [*notes(d, [one]), *([] if d.engine_name in ROUTERS else _without_image(d))]
        name, chip = _name(d, one[0].name), d.chip_of(one[0])
        body = _set(d, *one)
        found.append(manifest(d, "LeaderWorkerSet", f"{API} of {RELEASE}", body, said, chip=chip, name=name))
    if d.engine_name in ROUTERS:
        said = ["the router in front of both roles, and where it comes from:", _router_from(d)]
        found.append(manifest(d, "Deployment", "apps/v1 of Kubernetes", _router(d), said, name=_name(d, "router")))
        way = ["in front of the router"]
        found.append(manifest(d, "Service", "v1 of Kubernetes", _way_in(d), way, name=_name(d, "router")))
    return found


def _name(d: Deployment, role: str) -> str:
    """The set of a role."""
    return d.name if role == SERVER else f"{d.name[:LONGEST].strip('-')}-{role}"


def _set(d: Deployment, role: Role, group: Group) -> dict[str, Any]:
    leader = {"spec": pod_spec(d, role, group.leader, serves=True)}
    template: dict[str, Any] = {"size": group.nodes, "restartPolicy": "RecreateGroupOnPodRestart"}
    if group.worker is None:  # the leader takes the workers' template where it has none of its own
        template["workerTemplate"] = leader
    else:
        template["leaderTemplate"] = leader
        template["workerTemplate"] = {"spec": pod_spec(d, role, group.worker, serves=False)}
    return {
        "apiVersion": API,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": _name(d, role.name)},
        "spec": {"replicas": role.count, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template},
    }


def _leaders(d: Deployment) -> dict[str, Any]:
    selector = {f"{LABEL}/name": d.name, f"{LABEL}/worker-index": "0"}
    return _service(f"{d.name}-leader", selector, PORTS[d.engine_name])


def _service(name: str, selector: dict[str, str], port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": port, "targetPort": port}]},
    }


# ---- the way into a split ----


def _command(d: Deployment) -> list[str]:
    """The router's words, with every leader of both sets."""
    assert d.connector is not None  # roles of a split hand over
    leaders = {
        role.name: [f"{_name(d, role.name)}-{i}.{_name(d, role.name)}" for i in range(role.count)] for role in d.roles
    }
    return router(d.connector, leaders[PREFILL], leaders[DECODE], PORTS[d.engine_name])


def _router_from(d: Deployment) -> str:
    assert d.connector is not None
    return router_note(d.connector)


def _without_image(d: Deployment) -> list[str]:
    return [f"router: {_router_from(d)}, started where it finds both sets by name:", " ".join(_command(d))]


def _router(d: Deployment) -> dict[str, Any]:
    words, name = _command(d), _name(d, "router")
    if folder := ROUTERS[d.engine_name]:
        words = [f"{folder}{word}" if word.endswith(".py") else word for word in words]
    container = {
        "name": "router",
        "image": platform(d, d.roles[-1]).image,
        "command": words,
        "ports": [{"name": "http", "containerPort": ROUTER_PORT}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


def _way_in(d: Deployment) -> dict[str, Any]:
    name = _name(d, "router")
    return _service(name, {"app": name}, ROUTER_PORT)
