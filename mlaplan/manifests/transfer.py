"""How a prefill server hands its cache to a decode server: flags of each role, by engine.

Sources: vllm docs/features/nixl_connector_usage.md; volcano-sh/kthena examples/model-serving (v1.0.0);
vllm-ascend docs/source/tutorials/models/DeepSeek-V3.1.md (MooncakeConnectorV1 exists from 0.11 on).
"""

from __future__ import annotations

import json

from mlaplan.errors import MlaplanError
from mlaplan.manifests.deployment import PREFILL, Deployment, Role

# what the router in front must know
CONNECTOR = {"vllm": "nixl", "vllm_ascend": "mooncake", "sglang": "http"}
KV_PORT = {"prefill": "30000", "decode": "30100"}


def flags(d: Deployment, role: Role) -> list[str]:
    """Further words of a role's command; none where a server does both."""
    if not d.split:
        return []
    if d.engine_name == "sglang":
        return ["--disaggregation-mode", role.name, "--disaggregation-transfer-backend", "mooncake"]
    config: dict[str, object] = {"kv_connector": "NixlConnector"}
    if d.engine_name == "vllm_ascend":
        if any(max(r.request.dcp, r.request.cp) > 1 for r in d.roles):
            raise MlaplanError("vLLM-Ascend hands over a cache divided by context parallelism in whole blocks only: "
                               "choose --dcp 1 and --cp 1")  # fmt: skip
        config = {"kv_connector": "MooncakeConnectorV1", "kv_port": KV_PORT[role.name]}
    config["kv_role"] = "kv_producer" if role.name == PREFILL else "kv_consumer"
    if d.engine_name == "vllm_ascend":
        config["kv_connector_extra_config"] = {
            r.name: {"dp_size": r.request.dp, "tp_size": r.request.tp} for r in d.roles
        }
    return ["--kv-transfer-config", json.dumps(config)]


def side_channel(d: Deployment) -> dict[str, str]:
    """Environment that takes the pod's own address, by name."""
    return {"VLLM_NIXL_SIDE_CHANNEL_HOST": "status.podIP"} if d.split and d.engine_name == "vllm" else {}
