"""Core kinds against Kubernetes' own schema, custom kinds against a minimal one of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from mlaplan.errors import MlaplanError
from mlaplan.manifests import KINDS, Deployment, manifests
from tests.manifests.plans import deployments, everything

kubernetes = pytest.importorskip("kubernetes_validate", reason="the extra `manifests` is not installed")
jsonschema = pytest.importorskip("jsonschema", reason="the extra `manifests` is not installed")

HERE = Path(__file__).parent / "schemas"
OURS = {path.stem: json.loads(path.read_text()) for path in HERE.iterdir()}


def pods(value: Any) -> Iterator[dict[str, Any]]:
    """Specs of pods, wherever they are."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pods(inner)


def check(kind: str, body: dict[str, Any]) -> None:
    """The object and all pods in it are valid."""
    if kind.lower() in OURS:
        jsonschema.Draft202012Validator(OURS[kind.lower()]).validate(body)
    else:
        kubernetes.validate(body, kubernetes.latest_version(), strict=True)
    for spec in pods(body):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes.validate(pod, kubernetes.latest_version(), strict=True)


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.11.0", "sglang", "vllm_ascend"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_object_is_valid(kind: str, engine: str) -> None:
    seen: set[str] = set()

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(deployments(engine))
    def valid(d: Deployment) -> None:
        try:
            found = manifests(kind, d)
        except MlaplanError:
            return
        for body in everything(found):
            check(body["kind"], body)
            seen.add(body["kind"])

    valid()
    wanted = {"LeaderWorkerSet", "Service"} if kind == "lws" else {"ModelServing", "ModelServer", "ModelRoute"}
    assert wanted <= seen <= wanted | {"Deployment"}


@pytest.mark.parametrize("schema", OURS.values(), ids=OURS)
def test_our_schemas_are_schemas(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_wrong_field_is_seen() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"port": []}}
    with pytest.raises(kubernetes.ValidationError):
        check("Service", service)
    route = {"apiVersion": "networking.serving.volcano.sh/v1alpha1", "kind": "ModelRoute", "metadata": {"name": "x"},
             "spec": {"modelName": "x", "rules": [{"targetModels": []}]}}  # fmt: skip
    with pytest.raises(jsonschema.ValidationError):
        check("ModelRoute", route)
