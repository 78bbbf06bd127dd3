"""What is in the files, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle

import pytest

from mlaplan.engines import EmitRequest
from mlaplan.engines.handover import paired
from mlaplan.errors import MlaplanError
from mlaplan.manifests import Deployment, Role, manifests
from mlaplan.manifests.deployment import object_name
from mlaplan.manifests.pods import Variables, group
from mlaplan.specs.lookup import load_chip
from tests.manifests.plans import groups, objects

V3 = "deepseek-ai/DeepSeek-V3"


def deployment(engine: str = "vllm", chip: str = "h200-sxm", roles=("server",), counts=(1, 1), connector=None, **plan):
    spec = load_chip(chip)
    given = {"model": V3, "chip_class": spec.efficiency_class, "chips_per_node": spec.scale_up.host_chips, "batch": 64}
    request = EmitRequest(**{**given, **plan})
    requests = (request,)
    if tuple(roles) == ("prefill", "decode"):
        requests = paired(engine, connector, request, request, None)
    made = tuple(Role(name, one, count) for name, one, count in zip(roles, cycle(requests), counts, strict=False))
    return Deployment("deepseek-v3", engine, spec, made, "deepseek-v3")


def leader(kind: str, d: Deployment) -> dict:
    ((_, _, _, pod, _),) = groups(kind, manifests(kind, d))
    return pod["containers"][0]


def test_files_have_the_name_of_the_deployment_and_say_what_they_are() -> None:
    found = manifests("lws", deployment(tp=8, pp=2))
    assert [one.name for one in found] == ["deepseek-v3-leaderworkerset.yaml", "deepseek-v3-service.yaml"]
    head = [line for line in found[0].text.splitlines() if line.startswith("#")]
    assert head == [
        "# LeaderWorkerSet for deepseek-ai/DeepSeek-V3 with vLLM 0.33.0",
        "# fields as in leaderworkerset.x-k8s.io/v1 of LWS v0.10.0",
        "# server: 1 copy of 2 pods and 16 chips: 16 x nvidia.com/gpu",
        "# placeholders: the PersistentVolumeClaim model-store (ReadWriteMany), mounted at /models",
        "# mlaplan: chip=h200-sxm model=deepseek-v3 engine=vllm@0.33.0",
    ]


def test_the_leader_serves_and_workers_follow_it() -> None:
    ((_, copies, size, first, worker),) = groups("lws", manifests("lws", deployment(counts=(2,), tp=8, pp=2)))
    assert (copies, size) == (2, 2) and worker is not None
    head, tail = first["containers"][0], worker["containers"][0]
    assert head["image"] == tail["image"] == "vllm/vllm-openai:v0.33.0"
    assert "--headless" in tail["command"] and "--headless" not in head["command"]
    assert "$(LWS_LEADER_ADDRESS)" in tail["command"]
    assert head["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000} and "readinessProbe" not in tail
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in first["volumes"]


def test_the_service_finds_leaders_only() -> None:
    service = objects(manifests("lws", deployment(tp=8)))["Service"]["spec"]
    assert service["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    assert service["ports"] == [{"name": "http", "port": 8000, "targetPort": 8000}]


def test_workers_compute_what_they_differ_in() -> None:
    ((_, _, size, _, worker),) = groups("kthena", manifests("kthena", deployment(dp=24, ep=24)))
    assert size == 3 and worker is not None
    shell, flag, script = worker["containers"][0]["command"]
    assert (shell, flag) == ("/bin/sh", "-c")
    assert "--data-parallel-start-rank $((WORKER_INDEX * 8)) --headless" in script


def test_sglang_listens_to_others() -> None:
    container = leader("lws", deployment("sglang", tp=8))
    assert container["command"][-4:] == ["--host", "0.0.0.0", "--port", "30000"]
    assert container["image"] == "lmsysorg/sglang:v0.5.23" and container["ports"][0]["containerPort"] == 30000


def test_ray_workers_wait_for_their_head() -> None:
    ((_, _, _, first, worker),) = groups("lws", manifests("lws", deployment("vllm@0.11.0", tp=8, pp=2)))
    assert worker is not None
    assert first["containers"][0]["command"][2].startswith("ray start --head --port=6379 && exec vllm serve")
    wait = "until ray start --block --address=$(LWS_LEADER_ADDRESS):6379; do sleep 5; done"
    assert worker["containers"][0]["command"][2] == wait


@pytest.mark.parametrize(
    ("chip", "image", "per_pod"),
    [("ascend-910b3", "quay.io/ascend/vllm-ascend:v0.23.0", "8"),
     ("ascend-910c-die", "quay.io/ascend/vllm-ascend:v0.23.0-a3", "16")],
)  # fmt: skip
def test_ascend(chip: str, image: str, per_pod: str) -> None:
    d = deployment("vllm-ascend", chip, dp=32, ep=32, block_size=128, weight_dtype="int8", weight_conversion=True)
    container = leader("kthena", d)
    assert container["image"] == image
    assert container["resources"]["limits"] == {"huawei.com/Ascend910": per_pod}
    assert container["command"][:4] == ["vllm", "serve", "/models/deepseek-v3-int8", "--served-model-name"]
    env = {one["name"]: one for one in container["env"]}
    assert env["HCCL_IF_IP"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    text = manifests("kthena", d)[0].text
    assert "# placeholders: the network interface eth0; huawei.com/ascend-1980 is the resource on CCE" in text


def test_kthena_pairs_prefill_and_decode() -> None:
    d = deployment(roles=("prefill", "decode"), counts=(1, 3), tp=8)
    read = objects(manifests("kthena", d))
    assert [(n, c) for n, c, *_ in groups("kthena", manifests("kthena", d))] == [("prefill", 1), ("decode", 3)]
    server = read["ModelServer"]["spec"]
    assert server["workloadSelector"]["pdGroup"]["decodeLabels"] == {"modelserving.volcano.sh/role": "decode"}
    assert server["kvConnector"] == {"type": "nixl"} and server["inferenceEngine"] == "vLLM"
    assert read["ModelRoute"]["spec"]["rules"][0]["targetModels"] == [{"modelServerName": "deepseek-v3"}]


@pytest.mark.parametrize(
    ("engine", "chip", "roles", "connector"),
    [("vllm", "h200-sxm", ("kv_producer", "kv_consumer"), "NixlConnector"),
     ("vllm-ascend", "ascend-910b3", ("kv_producer", "kv_consumer"), "MooncakeConnectorV1")],
)  # fmt: skip
def test_roles_hand_over_their_cache(engine: str, chip: str, roles: tuple[str, str], connector: str) -> None:
    d = deployment(engine, chip, ("prefill", "decode"), tp=8, block_size=128)
    configs = []
    for _, _, _, pod, _ in groups("kthena", manifests("kthena", d)):
        words = pod["containers"][0]["command"]
        configs.append(json.loads(words[words.index("--kv-transfer-config") + 1]))
    assert tuple(one["kv_role"] for one in configs) == roles
    assert {one["kv_connector"] for one in configs} == {connector}


REFUSED = [
    ("kthena", {"engine": "vllm-ascend", "chip": "ascend-910b3", "roles": ("prefill", "decode"), "tp": 8,
                "block_size": 128, "connector": "mooncake-layerwise"}, "knows no MooncakeLayerwiseConnector: --kv-"),
    ("lws", {"engine": "trtllm", "tp": 8}, "manifests start vLLM, SGLang or vLLM-Ascend; TensorRT-LLM 1.3.0 is none"),
    ("kthena", {"engine": "vllm-ascend", "chip": "ascend-910b3", "roles": ("prefill", "decode"), "tp": 8, "dcp": 8,
                "kv_layout": "sequence_sharded", "block_size": 128}, "--dcp 1 and --cp 1"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "told"), REFUSED)
def test_what_has_no_manifest_is_told(kind: str, given: dict, told: str) -> None:
    with pytest.raises(MlaplanError, match=told):
        manifests(kind, deployment(**given))


def test_unequal_nodes_are_told() -> None:
    with pytest.raises(MlaplanError, match="all workers of a group are alike: choose degrees that fill every node"):
        manifests("lws", deployment(tp=4, dp=5, ep=20))
    with pytest.raises(MlaplanError, match="roles server, decode: expected server alone"):
        deployment(roles=("server", "decode"), tp=8)
    with pytest.raises(MlaplanError, match="role prefill: its plan says nothing of a handover"):
        one = deployment(tp=8)
        replace(one, roles=tuple(replace(one.roles[0], name=n) for n in ("prefill", "decode")))
    request = EmitRequest(model="m", chip_class="nvidia-hopper", tp=8, pp=3)
    texts = [f"vllm serve m --rank {rank}" for rank in (0, 1, 3)]
    with pytest.raises(MlaplanError, match="workers run with 1 and 3"):
        group(texts, request, "/m", Variables("A", "I"))


def test_no_name_leaves_its_comment() -> None:
    for name in ("./a\x07b", "./a\nkind: Pod\u2028x"):
        (serving, *_) = manifests("kthena", deployment(model=name, tp=8))
        (line,) = [line for line in serving.text.splitlines() if "a copy of ./a" in line]
        assert line.startswith("# placeholders: /models/a-") and objects([serving])


def test_a_folder_of_this_host_is_one_of_the_model_store() -> None:
    container = leader("lws", deployment(model="../checkpoints/My Model/", tp=8))
    assert container["command"][:3] == ["vllm", "serve", "/models/my-model"]
    d = deployment(model="../checkpoints/My Model/", tp=8)
    assert objects(manifests("kthena", d))["ModelRoute"]["spec"]["modelName"] == "/models/my-model"
    assert deployment(tp=8).model == V3


def test_names() -> None:
    names = ["deepseek-ai/DeepSeek-V3", "GLM-4.7-Flash", "...", "8B", "x" * 99]
    assert [object_name(n) for n in names] == [
        "deepseek-ai-deepseek-v3", "glm-4-7-flash", "model", "m-8b", "x" * 40,
    ]  # fmt: skip


# ---- two pools ----


def two_pools(engine: str, chips: tuple[str, str], counts=(2, 1), **plan) -> Deployment:
    """Pools on these chips, joined by the usual connector."""
    one, other = (load_chip(name) for name in chips)
    request = EmitRequest(model=V3, chip_class=other.efficiency_class, batch=64, **{"tp": 8, **plan})
    p, d = paired(engine, None, request, request, None)
    roles = Role("prefill", p, counts[0], one), Role("decode", d, counts[1], other)
    return Deployment("deepseek-v3", engine, other, roles, "deepseek-v3", ("priced as a split",))


def test_pools_of_two_kinds_select_their_nodes() -> None:
    d = two_pools("vllm", ("h100-sxm", "h200-sxm"))
    selectors = [pod["nodeSelector"] for *_, pod, _ in groups("kthena", manifests("kthena", d))]
    assert [s["nvidia.com/gpu.product"] for s in selectors] == ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"]
    head = manifests("kthena", d)[0].text.partition("apiVersion")[0]
    assert "chip=" not in head and "# priced as a split" in head
    assert [one.text.partition("chip=")[2].split()[0] for one in manifests("lws", d)[:2]] == ["h100-sxm", "h200-sxm"]
    alike = two_pools("vllm", ("h200-sxm", "h200-sxm"))
    assert all("nodeSelector" not in pod for *_, pod, _ in groups("kthena", manifests("kthena", alike)))


def test_pools_whose_nodes_have_no_known_label_say_so() -> None:
    text = manifests("kthena", two_pools("vllm-ascend", ("ascend-910b3", "ascend-910b4"), block_size=128))[0].text
    assert "# placeholders: a node selector for prefill, which runs on ascend-910b3" in text


def test_two_sets_and_a_router_that_knows_every_leader() -> None:
    found = manifests("lws", two_pools("sglang", ("h200-sxm", "h200-sxm"), tp=16))
    assert [one.name for one in found] == [
        "deepseek-v3-prefill-leaderworkerset.yaml", "deepseek-v3-decode-leaderworkerset.yaml",
        "deepseek-v3-router-deployment.yaml", "deepseek-v3-router-service.yaml",
    ]  # fmt: skip
    (container,) = objects(found)["Deployment"]["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    leaders = [words[i + 1] for i, word in enumerate(words) if word in ("--prefill", "--decode")]
    assert leaders == [f"http://deepseek-v3-{name}:30000" for name in (
        "prefill-0.deepseek-v3-prefill", "prefill-1.deepseek-v3-prefill", "decode-0.deepseek-v3-decode")]  # fmt: skip
    assert container["ports"][0]["containerPort"] == objects(found)["Service"]["spec"]["ports"][0]["port"]
    roles = [(role, copies, pods) for role, copies, pods, *_ in groups("lws", found)]
    assert roles == [("prefill", 2, 2), ("decode", 1, 2)]


def test_where_no_image_has_the_router_its_command_is_told() -> None:
    found = manifests("lws", two_pools("vllm", ("h200-sxm", "h200-sxm")))
    assert {one["kind"] for one in (objects([f])[next(iter(objects([f])))] for f in found)} == {"LeaderWorkerSet"}
    assert (
        "# router: tests/v1/kv_connector/nixl_integration/toy_proxy_server.py of the vllm repository" in found[0].text
    )
    assert "--prefiller-hosts deepseek-v3-prefill-0.deepseek-v3-prefill deepseek-v3-prefill-1" in found[1].text
    ascend = manifests("lws", two_pools("vllm-ascend", ("ascend-910b3", "ascend-910b3"), block_size=128))
    (container,) = objects(ascend)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][1].startswith("/vllm-workspace/vllm-ascend/examples/")


def test_a_set_s_own_service_keeps_its_name() -> None:
    read = objects(manifests("lws", deployment(tp=8)))
    assert read["Service"]["metadata"]["name"] == "deepseek-v3-leader"
    assert read["LeaderWorkerSet"]["metadata"]["name"] == "deepseek-v3"


def test_nixl_is_reached_by_the_pod_s_own_address() -> None:
    for *_, pod, _ in groups("kthena", manifests("kthena", two_pools("vllm", ("h200-sxm", "h200-sxm")))):
        env = {one["name"]: one for one in pod["containers"][0]["env"]}
        address = env["VLLM_NIXL_SIDE_CHANNEL_HOST"]
        assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}} and "value" not in address
