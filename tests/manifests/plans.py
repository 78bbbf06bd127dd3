"""Deployments drawn for the tests of manifests, and what is read back from their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import yaml
from hypothesis import assume
from hypothesis import strategies as st

from mlaplan.engines import EmitRequest, engine_versions, load_profile
from mlaplan.engines.connectors import connectors
from mlaplan.engines.handover import paired
from mlaplan.manifests import Deployment, Manifest, Role
from mlaplan.specs.chip import Chip
from mlaplan.specs.lookup import chip_names, load_chip

ENGINES = [f"{name}@{version}" for name in ("vllm", "sglang", "vllm_ascend") for version in engine_versions(name)]
MODELS = ("deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2-Instruct", "./my model", "a'b", "$HOME/x")
POWERS = st.sampled_from([1, 2, 4, 8, 16])
DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "huawei.com/Ascend910")


@cache
def chips(engine: str) -> list[Chip]:
    """Chips that clusters schedule and this engine runs on."""
    profile = load_profile(engine)
    found = [load_chip(name) for name, _ in chip_names()]
    found = [c for c in found if c.efficiency_class in profile.runs_on and c.name not in profile.not_on]
    return [c for c in found if c.efficiency_class not in ("generic", "sophgo") and profile.kv_dtypes(
        c.efficiency_class, "mla")]  # fmt: skip


@st.composite
def requests(draw: st.DrawFn, engine: str, chip: Chip, model: str) -> EmitRequest:
    """A plan over some nodes of the chip, most of which the engine can express."""
    profile, chip_class = load_profile(engine), chip.efficiency_class
    tp, pp, dp = draw(POWERS), draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([1, 1, 2, 3, 4, 8, 16]))
    dtype = draw(st.sampled_from(profile.kv_dtypes(chip_class, "mla")))
    layers = draw(st.sampled_from([(), (31, 30)])) if pp == 2 else ()
    return EmitRequest(
        model=model,
        chip_class=chip_class,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=draw(st.sampled_from([1, tp * dp])),
        pp_layers=layers,
        kv_dtype=dtype,
        block_size=draw(st.sampled_from(profile.kv_blocks(chip_class, "mla", dtype))),
        batch=draw(st.integers(1, 600)),
        mtp=draw(st.integers(0, 1)) if pp == 1 else 0,
        weight_dtype=draw(st.sampled_from(["fp8", "int8", "bf16"])),
        weight_conversion=draw(st.booleans()),
        max_model_len=draw(st.integers(1, 10**6)),
        memory_fraction=draw(st.none() | st.sampled_from([0.9, 0.92])),
        chips_per_node=chip.scale_up.host_chips,
    )


@st.composite
def deployments(draw: st.DrawFn, engine: str, *, split: bool | None = None) -> Deployment:
    """One role, or two that prefill and decode."""
    chip, model = draw(st.sampled_from(chips(engine))), draw(st.sampled_from(MODELS))
    one = draw(requests(engine, chip, model))
    if not (draw(st.booleans()) if split is None else split):
        return Deployment("some-model", engine, chip, (Role("server", one, draw(st.integers(1, 4))),))
    one, other = draw(pairs(engine, chip, one))
    roles = Role("prefill", one, draw(st.integers(1, 4))), Role("decode", other, draw(st.integers(1, 4)))
    return Deployment("some-model", engine, chip, roles)


@st.composite
def pairs(draw: st.DrawFn, engine: str, chip: Chip, one: EmitRequest) -> tuple[EmitRequest, EmitRequest]:
    """The request in the prefill pool, and another of the same cache in the decode pool, joined."""
    found = connectors(engine, chip.efficiency_class)
    assume(found)
    c = draw(st.sampled_from(found))
    p = replace(one, pp=1, pp_layers=()) if not c.prefill_pp else one
    fits = {"equal": lambda n: n == p.tp, "prefill": lambda n: p.tp % n == 0}.get(c.tp, lambda n: n % p.tp == 0)
    tp, dp = draw(st.sampled_from([n for n in (1, 2, 4, 8, 16) if fits(n)])), draw(st.sampled_from([1, 2, 4, 8]))
    ep, batch = draw(st.sampled_from([1, tp * dp])), draw(st.integers(1, 600))
    return paired(engine, c.name, p, replace(p, pp=1, pp_layers=(), tp=tp, dp=dp, ep=ep, batch=batch), None)


def objects(found: list[Manifest]) -> dict[str, dict[str, Any]]:
    """The objects of the files by kind; of several of one kind the last."""
    return {one["kind"]: one for one in everything(found)}


def everything(found: list[Manifest]) -> list[dict[str, Any]]:
    """The objects of the files in their order."""
    return [yaml.safe_load(one.text) for one in found]


def groups(kind: str, found: list[Manifest]) -> Iterator[tuple[str, int, int, dict[str, Any], dict[str, Any] | None]]:
    """(role, copies, pods of a copy, spec of the leader, spec of a worker) of each role."""
    read = objects(found)
    if kind == "lws":
        sets = [one for one in everything(found) if one["kind"] == "LeaderWorkerSet"]
        for one in sets:
            spec, role = one["spec"], "server" if len(sets) == 1 else one["metadata"]["name"].rpartition("-")[2]
            template = spec["leaderWorkerTemplate"]
            worker = template["workerTemplate"]["spec"]
            leader = template.get("leaderTemplate", template["workerTemplate"])["spec"]
            yield role, spec["replicas"], template["size"], leader, worker if template["size"] > 1 else None
        return
    spec = read["ModelServing"]["spec"]
    for role in spec["template"]["roles"]:
        worker = role["workerTemplate"]["spec"] if role["workerReplicas"] else None
        entry = role["entryTemplate"]["spec"]
        yield role["name"], spec["replicas"] * role["replicas"], 1 + role["workerReplicas"], entry, worker


def devices(pod: dict[str, Any]) -> int:
    """Devices that the one container of a pod asks for."""
    (container,) = pod["containers"]
    limits = container["resources"]["limits"]
    assert container["resources"]["requests"] == limits
    (name,) = limits
    assert name in DEVICES
    return int(limits[name])
