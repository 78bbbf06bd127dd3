"""Of every plan: devices, copies and commands are the plan's, whatever the chip, the engine and the degrees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlaplan.engines import EmitRequest, parse
from mlaplan.errors import MlaplanError
from mlaplan.manifests import KINDS, Deployment, manifests
from tests.manifests.plans import ENGINES, deployments, devices, groups

PLAN = ("tp", "pp", "dp", "ep", "kv_dtype", "block_size", "mtp", "batch", "max_model_len", "memory_fraction")


@pytest.mark.parametrize("engine", ENGINES)
def test_devices_are_those_of_the_plan(engine: str) -> None:
    drawn = {"told": 0, "made": 0}

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(deployments(engine), st.sampled_from(KINDS))
    def check(d: Deployment, kind: str) -> None:
        try:
            found = manifests(kind, d)
        except MlaplanError as error:
            assert str(error).strip() and "Traceback" not in str(error)
            drawn["told"] += 1
            return
        drawn["made"] += 1
        total = 0
        for role, (name, copies, pods, leader, worker) in zip(d.roles, groups(kind, found), strict=True):
            assert (name, copies) == (role.name, role.count)
            of_copy = devices(leader) + (pods - 1) * (devices(worker) if worker else 0)
            assert of_copy == role.request.world
            assert all(devices(pod) <= d.chip.scale_up.host_chips for pod in (leader, worker) if pod)
            total += copies * of_copy
        assert total == d.chips == sum(role.request.world * role.count for role in d.roles)

    check()
    assert drawn["made"] > drawn["told"] / 4  # the rest is refused in words: shares, experts, MTP with PP


@pytest.mark.parametrize("engine", ENGINES)
def test_commands_say_the_plan(engine: str) -> None:
    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(deployments(engine), st.sampled_from(KINDS))
    def check(d: Deployment, kind: str) -> None:
        try:
            found = manifests(kind, d)
        except MlaplanError:
            return
        for role, (_, _, _, leader, worker) in zip(d.roles, groups(kind, found), strict=True):
            of_role(d, role.request, leader, worker)

    def of_role(d: Deployment, request: EmitRequest, leader: dict[str, Any], worker: dict[str, Any] | None) -> None:
        for pod in (leader, worker):
            (container,) = pod["containers"] if pod else ({"command": ["ray", "start"]},)
            command = container["command"]
            text = command if command[:2] != ["/bin/sh", "-c"] else command[2].replace("exec ", "")
            if "ray start --block" in text or command[:2] == ["ray", "start"]:
                continue
            if isinstance(text, str):  # commands before the server's
                text = text.rpartition("&& ")[2].replace("$((", "").replace(" * ", "").replace("))", "")
                text = text.replace("LWS_WORKER_INDEX", "1").replace("WORKER_INDEX", "1")
            else:
                text = [word.replace("$(LWS_WORKER_INDEX)", "1").replace("$(WORKER_INDEX)", "1") for word in text]
            plan = parse(engine, text)
            assert {k: plan[k] for k in PLAN} == {k: getattr(request, k) for k in PLAN}
            part, given_part = plan["handover"], request.handover
            assert (part and (part.role, part.connector)) == (given_part and (given_part.role, given_part.connector))
            served = plan["served_model_name"] if request.weight_conversion else plan["model"]
            assert served == d.model and (d.model == request.model or d.model.startswith("/models/"))
            env = {one["name"]: one.get("value") for one in container["env"]}
            partition = next((env[k] for k in env if k.endswith("PP_LAYER_PARTITION")), None)
            if pod is leader:
                assert partition == (",".join(map(str, request.pp_layers)) or None)

    check()
