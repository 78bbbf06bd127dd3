"""Kubernetes manifests for a plan: LeaderWorkerSet, or Kthena's ModelServing with its routing.

    deployment = Deployment("deepseek-v3", "vllm@0.33.0", chip, (Role("server", request, count=2),))
    for manifest in manifests("lws", deployment): print(manifest.name, manifest.text)

Commands are those that `engines.emit` prints: what differs between nodes becomes the index of the pod in its group.
"""

from __future__ import annotations

from mlaplan.manifests.deployment import Deployment, Manifest, Role

__all__ = ["KINDS", "Deployment", "Manifest", "Role", "manifests"]

KINDS = ("lws", "kthena")


def manifests(kind: str, deployment: Deployment) -> list[Manifest]:
    """The files of a deployment, by name and text. Names what cannot be expressed."""
    from mlaplan.manifests import kthena, lws

    return lws.manifests(deployment) if kind == "lws" else kthena.manifests(deployment)
