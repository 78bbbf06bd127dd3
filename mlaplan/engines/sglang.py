"""SGLang: a plan to `launch_server` commands, and back.

`--tp-size` counts all ranks of a stage; attention DP, prefill context parallelism and experts divide them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.engines import handover, launch
from mlaplan.engines.flags import CommandLine, FlagTable
from mlaplan.engines.launch import Command
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile
    from mlaplan.engines.request import EmitRequest

INIT_PORT = 20000
DEEPEP_MODE = {"low_latency": "low_latency", "high_throughput": "normal", "auto": "auto"}
DISPATCH_TOKENS = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DISPATCH_DEFAULT = 128
PREFILL_DEFAULT = 16384  # tokens of one prefill batch, whatever the chunk
PARTITION = "SGLANG_PP_LAYER_PARTITION"


def emit(profile: Profile, table: FlagTable, request: EmitRequest) -> list[str]:
    """One text per node: comments and a command. The first node serves."""
    launch.check_devices(request)
    nodes = launch.even_nodes(request, profile.label, lambda nodes, _local: _fits(request, nodes))
    return [_node(profile, table, request, node, nodes) for node in range(nodes)]


def _fits(request: EmitRequest, nodes: int) -> bool:
    """Whole stages on a node, or whole nodes to a stage."""
    if nodes % request.pp == 0:
        return request.ranks % (nodes // request.pp) == 0
    return request.pp % nodes == 0


def _node(profile: Profile, table: FlagTable, request: EmitRequest, node: int, nodes: int) -> str:
    lines = launch.heading(request, profile.label, node, nodes)
    model, served = launch.model_flags(request)
    command = Command(table, ["python3", "-m", "sglang.launch_server", "--model-path", model])
    if served:
        command.add("--served-model-name", served)
    if request.trust_remote_code:
        command.add("--trust-remote-code")
    if request.chip_class == "ascend":
        command.add("--device", "npu")
    _parallel(command, request)
    if nodes > 1:
        command.add("--nnodes", nodes)
        command.add("--node-rank", node)
        command.add("--dist-init-addr", f"$HEAD_ADDR:{INIT_PORT}")
    _experts(profile, command, request, lines)
    _cache(profile, command, request)
    _scheduler(profile, command, request)
    handover.add(f"sglang@{profile.version}", command, request)
    return "\n".join([*lines, command.text()])


def _parallel(command: Command, request: EmitRequest) -> None:
    command.add("--tp-size", request.ranks)
    if request.pp > 1:
        command.add("--pp-size", request.pp)
        if launch.uneven(request.pp_layers):
            command.env[PARTITION] = ",".join(map(str, request.pp_layers))
    if request.dp > 1 and command.table.name("--attn-dp-size"):
        command.add("--attn-dp-size", request.dp)
    elif request.dp > 1:
        command.add("--dp-size", request.dp)
        command.add("--enable-dp-attention")
    if request.dcp > 1:
        command.add("--dcp-size", request.dcp)
        if request.dcp_merge is not None:
            command.add("--dcp-comm-backend", request.dcp_merge)
    if request.cp > 1:
        command.add("--enable-prefill-cp")
        command.add("--attn-cp-size", request.cp)
        command.add("--cp-strategy", "interleave" if request.attention == "mla_sparse" else "zigzag")
    if request.ep > 1:
        command.add("--ep-size", request.ep)


def _experts(profile: Profile, command: Command, request: EmitRequest, lines: list[str]) -> None:
    role = request.all_to_all
    needs = request.two_batch_overlap or (request.cp > 1 and request.attention == "mla")
    if role == "default" and needs:
        role = "auto"
    if request.two_batch_overlap:
        command.add("--enable-two-batch-overlap")
    if role == "default":
        return
    if request.ep != request.ranks or request.ranks == 1:
        raise MlaplanError(
            f"all_to_all={role}: {profile.label} uses DeepEP with EP over all {request.ranks} ranks only"
        )
    if request.dp > 1:  # nobody sees everyone's tokens: dense blocks and head stay with their attention-DP rank
        command.add("--moe-dense-tp-size", 1)
        command.add("--enable-dp-lm-head")
    command.add("--moe-a2a-backend", "deepep")
    command.add("--deepep-mode", DEEPEP_MODE[role])
    if role == "high_throughput":
        lines.append("# DeepEP's normal mode turns CUDA graphs off, in decode too")
        return
    tokens = request.batch * (1 + request.mtp)
    row = profile.all_to_all_for("low_latency")
    most = row.max_tokens if row is not None and row.max_tokens else tokens
    if tokens > most:
        raise MlaplanError(
            f"batch={request.batch} with mtp={request.mtp}: {tokens} tokens a rank and step, "
            f"{profile.label} dispatches at most {most} in its low-latency mode"
        )
    if tokens > DISPATCH_DEFAULT:
        command.env[DISPATCH_TOKENS] = str(min(-(-tokens // 128) * 128, most))


def _cache(profile: Profile, command: Command, request: EmitRequest) -> None:
    if request.kv_dtype == "fp16":
        command.add("--dtype", "float16")
    command.add("--kv-cache-dtype", _kv_flag(profile, request.kv_dtype, request.attention))
    command.add("--page-size", request.block_size)
    cell = (request.chip_class, request.attention, request.kv_dtype, request.block_size)
    chosen = profile.kernel(*cell, dcp=request.dcp > 1)
    command.env.update(chosen.env if chosen else {})
    if chosen is not None and chosen.name != getattr(profile.automatic(*cell), "name", None):
        command.add("--attention-backend", chosen.name)
    if request.memory_fraction is not None:
        command.add("--mem-fraction-static", request.memory_fraction)


def _scheduler(profile: Profile, command: Command, request: EmitRequest) -> None:
    command.add("--context-length", request.max_model_len)
    command.add("--max-running-requests", request.batch * request.dp)
    command.add("--chunked-prefill-size", request.prefill_chunk * request.dp)
    if request.prefill_chunk > PREFILL_DEFAULT:
        command.add("--max-prefill-tokens", request.prefill_chunk)
    graphs = profile.graph_batch(request.ranks)
    if request.batch > graphs:  # else the largest decode steps run outside a graph
        old = command.table.name("--cuda-graph-max-bs") is not None
        command.add("--cuda-graph-max-bs" if old else "--cuda-graph-max-bs-decode", request.batch)
    if request.mtp and profile.mtp:
        command.add("--speculative-algorithm", profile.mtp.method)
        command.add("--speculative-num-steps", request.mtp)
        command.add("--speculative-eagle-topk", 1)
        command.add("--speculative-num-draft-tokens", request.mtp + 1)


def _kv_flag(profile: Profile, kv_dtype: str, attention: str) -> str:
    """The flag's word. `auto` is the model's dtype, but for sparse models, where it depends on the chip."""
    if kv_dtype in ("bf16", "fp16"):
        return "bf16" if attention == "mla_sparse" else "auto"
    if kv_dtype in ("fp8", "fp8_ds_mla"):
        return "fp8_e4m3"
    raise MlaplanError(f"kv_dtype={kv_dtype}: {profile.label} has no such KV cache")


def parse(_profile: Profile, line: CommandLine, env: dict[str, str], attention: str) -> dict[str, Any]:
    """The plan in a command line, by the names of EmitRequest; None for what it leaves to the engine."""
    ranks = line.get("--tp-size", 1)
    groups = line.get("--dp-size", 1)  # before 0.5.23 also attention DP, with a switch
    dp = line.get("--attn-dp-size", 1)
    if dp == 1 and line.get("--enable-dp-attention", False):
        dp, groups = groups, 1
    dcp = line.get("--dcp-size", 1)
    deepep = line.get("--moe-a2a-backend") == "deepep"
    mode = line.get("--deepep-mode", "auto")
    prefill_cp = line.get("--enable-prefill-cp", False)
    batch, chunk = line.get("--max-running-requests"), line.get("--chunked-prefill-size")
    return {
        "model": line.get("--model-path"),
        "served_model_name": line.get("--served-model-name"),
        "tp": ranks // dp,
        "pp": line.get("--pp-size", 1),
        "dp": dp,
        "ep": ranks if deepep else line.get("--ep-size", 1),
        "dcp": dcp,
        "cp": line.get("--attn-cp-size", ranks // dp) if prefill_cp else 1,
        "dcp_merge": line.get("--dcp-comm-backend"),
        "dcp_interleave": 1,
        "replicas": groups,
        "kv_layout": "sequence_sharded" if dcp > 1 else "replicated",
        "kv_dtype": _kv_dtype(line, attention),
        "block_size": line.get("--page-size"),
        "prefill_chunk": chunk // dp if isinstance(chunk, int) and chunk > 0 else None,
        "two_batch_overlap": int(line.get("--enable-two-batch-overlap", False)),
        "mtp": line.get("--speculative-num-steps", 0),
        "batch": batch // dp if isinstance(batch, int) else None,
        "max_model_len": line.get("--context-length"),
        "memory_fraction": line.get("--mem-fraction-static"),
        "pp_layers": tuple(int(n) for n in env.get(PARTITION, "").split(",") if n.strip().isdigit()),
        "all_to_all": next((role for role, word in DEEPEP_MODE.items() if word == mode), "auto")
        if deepep
        else "default",
        "attention_backend": line.get("--attention-backend"),
        "trust_remote_code": line.get("--trust-remote-code", False),
        "nodes": line.get("--nnodes"),
        "handover": handover.parsed("sglang", line),
    }


def _kv_dtype(line: CommandLine, attention: str) -> str:
    word = line.get("--kv-cache-dtype", "auto")
    plain = "fp16" if line.get("--dtype") in ("float16", "half") else "bf16"
    fp8 = "fp8_ds_mla" if attention == "mla_sparse" else "fp8"
    return {"auto": plain, "bf16": "bf16", "bfloat16": "bf16", "fp8_e4m3": fp8}.get(word, word)
