"""vLLM on Ascend: what its kernels take beyond vLLM's own rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mlaplan.engines.additional_config import config_keys, lifetimes
from mlaplan.errors import did_you_mean
from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule
from mlaplan.lint.text import Word
from mlaplan.lint.versions import at_least

if TYPE_CHECKING:
    from mlaplan.lint.view import View

BLOCK = 128
GRAPH_HEADS = (32, 64, 128)
PADS_HEADS = "0.23.0"
R1_NEW = "# mlaplan: engine=vllm-ascend@0.23.0\nvllm serve deepseek-ai/DeepSeek-R1 -tp 16"
R1 = "# mlaplan: engine=vllm-ascend\nvllm serve deepseek-ai/DeepSeek-R1 -tp 16"


def _dtype(view: View) -> Iterator[Found]:
    if view.attention not in ("mla", "mla_sparse"):
        return
    for flag in ("--dtype", "--kv-cache-dtype"):
        if view.get(flag) in ("float16", "half"):
            yield Found(view.place(flag), f"{flag} {view.get(flag)}: MLA kernels of the A2 series take bfloat16",
                        f"leave out {flag}, or use bfloat16")  # fmt: skip


def _block(view: View) -> Iterator[Found]:
    size = view.get("--block-size")
    if view.attention in ("mla", "mla_sparse") and isinstance(size, int) and size != BLOCK and size > 0:
        yield Found(view.place("--block-size"), f"MLA kernels take blocks of {BLOCK}; {size} is replaced where prefix "
                    "caching or chunked prefill is on", f"use {BLOCK}")  # fmt: skip


def _graph_heads(view: View) -> Iterator[Found]:
    if view.attention != "mla" or view.plan is None or view.model is None or view.get("--enforce-eager", False):
        return
    if at_least(view.version, PADS_HEADS):
        return
    heads = max(a.heads for a in view.model.attention.values())
    local = heads // view.plan["tp"]
    if heads % view.plan["tp"] == 0 and local not in GRAPH_HEADS:
        yield Found(view.part("tp"), f"{local} heads on a rank; graph mode of older versions takes "
                    f"{', '.join(map(str, GRAPH_HEADS))}", "use --enforce-eager there, or a newer version")  # fmt: skip


def _interleave(view: View) -> Iterator[Found]:
    flag = "--cp-kv-cache-interleave-size"
    size, block = view.get(flag), view.get("--block-size", BLOCK)
    sharded = view.plan is not None and (view.plan["cp"] > 1 or view.plan["dcp"] > 1)
    if view.has("--kv-transfer-config") and sharded and isinstance(size, int) and size != block:
        yield Found(view.place(flag), f"interleave {size} with blocks of {block}: split prefill and decode with "
                    "context parallelism want both equal", f"use {block}")  # fmt: skip


def _config(view: View) -> Iterator[Found]:
    given = view.get("--additional-config")
    if not isinstance(given, dict):
        return
    word, known = view.place("--additional-config"), config_keys(view.version)
    outside = "info" if view.deployment.candidates.how in ("newer", "older") else None
    if "=" not in word.text and "." not in word.text:
        word = view.value_word("--additional-config")
    for name, value in given.items():
        if name not in known:
            other = lifetimes().get(name)
            hint = f"it is read by {' and '.join(other)}" if other else did_you_mean(name, known)
            told = (f"{view.label} does not read '{name}': it has no effect", hint)
            yield Found(_at(word, name), "; ".join(filter(None, told)), severity=outside)
            continue
        section = known[name]
        if section.keys is None or not isinstance(value, dict):
            continue
        for key in value:
            if key not in section.keys:
                end = "the server stops at it" if section.strict else "it has no effect"
                told = (f"{view.label} does not read '{name}.{key}': {end}", did_you_mean(key, section.keys))
                severity = outside or ("error" if section.strict else None)
                yield Found(_at(word, key), "; ".join(filter(None, told)), severity=severity)


def _at(word: Word, key: str) -> Word:
    """The key within the word that holds the JSON, where the word is written as it is read but for quotes."""
    at, quotes = word.text.find(f'"{key}"'), word.width - len(word.text)
    if at < 0 or quotes not in (0, 2):
        return replace(word, text=key)
    return replace(word, text=key, col=word.col + quotes // 2 + at + 1, width=len(key))


DTYPE = LintRule(
    "MLA551", "ascend-dtype", "warning", "MLA kernels do not take float16",
    "An override of the dtype breaks MLA on the A2 series.", "Leave it out.",
    f"{R1} --dtype float16\n", f"{R1} --dtype bfloat16\n", "vllm-project/vllm-ascend issue 7685", _dtype,
    engines=("vllm_ascend",), needs=("model",),
)  # fmt: skip
BLOCKS = LintRule(
    "MLA552", "ascend-block", "warning", "the block size is replaced",
    "MLA kernels take blocks of 128, which the plugin sets with prefix caching or chunked prefill on.", "Use 128.",
    f"{R1} --block-size 64\n", f"{R1} --block-size 128\n", "vllm_ascend/utils.py, refresh_block_size", _block,
    engines=("vllm_ascend",), needs=("model",),
)  # fmt: skip
HEADS = LintRule(
    "MLA553", "ascend-graph-heads", "info", "graph mode of older versions does not take this many heads",
    "`MLA only support {32, 64, 128}`: 0.23 pads the heads. Whether a version before it does was not read.",
    "Run eagerly there, or use a newer version.",
    "# mlaplan: engine=vllm-ascend\nvllm serve deepseek-ai/DeepSeek-V2-Lite\n",
    "# mlaplan: engine=vllm-ascend\nvllm serve deepseek-ai/DeepSeek-V2-Lite --enforce-eager\n",
    "vllm-project/vllm-ascend issue 1451", _graph_heads, "not read", ("vllm_ascend",), ("model",),
)  # fmt: skip
INTERLEAVE = LintRule(
    "MLA554", "ascend-interleave", "error", "the cache's interleave is not the block size",
    "Split prefill and decode with context parallelism asserts that they are equal.", "Use the block size.",
    f"{R1_NEW} --decode-context-parallel-size 2 --cp-kv-cache-interleave-size 64 "
    "--kv-transfer-config '{\"kv_role\": \"kv_consumer\"}'\n",
    f"{R1_NEW} --decode-context-parallel-size 2 --cp-kv-cache-interleave-size 128 "
    "--kv-transfer-config '{\"kv_role\": \"kv_consumer\"}'\n",
    "vllm_ascend/platform.py", _interleave, engines=("vllm_ascend",),
)  # fmt: skip

CONFIG = LintRule(
    "MLA555", "ascend-config-key", "warning", "a key of --additional-config is not read",
    "The plugin takes what it knows out of the JSON and passes over the rest without a word; `eplb_config` refuses it "
    "from 0.18 on.", "Use the nearest match, or remove the key.",
    f"{R1_NEW} --additional-config '{{\"enable_flashcom1\": true}}'\n",
    f"{R1_NEW} --additional-config '{{\"enable_flashcomm1\": true}}'\n",
    "vllm_ascend/ascend_config.py at each version", _config, engines=("vllm_ascend",),
)  # fmt: skip

ASCEND = (DTYPE, BLOCKS, HEADS, INTERLEAVE, CONFIG)
