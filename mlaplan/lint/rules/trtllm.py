"""TensorRT-LLM: what its options file and its command line get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlaplan.engines.flags import MOST_HINTS
from mlaplan.errors import did_you_mean
from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule

if TYPE_CHECKING:
    from mlaplan.lint.view import View

R1 = "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8"
# flags of the command line that are no keys of the options file, and where their value belongs
PLACES = {
    "kv_cache_free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size", "ep_size": "moe_expert_parallel_size",
    "cluster_size": "moe_cluster_parallel_size", "tokens_per_block": "kv_cache_config.tokens_per_block",
}  # fmt: skip
DEFAULT_TOKENS = 8192


def _degrees(view: View) -> Iterator[Found]:
    ranks = view.get("tensor_parallel_size", view.get("--tp_size", 1))
    given = {
        "MoE TP": view.get("moe_tensor_parallel_size"),
        "EP": view.get("moe_expert_parallel_size", view.get("--ep_size")),
        "clusters": view.get("moe_cluster_parallel_size", view.get("--cluster_size")),
    }
    sizes = {name: n for name, n in given.items() if isinstance(n, int) and n > 0}
    if not isinstance(ranks, int) or ranks < 1 or "EP" not in sizes:
        return
    product = 1
    for n in sizes.values():
        product *= n
    wrong = product != ranks if "MoE TP" in sizes else ranks % product != 0
    if wrong:
        shown = " x ".join(f"{name} {n}" for name, n in sizes.items())
        what = "do not make up" if len(sizes) > 1 else "does not divide"
        yield Found(view.part("ep"), f"{shown} {what} the {ranks} ranks of TP",
                    "let MoE TP x EP x clusters be TP", needed=ranks, available=product, unit="ranks")  # fmt: skip


def _keys(view: View) -> Iterator[Found]:
    known, hints = view.table.settings, 0
    for name, setting in view.launch.settings.items():
        if "." in name or name in known:
            continue
        if name in PLACES:
            yield Found(setting.word, f"{name} is a flag of the command line and no key of the options file",
                        f"write {PLACES[name]}")  # fmt: skip
        elif (hints := hints + 1) <= MOST_HINTS and (hint := did_you_mean(name, known)):
            yield Found(setting.word, f"{view.label} is not known to have an option {name}; {hint}", None, "info")


def _prompts(view: View) -> Iterator[Found]:
    length = view.plan["max_model_len"] if view.plan else None
    if not length or not view.complete or view.get("enable_chunked_prefill", view.get("--enable_chunked_prefill")):
        return
    tokens = (view.plan or {})["prefill_chunk"] or DEFAULT_TOKENS
    if length > tokens:
        yield Found(view.part("max_model_len"), f"prompts above max_num_tokens {tokens:,} are refused although "
                    f"max_seq_len is {length:,}: chunked prefill is off by default",
                    "add enable_chunked_prefill: true, or raise max_num_tokens",
                    needed=length, available=tokens, unit="tokens")  # fmt: skip


def _batch(view: View) -> Iterator[Found]:
    if view.plan is None or view.plan["batch"] is None or view.plan["prefill_chunk"] is None:
        return
    batch, tokens = view.plan["batch"], view.plan["prefill_chunk"]
    if batch > tokens:
        yield Found(view.part("batch"), f"max_batch_size {batch:,} is above max_num_tokens {tokens:,}",
                    f"use at most {tokens}", needed=batch, available=tokens, unit="tokens")  # fmt: skip


DEGREES = LintRule(
    "MLA541", "moe-degrees", "error", "MoE TP x EP x clusters is not TP",
    "The ranks of TP hold the experts: their three degrees multiply to it.", "Match them.",
    f"{R1} --ep_size 3\n", f"{R1} --ep_size 4\n", "tensorrt_llm/mapping.py", _degrees, engines=("trtllm",),
)  # fmt: skip
KEYS = LintRule(
    "MLA542", "option-place", "warning", "a key of the options file is not one of the engine's",
    "Names of command-line flags are not all keys of the options file, which forbids unknown ones.",
    "Move the value where it belongs.",
    "kv_cache_free_gpu_memory_fraction: 0.8\nenable_attention_dp: true\nmoe_config:\n  backend: CUTLASS\n",
    "kv_cache_config:\n  free_gpu_memory_fraction: 0.8\nenable_attention_dp: true\n",
    "tensorrt_llm/llmapi/llm_args.py", _keys, engines=("trtllm",), file="options.yaml",
)  # fmt: skip
PROMPTS = LintRule(
    "MLA543", "long-prompts-refused", "warning", "long prompts are refused: chunked prefill is off",
    "Without chunked prefill, which is off by default, a whole prompt must fit into max_num_tokens.",
    "Turn chunked prefill on, or raise max_num_tokens.",
    f"{R1} --max_seq_len 32768 --max_num_tokens 8192\n",
    f"{R1} --max_seq_len 32768 --max_num_tokens 8192 --enable_chunked_prefill\n",
    "tensorrt_llm/llmapi/llm_args.py; NVIDIA/TensorRT-LLM issues 3486 and 3058", _prompts, engines=("trtllm",),
)  # fmt: skip
BATCH = LintRule(
    "MLA544", "batch-above-tokens", "warning", "more sequences than tokens in a step",
    "The engine warns and cannot run such a batch.", "Lower max_batch_size.",
    f"{R1} --max_batch_size 512 --max_num_tokens 256\n", f"{R1} --max_batch_size 256 --max_num_tokens 256\n",
    "tensorrt_llm/llmapi/llm_args.py, validate_runtime_args", _batch, engines=("trtllm",),
)  # fmt: skip

TRTLLM = (DEGREES, KEYS, PROMPTS, BATCH)
