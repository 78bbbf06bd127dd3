"""vLLM: a plan to `vllm serve` commands, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.engines import handover, launch
from mlaplan.engines.flags import CommandLine, FlagTable
from mlaplan.engines.launch import Command
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile
    from mlaplan.engines.request import EmitRequest

DP_PORT = 13345
RAY_PORT = 6379
MASTER_PORT = 29501
A2A = {"low_latency": "deepep_low_latency", "high_throughput": "deepep_high_throughput"}
# longest step that the low-latency kernels take as one piece; up to 0.15 longer ones are cut
LOW_LATENCY_STEP = 1024


def emit(profile: Profile, table: FlagTable, request: EmitRequest) -> list[str]:
    """One text per node: comments and commands. The first node serves."""
    count = nodes(profile, table, request)
    return [_node(profile, table, request, node, count) for node in range(count)]


def nodes(profile: Profile, table: FlagTable, request: EmitRequest) -> int:
    """Nodes of one copy: whole attention-DP ranks where they fit in a node, else equal shares of all."""
    launch.check_devices(request)
    per_rank = request.tp * request.pp
    if per_rank <= request.chips_per_node:
        return -(-request.dp // (request.chips_per_node // per_rank))
    if request.dp > 1 and table.name("--nnodes") is None:
        raise MlaplanError(
            f"dp={request.dp}: in {profile.label} an attention-DP rank of {per_rank} chips cannot span nodes "
            f"of {request.chips_per_node}"
        )

    def fits(_nodes: int, local: int) -> bool:
        """Whole nodes to an attention-DP rank, and no tensor-parallel group cut in unequal parts."""
        return per_rank % local == 0 and (local % request.tp == 0 or request.tp % local == 0)

    return launch.even_nodes(request, profile.label, fits)


def _node(profile: Profile, table: FlagTable, request: EmitRequest, node: int, nodes: int) -> str:
    lines = launch.heading(request, profile.label, node, nodes)
    command = started(table, request, node, nodes, lines)
    if command is None:
        return "\n".join(lines)
    _experts(profile, command, request, lines)
    _cache(profile, command, request)
    scheduler(profile, command, request)
    handover.add(f"vllm@{profile.version}", command, request)
    return "\n".join([*lines, command.text()])


def started(table: FlagTable, request: EmitRequest, node: int, nodes: int, lines: list[str]) -> Command | None:
    """The command with model, degrees and place; commands before it go to `lines`. None: Ray starts this node."""
    spans = request.tp * request.pp > request.chips_per_node
    if spans and table.name("--nnodes") is None:  # Ray starts the workers of the other nodes
        if node:
            lines.append(f"ray start --block --address=$HEAD_ADDR:{RAY_PORT}")
            return None
        lines.append(f"ray start --head --port={RAY_PORT}")
    model, served = launch.model_flags(request)
    command = Command(table, ["vllm", "serve", model])
    if served:
        command.add("--served-model-name", served)
    if request.trust_remote_code:
        command.add("--trust-remote-code")
    _parallel(command, request)
    _place(command, request, node, nodes, spans)
    return command


def _parallel(command: Command, request: EmitRequest) -> None:
    command.add("--tensor-parallel-size", request.tp // request.cp)
    if request.pp > 1:
        command.add("--pipeline-parallel-size", request.pp)
        if launch.uneven(request.pp_layers):
            command.env["VLLM_PP_LAYER_PARTITION"] = ",".join(map(str, request.pp_layers))
    if request.cp > 1:
        command.add("--prefill-context-parallel-size", request.cp)
    if request.dcp > 1:
        command.add("--decode-context-parallel-size", request.dcp)
        if request.dcp_merge is not None and command.table.name("--dcp-comm-backend"):
            command.add("--dcp-comm-backend", request.dcp_merge)
        if request.dcp_interleave > 1:
            command.add("--cp-kv-cache-interleave-size", request.dcp_interleave)
    if request.dp > 1:
        command.add("--data-parallel-size", request.dp)
    if request.ep > 1:
        command.add("--enable-expert-parallel")


def _place(command: Command, request: EmitRequest, node: int, nodes: int, spans: bool) -> None:
    if nodes == 1:
        return
    if spans and command.table.name("--nnodes") is None:
        command.add("--distributed-executor-backend", "ray")
    elif spans:
        command.add("--nnodes", nodes)
        command.add("--node-rank", node)
        command.add("--master-addr", "$HEAD_ADDR")
        command.add("--master-port", MASTER_PORT)
    else:
        local = request.chips_per_node // (request.tp * request.pp)
        start = node * local
        command.add("--data-parallel-size-local", min(local, request.dp - start))
        command.add("--data-parallel-address", "$HEAD_ADDR")
        command.add("--data-parallel-rpc-port", DP_PORT)
        if node:
            command.add("--data-parallel-start-rank", start)
    if node:
        command.add("--headless")


def _experts(profile: Profile, command: Command, request: EmitRequest, lines: list[str]) -> None:
    role = request.all_to_all
    if role == "auto":
        raise MlaplanError(f"all_to_all=auto: {profile.label} has one all-to-all for prefill and decode")
    if request.two_batch_overlap:
        command.add("--enable-dbo")
        if role == "default":
            cuts = command.table.name("--all2all-backend") is None or profile.version == "0.15.1"
            role = "low_latency" if cuts or request.prefill_chunk <= LOW_LATENCY_STEP else "high_throughput"
    if role == "default":
        return
    if request.ep == 1 or request.dp == 1:
        raise MlaplanError(f"all_to_all={role}: {profile.label} uses one with EP and attention DP only")
    row = profile.all_to_all_for(role)
    if row is not None and not row.graphs:
        lines.append(f"# {row.name} turns CUDA graphs off, in decode too")
    if command.table.name("--all2all-backend") is None:
        command.env["VLLM_ALL2ALL_BACKEND"] = A2A[role]
    else:
        command.add("--all2all-backend", A2A[role])


def _cache(profile: Profile, command: Command, request: EmitRequest) -> None:
    if request.kv_dtype == "fp16":
        command.add("--dtype", "float16")
    command.add("--kv-cache-dtype", _kv_flag(profile.version, request.kv_dtype, request.attention))
    command.add("--block-size", request.block_size)
    cell = (request.chip_class, request.attention, request.kv_dtype, request.block_size)
    chosen = profile.kernel(*cell, dcp=request.dcp > 1, interleave=request.dcp_interleave)
    command.env.update(chosen.env if chosen else {})
    if chosen is not None and chosen.name != getattr(profile.automatic(*cell, dcp=request.dcp > 1), "name", None):
        if command.table.name("--attention-backend") is None:
            command.env["VLLM_ATTENTION_BACKEND"] = chosen.name
        else:
            command.add("--attention-backend", chosen.name)
    if request.memory_fraction is not None:
        command.add("--gpu-memory-utilization", request.memory_fraction)


def scheduler(profile: Profile, command: Command, request: EmitRequest) -> None:
    command.add("--max-model-len", request.max_model_len)
    command.add("--max-num-seqs", request.batch)
    command.add("--max-num-batched-tokens", request.prefill_chunk)
    if profile.version == "0.9.2":
        command.add("--enable-chunked-prefill")
    tokens = request.batch * (1 + request.mtp)
    if tokens > profile.graphs.max_tokens:  # else the largest decode steps run outside a graph
        old = command.table.name("--max-cudagraph-capture-size") is None
        command.add("--cuda-graph-sizes" if old else "--max-cudagraph-capture-size", tokens)
    if request.mtp and profile.mtp:
        config = {"method": profile.mtp.method, "num_speculative_tokens": request.mtp}
        command.add("--speculative-config", config)


def _kv_flag(version: str, kv_dtype: str, attention: str) -> str:
    """The flag's word. `auto` is the model's dtype, but for sparse models, where versions differ."""
    sparse = attention == "mla_sparse"
    if kv_dtype in ("bf16", "fp16"):
        return ("bfloat16" if kv_dtype == "bf16" else "float16") if sparse else "auto"
    if kv_dtype == "fp8_ds_mla" and version == "0.11.0":
        return "fp8"  # the only fp8 there is for a sparse model
    if kv_dtype in ("fp8", "fp8_ds_mla"):
        return kv_dtype
    raise MlaplanError(f"kv_dtype={kv_dtype}: vLLM {version} has no such KV cache")


def parse(profile: Profile, line: CommandLine, env: dict[str, str], attention: str) -> dict[str, Any]:
    """The plan in a command line, by the names of EmitRequest; None for what it leaves to the engine."""
    cp = line.get("--prefill-context-parallel-size", 1)
    tp = line.get("--tensor-parallel-size", 1) * cp
    dp = line.get("--data-parallel-size", 1)
    dcp = line.get("--decode-context-parallel-size", 1)
    speculative = line.get("--speculative-config") or {}
    backend = line.get("--all2all-backend") or env.get("VLLM_ALL2ALL_BACKEND", "")
    served = line.get("--served-model-name")
    positional = line.positionals[0][1] if line.positionals else None
    return {
        "model": line.get("--model", positional),
        "served_model_name": served[0] if served else None,
        "tp": tp,
        "pp": line.get("--pipeline-parallel-size", 1),
        "dp": dp,
        "ep": tp * dp if line.get("--enable-expert-parallel", False) else 1,
        "dcp": dcp,
        "cp": cp,
        "dcp_merge": line.get("--dcp-comm-backend"),
        "dcp_interleave": line.get("--cp-kv-cache-interleave-size") or line.get("--dcp-kv-cache-interleave-size", 1),
        "kv_layout": "sequence_sharded" if dcp > 1 else "replicated",
        "kv_dtype": _kv_dtype(profile.version, line, attention),
        "block_size": line.get("--block-size"),
        "prefill_chunk": line.get("--max-num-batched-tokens"),
        "two_batch_overlap": int(line.get("--enable-dbo", False)),
        "mtp": int(speculative.get("num_speculative_tokens", 0)),
        "batch": line.get("--max-num-seqs"),
        "max_model_len": line.get("--max-model-len"),
        "memory_fraction": line.get("--gpu-memory-utilization"),
        "pp_layers": tuple(int(n) for n in env.get("VLLM_PP_LAYER_PARTITION", "").split(",") if n.strip().isdigit()),
        "all_to_all": next((role for role, name in A2A.items() if name == backend), "default"),
        "attention_backend": line.get("--attention-backend") or env.get("VLLM_ATTENTION_BACKEND"),
        "trust_remote_code": line.get("--trust-remote-code", False),
        "nodes": line.get("--nnodes"),
        "handover": handover.parsed("vllm", line),
    }


def _kv_dtype(version: str, line: CommandLine, attention: str) -> str:
    word = line.get("--kv-cache-dtype", "auto")
    plain = "fp16" if line.get("--dtype") in ("float16", "half") else "bf16"
    always = {"0.11.0": ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"), "0.15.1": ("fp8", "fp8_e4m3", "fp8_e5m2")}
    if attention == "mla_sparse" and word in always.get(version, ()):
        return "fp8_ds_mla"
    return {"auto": plain, "bfloat16": "bf16", "float16": "fp16", "fp8_e4m3": "fp8"}.get(word, word)
