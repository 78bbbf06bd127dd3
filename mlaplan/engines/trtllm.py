"""TensorRT-LLM: a plan to `trtllm-serve` with its options file, and back.

`--tp_size` counts all ranks of a stage; attention DP is a switch over all of them. What the command line lacks goes
into a YAML file that the same script writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mlaplan.engines import launch
from mlaplan.engines.flags import CommandLine, FlagTable
from mlaplan.engines.launch import Command
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile
    from mlaplan.engines.request import EmitRequest

FILE = "trtllm-options.yaml"
WIDE = "WIDEEP"  # the MoE backend whose all-to-all dispatches tokens
_WRITTEN = re.compile(r"^cat > (\S+) <<'EOF'\n(.*?)^EOF$", re.M | re.S)


def emit(profile: Profile, table: FlagTable, request: EmitRequest) -> list[str]:
    """One text: the options file and the command, which a launcher starts on every rank where nodes are several."""
    launch.check_devices(request)
    nodes = -(-request.world // request.chips_per_node)
    if nodes > 1 and request.world % nodes:
        raise MlaplanError(f"chips_per_node={request.chips_per_node}: {request.world} ranks do not fill whole nodes")
    if launch.uneven(request.pp_layers):
        raise MlaplanError(f"pp_layers: {profile.label} cuts the layers into equal stages")
    if request.cp > 1 or request.dcp > 1:
        raise MlaplanError(f"cp={request.cp}, dcp={request.dcp}: {profile.label} has neither in an aggregated server")
    lines = launch.heading(request, profile.label, 0, 1)
    model, served = launch.model_flags(request)
    if served:
        lines.append(f"# serves {served} under the name of its folder")
    program = ["trtllm-serve", model]
    if nodes > 1:
        lines.append("# one task a GPU; the first serves")
        program = ["srun", "-N", str(nodes), "-n", str(request.world), "--mpi=pmix", "trtllm-llmapi-launch", *program]
    command = Command(table, program)
    _flags(command, request, nodes)
    options = "\n".join(_options(profile, request))
    return ["\n".join([*lines, f"cat > {FILE} <<'EOF'", options, "EOF", command.text()])]


def _flags(command: Command, request: EmitRequest, nodes: int) -> None:
    command.add("--tp_size", request.ranks)
    if request.pp > 1:
        command.add("--pp_size", request.pp)
    if request.moe:
        command.add("--ep_size", request.ep)
    if nodes > 1:
        command.add("--gpus_per_node", request.chips_per_node)
    command.add("--max_batch_size", request.batch)
    command.add("--max_num_tokens", request.prefill_chunk)
    command.add("--max_seq_len", request.max_model_len)
    if request.trust_remote_code:
        command.add("--trust_remote_code")
    command.add("--extra_llm_api_options", FILE)


def _options(profile: Profile, request: EmitRequest) -> list[str]:
    lines = ["enable_attention_dp: true"] if request.dp > 1 else []
    lines += ["dtype: float16"] if request.kv_dtype == "fp16" else []
    lines += ["enable_chunked_prefill: true", "kv_cache_config:"]
    if request.memory_fraction is not None:
        lines.append(f"  free_gpu_memory_fraction: {request.memory_fraction:g}")
    lines += [f"  tokens_per_block: {request.block_size}", f"  dtype: {_dtype(profile, request.kv_dtype)}"]
    if request.batch > profile.graphs.max_tokens:
        raise MlaplanError(f"batch={request.batch}: {profile.label} takes at most {profile.graphs.max_tokens}")
    lines += ["cuda_graph_config:", f"  max_batch_size: {request.batch}", "  enable_padding: true"]
    if request.all_to_all != "default":
        if request.ep == 1:
            raise MlaplanError(f"all_to_all={request.all_to_all}: {profile.label} dispatches with EP only")
        lines += ["moe_config:", f"  backend: {WIDE}"]
    if request.mtp:
        lines += ["speculative_config:", "  decoding_type: MTP", f"  num_nextn_predict_layers: {request.mtp}"]
    return lines


def _dtype(profile: Profile, kv_dtype: str) -> str:
    if kv_dtype in ("bf16", "fp16"):
        return "auto"
    if kv_dtype in ("fp8", "fp8_ds_mla"):
        return kv_dtype
    raise MlaplanError(f"kv_dtype={kv_dtype}: {profile.label} has no such KV cache")


def settings_in(text: str) -> dict[str, Any]:
    """The options that a script writes into files, keys of sections joined with dots."""
    from mlaplan.specs.source import parse as parse_yaml

    out: dict[str, Any] = {}
    for match in _WRITTEN.finditer(text):
        out |= flat(parse_yaml(match[2], match[1]).data)
    return out


def flat(data: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined with dots."""
    out: dict[str, Any] = {}
    for key, value in data.items():
        here = f"{path}{key}"
        out |= flat(value, f"{here}.") if isinstance(value, dict) else {here: value}
    return out


def parse(_profile: Profile, line: CommandLine, _env: dict[str, str], attention: str) -> dict[str, Any]:
    """The plan in a command line and its options, by the names of EmitRequest; None for what is left to the engine.

    line.values: flags by their name, and options by their dotted key, which count more.
    """

    def get(option: str, flag: str | None = None, default: Any = None) -> Any:
        found = line.values.get(option)
        return found if found is not None else line.get(flag, default) if flag else default

    ranks = get("tensor_parallel_size", "--tp_size", 1)
    attention_dp = bool(get("enable_attention_dp", default=False))
    backend = str(get("moe_config.backend", default=""))
    return {
        "model": get("model", default=line.positionals[0][1] if line.positionals else None),
        "served_model_name": None,
        "tp": 1 if attention_dp else ranks,
        "pp": get("pipeline_parallel_size", "--pp_size", 1),
        "dp": ranks if attention_dp else 1,
        "ep": get("moe_expert_parallel_size", "--ep_size", 1) or 1,
        "dcp": 1,
        "dcp_merge": None,
        "dcp_interleave": 1,
        "cp": 1,
        "replicas": 1,
        "kv_layout": "replicated",
        "kv_dtype": _kv_dtype(get("kv_cache_config.dtype", default="auto"), get("dtype"), attention),
        "block_size": get("kv_cache_config.tokens_per_block"),
        "prefill_chunk": get("max_num_tokens", "--max_num_tokens"),
        "two_batch_overlap": 0,
        "mtp": get("speculative_config.num_nextn_predict_layers", default=0),
        "batch": get("max_batch_size", "--max_batch_size"),
        "max_model_len": get("max_seq_len", "--max_seq_len"),
        "memory_fraction": get("kv_cache_config.free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"),
        "pp_layers": (),
        "all_to_all": "auto" if backend.upper() == WIDE else "default",
        "attention_backend": None,
        "trust_remote_code": bool(get("trust_remote_code", "--trust_remote_code", False)),
        "nodes": None,
    }


def _kv_dtype(word: str, dtype: str | None, attention: str) -> str:
    plain = "fp16" if dtype == "float16" else "bf16"
    return {"auto": plain, "fp8": "fp8_ds_mla" if attention == "mla_sparse" else "fp8"}.get(word, word)
