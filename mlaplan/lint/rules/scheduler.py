"""Token budgets, prefill chunks, lengths, drafts: what the scheduler refuses at start-up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule
from mlaplan.lint.versions import at_least

if TYPE_CHECKING:
    from mlaplan.lint.view import View

V3 = "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8"
SG = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8"


def _budget(view: View) -> Iterator[Found]:
    if view.base != "vllm" or view.plan is None:
        return
    tokens, seqs = view.plan["prefill_chunk"], view.plan["batch"]
    word = view.place("--max-num-batched-tokens")
    if tokens is not None and seqs is not None and tokens < seqs:
        yield Found(word, f"--max-num-batched-tokens {tokens} is below --max-num-seqs {seqs}",
                    f"use at least {seqs}", needed=seqs, available=tokens, unit="tokens")  # fmt: skip
    length = view.plan["max_model_len"]
    off = view.get("--enable-chunked-prefill") is False
    if off and tokens is not None and length and length > tokens > 0:
        yield Found(word, f"--max-num-batched-tokens {tokens:,} is below --max-model-len {length:,} without chunked "
                    "prefill: a whole prompt must fit in one step", "leave chunked prefill on",
                    needed=length, available=tokens, unit="tokens")  # fmt: skip


def _chunk_page(view: View) -> Iterator[Found]:
    if view.base != "sglang" or view.get("--disaggregation-mode") == "decode":
        return
    chunk, page = view.get("--chunked-prefill-size"), view.get("--page-size")
    if page is None and view.chip is not None and view.attention is not None and view.plan is not None:
        from mlaplan.lint.rules.kernels import usable

        dtype = view.plan["kv_dtype"]
        found = [k for k in usable(view) if dtype in k.kv_dtypes]
        page = found[0].default_block if found else None
    if isinstance(chunk, int) and isinstance(page, int) and chunk > 0 and page > 0 and chunk % page:
        yield Found(view.place("--chunked-prefill-size"), f"--chunked-prefill-size {chunk} is no multiple of the page "
                    f"size {page}", f"use {max(chunk // page, 1) * page}",
                    needed=page, available=chunk % page, unit="tokens")  # fmt: skip


def _too_long(view: View) -> Iterator[Found]:
    if view.model is None or view.plan is None or view.base != "vllm":
        return
    length, most = view.plan["max_model_len"], view.model.max_position
    changed = view.has("--hf-overrides") or view.has("--rope-scaling")
    allowed = view.env("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in ("1", "true")
    if length and length > most and not changed and not allowed:
        yield Found(view.place("--max-model-len"), f"--max-model-len {length:,} is above the {most:,} positions of "
                    f"{view.model.title}", f"use at most {most}",
                    needed=length, available=most, unit="tokens")  # fmt: skip


def _drafts(view: View) -> Iterator[Found]:
    if view.model is None or view.plan is None or not view.plan["mtp"]:
        return
    config = view.get("--speculative-config")
    drafted = view.plan["mtp"]
    own = view.base == "sglang" and not view.has("--speculative-draft-model-path")
    if isinstance(config, dict):
        method = config.get("method", "")
        own = not config.get("model") and method in ("mtp", "deepseek_mtp")
    word = view.place("--speculative-config", "--speculative-num-steps")
    if not own:
        return
    if view.model.mtp is None:
        yield Found(word, f"{view.model.title} has no MTP layer to draft {drafted} tokens with", "name a draft model",
                    "warning")  # fmt: skip
    elif view.base == "vllm" and drafted % view.model.mtp.layers:
        yield Found(word, f"num_speculative_tokens {drafted} is no multiple of the {view.model.mtp.layers} MTP layers",
                    f"use a multiple of {view.model.mtp.layers}")  # fmt: skip


ROPE = {"rope_scaling", "rope_parameters", "max_position_embeddings", "rope_theta"}


def _draft_rope(view: View) -> Iterator[Found]:
    """Overrides that lengthen the model and, given as a mapping, do not reach its draft."""
    overrides, p = view.get("--hf-overrides"), view.plan
    if p is None or view.model is None or not p["mtp"] or not isinstance(overrides, dict):
        return
    inner = overrides.get("text_config")
    keys = {*overrides, *(inner if isinstance(inner, dict) else ())} & ROPE
    config, length, native = view.get("--speculative-config"), p["max_model_len"], view.model.max_position
    if not keys or not at_least(view.version, "0.33.0") or not isinstance(config, dict) or config.get("model"):
        return
    if length and length > native:
        yield Found(view.place("--hf-overrides"), f"{min(keys)} does not reach the draft: while any sequence of the "
                    f"batch is longer than its {native:,} positions, none of the {p['mtp']} drafts of a step is "
                    "accepted", f"keep --max-model-len within {native}, or draft nothing",
                    needed=length, available=native, unit="tokens")  # fmt: skip


def _interleave(view: View) -> Iterator[Found]:
    if view.base != "vllm" or view.plan is None:
        return
    flag = "--cp-kv-cache-interleave-size"
    size, block = view.get(flag), view.plan["block_size"]
    if isinstance(size, int) and size > 0 and block is not None and (block < size or block % size):
        yield Found(view.place(flag), f"blocks of {block} are no multiple of the interleave size {size}",
                    f"use a divisor of {block}", needed=size, available=block, unit="tokens")  # fmt: skip
    if isinstance(size, int) and size > 1 and view.plan["mtp"] and view.plan["dcp"] > 1:
        yield Found(view.place(flag), f"drafts with decode context parallelism want interleave size 1, not {size}",
                    "use 1", "warning")  # fmt: skip


def _nixl(view: View) -> Iterator[Found]:
    transfer = view.get("--kv-transfer-config")
    if view.engine != "vllm" or view.plan is None or not isinstance(transfer, dict):
        return
    dcp, tp = view.plan["dcp"], view.plan["tp"]
    if "Nixl" in str(transfer.get("kv_connector", "")) and dcp not in (1, tp) and at_least(view.version, "0.33.0"):
        yield Found(view.part("dcp"), f"NIXL moves the cache with DCP 1 or all of TP {tp}, not {dcp}", f"use 1 or {tp}")


NIXL = LintRule(
    "MLA526", "nixl-dcp", "error", "NIXL does not move a cache under this decode context parallelism",
    "A split deployment over NIXL asserts that DCP is 1 or the whole TP.", "Use 1 or TP.",
    f"# vLLM 0.33.0\n{V3} -dcp 2 --kv-transfer-config '{{\"kv_connector\": \"NixlConnector\", "
    "\"kv_role\": \"kv_both\"}'\n",
    f"# vLLM 0.33.0\n{V3} -dcp 8 --kv-transfer-config '{{\"kv_connector\": \"NixlConnector\", "
    "\"kv_role\": \"kv_both\"}'\n",
    "vllm/config/vllm.py at v0.33.0", _nixl, "vLLM 0.33.0", ("vllm",),
)  # fmt: skip
BUDGET = LintRule(
    "MLA521", "token-budget", "error", "the token budget of a step is too small",
    "Every running sequence takes a token of each step, and without chunked prefill a whole prompt must fit.",
    "Raise --max-num-batched-tokens.",
    f"{V3} --max-num-seqs 1024 --max-num-batched-tokens 512\n",
    f"{V3} --max-num-seqs 512 --max-num-batched-tokens 512\n",
    "vllm/config/scheduler.py", _budget, engines=("vllm",),
)  # fmt: skip
CHUNK = LintRule(
    "MLA522", "chunk-page", "error", "the prefill chunk is no multiple of the page size",
    "`chunked_prefill_size must be divisible by page_size`.", "Round the chunk to whole pages.",
    f"{SG} --page-size 64 --chunked-prefill-size 4100\n", f"{SG} --page-size 64 --chunked-prefill-size 4096\n",
    "sglang/srt/arg_groups/validation_hook.py", _chunk_page, engines=("sglang",),
)  # fmt: skip
LENGTH = LintRule(
    "MLA523", "length-above-model", "error", "the longest sequence is above what the model was made for",
    "vLLM refuses it unless VLLM_ALLOW_LONG_MAX_MODEL_LEN is set; outputs beyond it are not to be trusted.",
    "Lower --max-model-len, or override the rope scaling.",
    f"{V3} --max-model-len 200000\n", f"{V3} --max-model-len 131072\n",
    "vllm/config/model.py, _get_and_verify_max_len", _too_long, engines=("vllm",), needs=("model",),
)  # fmt: skip
DRAFTS = LintRule(
    "MLA524", "draft-tokens", "warning", "the drafts do not fit the model's MTP layers",
    "The checkpoint's own layers draft; a model without them has nothing to draft with.",
    "Draft a multiple of the layers, or name a draft model.",
    "# vLLM 0.33.0\nvllm serve moonshotai/Kimi-K2-Instruct -tp 16 --speculative-config "
    "'{\"method\": \"mtp\", \"num_speculative_tokens\": 1}'\n",
    f"# vLLM 0.33.0\n{V3} --speculative-config '{{\"method\": \"mtp\", \"num_speculative_tokens\": 1}}'\n",
    "vllm/config/speculative.py", _drafts, needs=("model",),
)  # fmt: skip
INTERLEAVE = LintRule(
    "MLA525", "interleave-block", "error", "the cache's interleave does not fit the block",
    "`Block_size should be greater than or equal to and divisible by cp_kv_cache_interleave_size`.",
    "Use a divisor of the block size.",
    f"# vLLM 0.33.0\n{V3} -dcp 8 --block-size 64 --cp-kv-cache-interleave-size 48\n",
    f"# vLLM 0.33.0\n{V3} -dcp 8 --block-size 64 --cp-kv-cache-interleave-size 64\n",
    "vllm/config/vllm.py; vllm/v1/worker/cp_utils.py", _interleave, "vLLM from 0.15.1 on", ("vllm",),
)  # fmt: skip

DRAFT_ROPE = LintRule(
    "MLA527", "draft-rope-override", "warning", "the draft does not see the rope override",
    "vLLM applies --hf-overrides that are a mapping to the model alone. Its MTP draft keeps the native length: beyond "
    "it dummy tokens are drafted for the whole batch, of which none is accepted.",
    "Keep the longest length within the native one, or draft nothing.",
    f"# vLLM 0.33.0\n{V3} --max-model-len 262144 --hf-overrides '{{\"rope_parameters\": {{\"rope_type\": \"yarn\", "
    "\"factor\": 4.0}}' --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 1}'\n",
    f"# vLLM 0.33.0\n{V3} --max-model-len 131072 "
    "--speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 1}'\n",
    "vllm/config/speculative.py; vllm-project/vllm issue 58080", _draft_rope, "vLLM 0.33.0; earlier ones were not read",
    ("vllm",), ("model",),
)  # fmt: skip

SCHEDULER = (BUDGET, CHUNK, LENGTH, DRAFTS, INTERLEAVE, NIXL, DRAFT_ROPE)
