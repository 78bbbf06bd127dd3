"""Device resources and images of a deployment, from `platforms.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mlaplan.engines.load import engine_versions, load_profile
from mlaplan.errors import MlaplanError
from mlaplan.manifests.deployment import Deployment


class Platform(NamedTuple):
    """`other`: the resource's name under another device plugin. `unseen`: the tag is to be checked."""

    resource: str
    image: str
    other: str | None
    unseen: bool


def platform(d: Deployment) -> Platform:
    """What the containers of a deployment ask for and run."""
    chip_class, label = d.chip.efficiency_class, load_profile(d.engine).label
    device = next((row for row in _data()["resources"] if chip_class in row["classes"]), None)
    if device is None:
        raise MlaplanError(f"no Kubernetes device plugin is known for {d.chip.title}")
    image = next((row for row in _data()["images"] if _holds(row, d)), None)
    if image is None:
        raise MlaplanError(f"no image of {label} is known for {d.chip.title}")
    return Platform(
        device["resource"],
        image["image"].format(version=d.version),
        device.get("other"),
        image.get("unseen", False),
    )


def _holds(row: dict[str, Any], d: Deployment) -> bool:
    known = engine_versions(d.engine_name)
    return (
        row["engine"] == d.engine_name
        and d.chip.efficiency_class in row["classes"]
        and d.chip.name in row.get("chips", (d.chip.name,))
        and known.index(d.version) >= known.index(row.get("since", known[0]))
    )


@cache
def _data() -> dict[str, Any]:
    from mlaplan.specs.source import read

    found: dict[str, Any] = read(Path(__file__).with_name("platforms.yaml")).data
    return found
