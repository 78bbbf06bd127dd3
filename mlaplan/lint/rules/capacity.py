"""What memory holds: weights, one longest request, the requests in flight, the workspace of cached prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule

if TYPE_CHECKING:
    from mlaplan.lint.text import Word
    from mlaplan.lint.view import View

GIB = 2.0**30
FEW = 1.5  # requests of the longest length; below, one of them can stop all others
MOST_SHARE = 0.95  # of the memory that an engine can be given
BIG_WORKSPACE = 2.0  # GiB
SGLANG = (
    "# SGLang 0.5.23\n# mlaplan: chip=mi300x\n"
    "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8"
)


def _weights(view: View) -> Iterator[Found]:
    if view.priced is None:
        return
    p, m = view.priced, view.priced.memory()
    if m.kv_tokens >= 0:
        return
    need, share = m.weights + m.other, m.usable / m.capacity
    sure = m.weights > m.usable
    where = view.place(*MEMORY_FLAGS)
    usable = f"{m.usable / GIB:.1f} of {m.capacity / GIB:.1f} GiB may be used ({share:.3g} of it)"
    if sure:
        message = (f"{view.model.title} takes {m.weights / GIB:.1f} GiB of weights a chip with {p.strategy.label()}, "  # type: ignore[union-attr]
                   f"{usable}: {(m.weights - m.usable) / GIB:.1f} GiB short before any cache")  # fmt: skip
    else:
        message = (f"{m.weights / GIB:.1f} GiB of weights and about {m.other / GIB:.1f} GiB of activations, graphs and "
                   f"buffers (assumed) exceed the memory: {usable}")  # fmt: skip
    yield Found(_tp_or(view, where), message, _smaller(view), None if sure else "warning", m.weights if sure else need,
                m.usable, "B")  # fmt: skip


MEMORY_FLAGS = ("--gpu-memory-utilization", "--mem-fraction-static")


def _tp_or(view: View, other: Word) -> Word:
    word = view.part("tp")
    return word if word is not view.launch.anchor else other


def _smaller(view: View) -> str:
    """How many chips would hold the weights, by doubling PP, or with experts spread further."""
    p, m = view.priced, view.priced.memory()
    raised, least = "", m.weights / m.capacity
    if view.place(*MEMORY_FLAGS) is not view.launch.anchor and least < MOST_SHARE:
        raised = f"a fraction above {least:.3g} leaves room besides the weights; or "
    for pp in (2, 4, 8):
        if p.strategy.pp * pp > view.model.layer_count:  # type: ignore[union-attr]
            break
        if p.memory(pp=p.strategy.pp * pp, batch=1).kv_tokens > 0:
            chips = p.strategy.chips_per_replica * pp
            held = f"{chips} chips hold the weights, with PP {p.strategy.pp * pp}"
            return f"{raised}{held}; or take chips with more memory, or smaller weights"
    return f"{raised}take more chips, chips with more memory, or smaller weights"


def _longest(view: View) -> Iterator[Found]:
    if view.priced is None:
        return
    p, m = view.priced, view.priced.memory()
    if m.kv_tokens < 0 or m.kv_tokens >= m.sequence_tokens:
        return
    if not p.stated_len and view.get("--max-model-len") is not None:
        return  # auto: the engine takes what fits
    sure = m.most_tokens < m.sequence_tokens
    need = m.sequence_tokens * m.kv_per_token
    have = max(m.kv_tokens, 0) * m.kv_per_token
    flag = "" if p.stated_len else f" (the {p.max_len:,} positions of the model, as none is given)"
    message = (f"one request of {p.max_len:,} tokens{flag} needs {need / GIB:.2f} GiB of KV cache, "
               f"{have / GIB:.2f} GiB are left: {m.kv_tokens:,} tokens")  # fmt: skip
    most = m.kv_tokens // 1024 * 1024
    help_ = f"use a longest length of about {most}" if most else "take more chips or a smaller cache dtype"
    engine_cuts = view.base == "sglang"  # it starts, and refuses longer requests
    yield Found(view.place("--max-model-len", "--context-length"), message, help_,
                "warning" if engine_cuts or not sure else None, need, have, "B")  # fmt: skip


def _few(view: View) -> Iterator[Found]:
    if view.priced is None:
        return
    p, m = view.priced, view.priced.memory()
    if m.kv_tokens < m.sequence_tokens or m.concurrency >= FEW or not p.stated_len:
        return
    message = (f"the KV cache holds about {m.kv_tokens:,} tokens a rank: {m.concurrency:.1f} requests of "
               f"{p.max_len:,} tokens")  # fmt: skip
    yield Found(view.place("--max-model-len", "--context-length"), message,
                "lower the longest length, or divide the cache with DCP, PP or attention DP",
                needed=FEW, available=round(m.concurrency, 3), unit="requests")  # fmt: skip


def _in_flight(view: View) -> Iterator[Found]:
    if view.priced is None or view.plan is None or view.plan["batch"] is None:
        return
    p, m = view.priced, view.priced.memory()
    if not p.stated_len or m.concurrency < FEW:
        return
    batch = p.strategy.batch
    if p.holds_all():
        return
    message = (f"{batch:,} requests in flight of {p.max_len:,} tokens want {batch * m.sequence_tokens:,} KV tokens a "
               f"rank; about {m.kv_tokens:,} fit, {m.concurrency:.3g} such requests")  # fmt: skip
    yield Found(view.part("batch"), message, "the rest waits or is preempted; shorter requests fit in larger numbers",
                needed=batch * m.sequence_tokens, available=m.kv_tokens, unit="tokens")  # fmt: skip


def _workspace(view: View) -> Iterator[Found]:
    if view.priced is None or view.attention != "mla":
        return
    m = view.priced.memory()
    size = m.other_items.get("workspace_bytes", 0.0)
    if size < BIG_WORKSPACE * GIB:
        return
    if view.priced.stated_len and view.plan and view.plan["batch"] is not None and view.priced.holds_all():
        return  # it was counted on: all that is asked for fits beside it
    heads = max(a.heads for a in view.model.attention.values())  # type: ignore[union-attr]
    local = heads // view.priced.strategy.tp
    message = (
        f"{local} heads on a rank need a workspace of {size / GIB:.1f} GiB to re-expand cached prefixes in prefill"
    )
    yield Found(view.part("dp"), message, "count on it, or split attention over 2 or more TP ranks",
                needed=size, unit="B")  # fmt: skip


def _aiter(view: View) -> Iterator[Found]:
    from mlaplan.lint.pricing import AITER_SHARE, aiter_cuts

    fraction = view.get("--mem-fraction-static")
    if isinstance(fraction, float | int) and 0 < fraction <= 1 and aiter_cuts(view):
        explicit = view.get("--attention-backend") == "aiter"
        yield Found(view.place("--mem-fraction-static"), f"with aiter and a context above 8,192 {view.label} takes "
                    f"{AITER_SHARE} of the fraction: {AITER_SHARE * fraction:.3g} of the memory, not {fraction}",
                    "count on it, or raise the fraction by as much", None if explicit else "info",
                    fraction, round(AITER_SHARE * fraction, 4), "of the memory")  # fmt: skip


WEIGHTS = LintRule(
    "MLA201", "weights-do-not-fit", "error", "weights and buffers exceed the memory",
    "Weights of the fullest pipeline stage must leave room for a cache. An error if the weights alone are too large, "
    "a warning if it depends on assumed activations and buffers.",
    "Take more chips, chips with more memory, or smaller weights.",
    "# mlaplan: chip=h100-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8\n",
    "# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8\n",
    "costs/capacity.py; `No available memory for the cache blocks` (vllm/v1/core/kv_cache_utils.py)", _weights,
    needs=("model", "chip"),
)  # fmt: skip
LONGEST = LintRule(
    "MLA202", "cache-too-small", "error", "not even one request of the longest length fits in the cache",
    "vLLM refuses to start: `To serve at least one request with the model's max seq len`. TP does not raise the room: "
    "every TP rank holds the whole latent cache.",
    "Lower the longest length, or divide the cache with decode context parallelism, PP or attention DP.",
    "# vLLM 0.33.0\n# mlaplan: chip=h20\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 163840\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 163840\n",
    "costs/capacity.py; vllm/v1/core/kv_cache_planning.py", _longest, needs=("model", "chip"),
)  # fmt: skip
FEW_REQUESTS = LintRule(
    "MLA601", "low-concurrency", "warning", "the cache holds fewer than 1.5 requests of the longest length",
    "A single long request then stops all others.", "Lower the longest length, or divide the cache over chips.",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 163840 "
    "--gpu-memory-utilization 0.7\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 32768\n",
    "costs/capacity.py", _few, needs=("model", "chip"),
)  # fmt: skip
IN_FLIGHT = LintRule(
    "MLA602", "requests-in-flight", "info", "the requests in flight do not all fit at the longest length",
    "That is usual and works: requests are rarely all of the longest length. The numbers say what to expect.",
    "Nothing, unless requests really are that long.",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 32768 "
    "--max-num-seqs 256\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 32768 "
    "--max-num-seqs 8\n",
    "costs/capacity.py", _in_flight, needs=("model", "chip"),
)  # fmt: skip
WORKSPACE = LintRule(
    "MLA603", "prefill-workspace", "info", "the prefill workspace takes gigabytes",
    "Chunked prefill re-expands a cached prefix to full keys and values of all local heads: 4 GiB for 128 heads and "
    "65,536 rows, 8 GiB at the 131,072 rows of older versions.",
    "Count on it in the memory budget, or let 2 or more TP ranks share the heads.",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n"
    "vllm serve deepseek-ai/DeepSeek-R1 -dp 16 --enable-expert-parallel --max-model-len 131072\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 131072\n",
    "vllm/v1/attention/backends/mla/common.py; vllm-project/vllm pull 25290", _workspace, needs=("model", "chip"),
)  # fmt: skip

AITER = LintRule(
    "MLA604", "aiter-memory", "warning", "the memory fraction is lowered without a word",
    "With the aiter backend and a context above 8,192 tokens SGLang multiplies the memory fraction by 0.85, also one "
    "that was given. Where the backend is aiter by the environment alone, it is info.",
    "Count on it, or raise the fraction by as much.",
    f"{SGLANG} --attention-backend aiter --context-length 65536 --mem-fraction-static 0.9\n",
    f"{SGLANG} --attention-backend aiter --context-length 8192 --mem-fraction-static 0.9\n",
    "sglang/srt/server_args.py", _aiter, engines=("sglang",),
)  # fmt: skip

CAPACITY = (WEIGHTS, LONGEST, FEW_REQUESTS, IN_FLIGHT, WORKSPACE, AITER)
