"""Names in deployments to chips and models: served names, folders with a config.json, node labels."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mlaplan.errors import SpecError, UnknownName
from mlaplan.specs import source
from mlaplan.specs.lookup import load_chip, load_model, model_names

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

RACK = 16  # chips; above, the scale-up link joins more than a host
# What node labels, cloud accelerators and machine types say of the chip, most telling first. Label values are those
# of NVIDIA's GPU feature discovery (nvidia.com/gpu.product), GKE (cloud.google.com/gke-accelerator) and EC2.
LABELS = (
    (r"gb200", "gb200"),
    (r"\bb200|nvidia-b200|p6-b200", "b200-sxm"),
    (r"h200|p5en?\.48xlarge-h200|p5en\.48xlarge|p5e\.48xlarge", "h200-sxm"),
    (r"h100.*(pcie|nvl)", "h100-pcie"),
    (r"h100|p5\.48xlarge|a3-(high|mega)gpu", "h100-sxm"),
    (r"h800", "h800-sxm"),
    (r"h20-3e|h20.*141", "h20-3e"),
    (r"\bh20\b|nvidia-h20\b", "h20"),
    (r"a100.*80gb|p4de\.24xlarge|a2-ultragpu", "a100-sxm-80g"),
    (r"mi300x", "mi300x"),
    (r"mi355x", "mi355x"),
)  # fmt: skip


@lru_cache(maxsize=64)
def chip_of_label(label: str) -> str | None:
    """The chip that a node label's value names, or None."""
    text = label.lower()
    if "mig" in text.split("-"):
        return None
    return next((chip for pattern, chip in LABELS if re.search(pattern, text)), None)


# chips and models are kept to the end: what is priced is known again by their identity
@cache
def chip(name: str, engine: str, node: int | None = None, hosts: int | None = None, release: str | None = None) -> Chip:
    """The chip of this name, with the fits of this engine, in nodes that may be smaller than its file says.

    node: chips of one, as it is said. hosts: as pods or processes suggest it, which says nothing of racks, where the
    scale-up link joins many hosts.
    """
    found = load_chip(name, (), engine, release)
    own = found.scale_up.chips_per_node
    node = node or (hosts if own <= RACK else None)
    if node is None or node >= own:
        return found
    return load_chip(name, (f"scale_up.chips_per_node={node}",), engine, release)


@cache
def model(name: str) -> Model:
    """The model of this name or file."""
    return load_model(name)


@lru_cache(maxsize=1)
def _texts(_folder: Path) -> list[tuple[str, str, str]]:
    """Name, file and text in small letters of every model that is known in the working folder."""
    found = []
    for stem, file in model_names():
        try:
            found.append((stem.lower(), file, source.read_bytes(file).decode("utf-8", "replace").lower()))
        except SpecError:
            continue
    return found


@lru_cache(maxsize=4096)
def model_file(served: str) -> str | None:
    """The file of the model that is served under this name: a published name, or a path that ends in one."""
    wanted = served.rstrip("/").lower()
    last = PurePosixPath(wanted).name
    if not last:
        return None
    for stem, file, text in _texts(Path.cwd()):
        if stem == last:
            return file
        if f"/{last}" not in text:  # most files need no more than this
            continue
        try:
            names = source.read(file).data.get("served_names") or []
        except SpecError:
            continue
        if any(last == str(name).lower().rpartition("/")[2] for name in names):
            return file
    return None


def model_near(served: str, beside: Path | None) -> str | None:
    """The config.json of a model given as a relative path, if it lies in the tree that is checked."""
    if beside is None or served.startswith(("/", "~")) or "$" in served or "\0" in served:
        return None
    try:
        config = beside / served / "config.json"
        if not config.is_file():
            return None
        root, config = beside.resolve(), config.resolve()
        inside = config.is_relative_to(root)
    except (OSError, ValueError):
        return None
    return str(config) if inside else None


def found_model(name: str) -> Model | None:
    """The model, or None where its file cannot be priced or read: then it says so when it is checked itself."""
    try:
        return model(name)
    except (SpecError, UnknownName):
        return None


@lru_cache(maxsize=64)
def heads(file: str) -> int | None:
    """Attention heads in a config.json whose architecture has no cost model."""
    try:
        data = source.read(file).data
    except SpecError:
        return None
    inner = data.get("text_config")
    found = (inner if isinstance(inner, dict) else data).get("num_attention_heads")
    return found if isinstance(found, int) and 0 < found < 100_000 else None
