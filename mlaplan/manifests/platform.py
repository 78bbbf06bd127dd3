"""Device resources and images of a deployment, from `platforms.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.engines.load import engine_versions, load_profile
from mlaplan.errors import MlaplanError
from mlaplan.manifests.deployment import Deployment, Role

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip


class Platform(NamedTuple):
    """`other`: the resource's name under another device plugin. `unseen`: the tag is to be checked.

    selector: the label of the nodes that have this chip, where the roles have different ones; empty if none is known.
    """

    resource: str
    image: str
    other: str | None
    unseen: bool
    selector: dict[str, str]


def platform(d: Deployment, role: Role) -> Platform:
    """What the containers of a role ask for and run."""
    chip, label = d.chip_of(role), load_profile(d.engine).label
    chip_class = chip.efficiency_class
    device = next((row for row in _data()["resources"] if chip_class in row["classes"]), None)
    if device is None:
        raise MlaplanError(f"no Kubernetes device plugin is known for {chip.title}")
    image = next((row for row in _data()["images"] if _holds(row, d, chip)), None)
    if image is None:
        raise MlaplanError(f"no image of {label} is known for {chip.title}")
    value = {} if d.one_kind else _data()["node_labels"].get(chip.name, {})
    return Platform(
        device["resource"],
        image["image"].format(version=d.version),
        device.get("other"),
        image.get("unseen", False),
        value,
    )


def _holds(row: dict[str, Any], d: Deployment, chip: Chip) -> bool:
    known = engine_versions(d.engine_name)
    return (
        row["engine"] == d.engine_name
        and chip.efficiency_class in row["classes"]
        and chip.name in row.get("chips", (chip.name,))
        and known.index(d.version) >= known.index(row.get("since", known[0]))
    )


@cache
def _data() -> dict[str, Any]:
    from mlaplan.specs.source import read

    found: dict[str, Any] = read(Path(__file__).with_name("platforms.yaml")).data
    return found
