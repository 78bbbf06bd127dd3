"""vLLM-Ascend: a plan to `vllm serve` commands with the plugin's own options, and back.

The plugin picks attention, all-to-all and collectives by itself; decode steps are captured as ACL graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.engines import handover, launch, vllm
from mlaplan.engines.flags import CommandLine, FlagTable
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.engines.launch import Command
    from mlaplan.engines.profile import Profile
    from mlaplan.engines.request import EmitRequest

GRAPHS = {"cudagraph_mode": "FULL_DECODE_ONLY"}
NETWORK = "# HCCL_IF_IP, and GLOO_, TP_ and HCCL_SOCKET_IFNAME: this node's address and interface, set on each node"
CONVERTED = ("int8", "int4")  # by ModelSlim, whose checkpoints the flag is for


def emit(profile: Profile, table: FlagTable, request: EmitRequest) -> list[str]:
    """One text per node: comments and commands. The first node serves."""
    if request.all_to_all not in ("default", "auto"):
        raise MlaplanError(f"all_to_all={request.all_to_all}: {profile.label} picks one by the tokens of each step")
    count = vllm.nodes(profile, table, request)
    return [_node(profile, table, request, node, count) for node in range(count)]


def _node(profile: Profile, table: FlagTable, request: EmitRequest, node: int, nodes: int) -> str:
    lines = launch.heading(request, profile.label, node, nodes)
    if nodes > 1:
        lines.append(NETWORK)
    command = vllm.started(table, request, node, nodes, lines)
    if command is None:
        return "\n".join(lines)
    if request.weight_conversion and request.weight_dtype in CONVERTED:
        command.add("--quantization", "ascend")
    _cache(command, request)
    vllm.scheduler(profile, command, request)
    command.add("--compilation-config", GRAPHS)
    handover.add(f"vllm_ascend@{profile.version}", command, request)
    return "\n".join([*lines, command.text()])


def _cache(command: Command, request: EmitRequest) -> None:
    """The cache has the model's dtype: an override of it breaks MLA (vllm-project/vllm-ascend issue 7685)."""
    if request.kv_dtype == "fp16":
        command.add("--dtype", "float16")
    command.add("--block-size", request.block_size)
    if request.memory_fraction is not None:
        command.add("--gpu-memory-utilization", request.memory_fraction)


def parse(profile: Profile, line: CommandLine, env: dict[str, str], attention: str) -> dict[str, Any]:
    """The plan in a command line, by the names of EmitRequest; None for what it leaves to the engine."""
    plan = vllm.parse(profile, line, env, attention)
    plan["handover"] = handover.parsed("vllm_ascend", line)
    word = line.get("--kv-cache-dtype", "auto")
    plain = "fp16" if line.get("--dtype") in ("float16", "half") else "bf16"
    plan["kv_dtype"] = {"auto": plain, "bfloat16": "bf16", "float16": "fp16", "fp8_e4m3": "fp8"}.get(word, word)
    return plan
