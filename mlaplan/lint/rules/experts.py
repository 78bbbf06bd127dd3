"""Expert parallelism, load balancing and the buffers of the all-to-all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule
from mlaplan.lint.rules.planner import redundant

if TYPE_CHECKING:
    from mlaplan.lint.view import View

MOST_DISPATCH = 1024  # SGLang asserts it
DEFAULT_DISPATCH = 128
SG = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --trust-remote-code"
LOW_LATENCY_HIDDEN = {2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192}


def _eplb(view: View) -> Iterator[Found]:
    if view.base != "vllm" or view.plan is None:
        return
    if view.get("--enable-eplb", False):
        if view.plan["ep"] == 1 and view.complete:
            yield Found(view.place("--enable-eplb"), "--enable-eplb balances experts over EP ranks, and there are none",
                        "add --enable-expert-parallel, with more than one rank")  # fmt: skip
    elif redundant(view) and view.complete:
        word = view.place("--num-redundant-experts", "--eplb-config")
        yield Found(word, f"{redundant(view)} redundant experts without --enable-eplb are refused", "add --enable-eplb")


def _all_to_all(view: View) -> Iterator[Found]:
    if view.base != "vllm" or view.plan is None:
        return
    name = view.get("--all2all-backend")
    if name == "deepep_low_latency" and view.model is not None and view.model.hidden_size not in LOW_LATENCY_HIDDEN:
        sizes = ", ".join(map(str, sorted(LOW_LATENCY_HIDDEN)))
        yield Found(view.place("--all2all-backend"), f"deepep_low_latency is compiled for hidden sizes {sizes}; "
                    f"{view.model.title} has {view.model.hidden_size}", "use another all-to-all",
                    "error")  # fmt: skip
    if name == "deepep_high_throughput" and not view.get("--enforce-eager", False) and not _prefill_only(view):
        yield Found(view.place("--all2all-backend"), "deepep_high_throughput turns CUDA graphs off, in decode too",
                    "use deepep_low_latency where this server decodes", "info")  # fmt: skip


def _prefill_only(view: View) -> bool:
    transfer = view.get("--kv-transfer-config")
    return isinstance(transfer, dict) and transfer.get("kv_role") == "kv_producer"


def _dispatch(view: View) -> Iterator[Found]:
    name = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
    if view.base != "sglang" or view.get("--moe-a2a-backend") != "deepep" or view.plan is None:
        return
    text = view.env(name)
    if name in view.launch.env and (text is None or not text.isdigit()):
        return
    limit = int(text[:9]) if text else DEFAULT_DISPATCH
    word = view.launch.env.get(name, view.place("--moe-a2a-backend"))
    if limit > MOST_DISPATCH:
        yield Found(word, f"{limit:,} dispatch tokens per rank; DeepEP's low-latency kernels take at most 1,024",
                    "use at most 1024", needed=limit, available=MOST_DISPATCH, unit="tokens")  # fmt: skip
        return
    mode = view.get("--deepep-mode", "auto")
    batch = view.plan["batch"]
    if mode == "normal" or batch is None or _decode_is_elsewhere(view):
        return
    tokens = batch * max(view.get("--speculative-num-draft-tokens", 1) or 1, 1)
    if tokens > limit:
        where = word if text else view.place("--max-running-requests")
        yield Found(where, f"up to {tokens:,} decode tokens on a rank, {limit:,} may be dispatched in one step",
                    f"set {name}={min(_next_power(tokens), MOST_DISPATCH)}" if tokens <= MOST_DISPATCH
                    else "lower --max-running-requests",
                    "error" if mode == "low_latency" else "warning", tokens, limit, "tokens")  # fmt: skip


def _decode_is_elsewhere(view: View) -> bool:
    return view.get("--disaggregation-mode") == "prefill"


def _next_power(tokens: int) -> int:
    return 1 << (tokens - 1).bit_length()


def _too_many_ranks(view: View) -> Iterator[Found]:
    if view.base != "sglang" or view.plan is None or view.model is None:
        return
    moe = [f for f in view.model.ffn.values() if f.kind == "moe"]
    ranks = view.plan["tp"] * view.plan["dp"]
    if moe and view.plan["ep"] > 1 and ranks > moe[0].experts:
        yield Found(view.part("tp"), f"{ranks} ranks for {moe[0].experts} routed experts", "use fewer ranks")


def _dense_tp(view: View) -> Iterator[Found]:
    if view.base != "sglang" or view.plan is None:
        return
    size, ranks = view.get("--moe-dense-tp-size"), view.get("--tp-size", 1)
    if isinstance(size, int) and size not in (1, ranks):
        yield Found(view.place("--moe-dense-tp-size"), f"--moe-dense-tp-size {size}: dense layers are cut over all "
                    f"{ranks} ranks or none", f"use 1 or {ranks}")  # fmt: skip


DENSE_TP = LintRule(
    "MLA515", "dense-tp-size", "error", "dense layers are cut over all ranks or none",
    "SGLang takes --moe-dense-tp-size 1 or the whole TP.", "Use 1, or leave it out.",
    f"# SGLang 0.5.23\n{SG} --tp 8 --moe-dense-tp-size 4\n", f"# SGLang 0.5.23\n{SG} --tp 8 --moe-dense-tp-size 1\n",
    "sglang/srt/server_args.py", _dense_tp, engines=("sglang",),
)  # fmt: skip
EPLB = LintRule(
    "MLA511", "eplb-without-ep", "error", "the expert load balancer has nothing to balance, or is not on",
    "EPLB needs expert parallelism over more than one rank; redundant experts need EPLB.",
    "Give --enable-expert-parallel and --enable-eplb together.",
    "# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 --enable-eplb\n",
    "# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 --enable-expert-parallel --enable-eplb\n",
    "vllm/config/parallel.py", _eplb, engines=("vllm",),
)  # fmt: skip
ALL_TO_ALL = LintRule(
    "MLA512", "all-to-all", "info", "the all-to-all does not fit the model or the phase",
    "DeepEP's low-latency kernels are compiled for some hidden sizes; its high-throughput ones turn CUDA graphs off.",
    "Use another --all2all-backend.",
    "# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 -dp 8 --enable-expert-parallel "
    "--all2all-backend deepep_high_throughput\n",
    "# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 -dp 8 --enable-expert-parallel "
    "--all2all-backend deepep_low_latency\n",
    "vllm/model_executor/layers/fused_moe; vllm/platforms/cuda.py", _all_to_all, engines=("vllm",),
)  # fmt: skip
DISPATCH = LintRule(
    "MLA513", "dispatch-tokens", "error", "more tokens on a rank than DeepEP dispatches in one step",
    "The low-latency kernels assert at most SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK tokens (128 by default, at "
    "most 1,024) on a rank, drafts included.",
    "Raise the limit, or lower the batch per rank.",
    f"# SGLang 0.5.23\n{SG} --tp 8 --attn-dp-size 8 --moe-a2a-backend deepep --deepep-mode low_latency "
    "--max-running-requests 2048\n",
    f"# SGLang 0.5.23\n{SG} --tp 8 --attn-dp-size 8 --moe-a2a-backend deepep --deepep-mode low_latency "
    "--max-running-requests 1024\n",
    "sglang/srt/layers/moe/token_dispatcher/deepep.py; deepseek-ai/DeepEP issue 165", _dispatch, engines=("sglang",),
)  # fmt: skip
RANKS = LintRule(
    "MLA514", "more-ranks-than-experts", "error", "more ranks than routed experts",
    "SGLang refuses a TP above the number of routed experts.", "Use fewer ranks, or PP.",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V2-Lite --tp 128 "
    "--attn-dp-size 128 --ep-size 128\n",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V2-Lite --tp 8 "
    "--attn-dp-size 8 --ep-size 8\n",
    "sglang/srt/server_args.py", _too_many_ranks, engines=("sglang",), needs=("model",),
)  # fmt: skip

EXPERTS = (EPLB, ALL_TO_ALL, DISPATCH, RANKS, DENSE_TP)
