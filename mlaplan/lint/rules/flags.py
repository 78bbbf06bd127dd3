"""Flags that the engine's version does not take, and environment variables that it no longer reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlaplan.engines.flags import Complaint
from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule
from mlaplan.lint.versions import at_least

if TYPE_CHECKING:
    from mlaplan.lint.view import View

V3 = "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8"
# what took the place of a flag that is gone
REPLACED = {
    "vllm": {
        "--disable-log-requests": "--no-enable-log-requests",
        "--num-redundant-experts": "--eplb-config.num_redundant_experts",
        "--cuda-graph-sizes": "--cudagraph-capture-sizes",
        "--max-seq-len-to-capture": "--max-cudagraph-capture-size",
        "--rope-scaling": "--hf-overrides",
        "--guided-decoding-backend": "--structured-outputs-config.backend",
    },
    "sglang": {
        "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
        "--cuda-graph-bs": "--cuda-graph-bs-decode",
        "--nsa-prefill-backend": "--dsa-prefill-backend",
        "--nsa-decode-backend": "--dsa-decode-backend",
        "--enable-ep-moe": "--ep-size",
        "--enable-deepep-moe": "--moe-a2a-backend deepep",
        "--enable-flashmla": "--attention-backend flashmla",
        "--enable-flashinfer-mla": "--attention-backend flashinfer",
    },
}
# flags that are older than the versions whose tables are known, and what became of them
LONG_GONE = {
    "sglang": {
        "--enable-mla": "MLA is always on", "--disable-mla": "MLA cannot be turned off",
        "--enable-flashmla": "", "--enable-flashinfer-mla": "", "--enable-ep-moe": "", "--enable-deepep-moe": "",
    },
}  # fmt: skip
# variable -> (first known version that ignores it, what to use)
STALE_ENV = {
    "VLLM_ATTENTION_BACKEND": ("0.26.0", "--attention-backend"),
    "VLLM_ALL2ALL_BACKEND": ("0.26.0", "--all2all-backend"),
    "VLLM_MOE_DP_CHUNK_SIZE": ("0.26.0", "--max-num-batched-tokens"),
    "VLLM_USE_V1": ("0.26.0", None),
}


def _kind(view: View, complaint: Complaint) -> str:
    """Which rule a complaint of the flag reader belongs to."""
    if "short for more than one" in complaint.message:
        return "ambiguous"
    if "has no flag" not in complaint.message:
        return "value"
    spelled = view.word_of(complaint.token).text.partition("=")[0].partition(".")[0].replace("_", "-")
    gone = spelled in view.table.lifetimes or spelled in LONG_GONE.get(view.base, {})
    return "removed" if gone else "unknown"


def _of_kind(view: View, kind: str) -> Iterator[Found]:
    for complaint in view.line.complaints:
        word = view.word_of(complaint.token)
        if word.unknown or _kind(view, complaint) != kind:
            continue
        if kind == "value" and _value_unknown(view, complaint):
            continue
        spelled = word.text.partition("=")[0]
        message = complaint.message.replace(f"{view.table.engine} {view.version}", view.label)
        parts = [message]
        if complaint.expected:
            parts.append(f"expected {complaint.expected}")
        if complaint.hint:
            parts.append(complaint.hint)
        help_, edit = _replacement(view, spelled, word.text) if kind in ("removed", "ambiguous") else (None, None)
        severity = None
        if kind == "unknown" and view.deployment.candidates.how in ("newer", "older"):
            severity = "info"
        elif kind == "unknown" and view.engine == "trtllm":
            severity = "warning"  # its table is of one commit
        yield Found(word, "; ".join(parts), help_, severity, edit=edit)


def _value_unknown(view: View, complaint: Complaint) -> bool:
    words = view.launch.words
    return complaint.token + 1 < len(words) and words[complaint.token + 1].unknown is not None


def _replacement(view: View, spelled: str, text: str) -> tuple[str | None, str | None]:
    name = spelled.replace("_", "-")
    told = LONG_GONE.get(view.base, {}).get(name)
    new = REPLACED.get(view.base, {}).get(name)
    if new is None or view.table.name(new.split()[0].partition(".")[0]) is None:
        return told or None, None
    safe = new if " " not in new and "." not in new and not text.partition("=")[1] else None
    return f"use {new}", safe if name in SAFE else None


# renamed with the same meaning and kind of value
SAFE = {
    "--disable-log-requests", "--cuda-graph-max-bs", "--cuda-graph-bs", "--nsa-prefill-backend", "--nsa-decode-backend",
}  # fmt: skip


def _unknown(view: View) -> Iterator[Found]:
    yield from _of_kind(view, "unknown")


def _removed(view: View) -> Iterator[Found]:
    yield from _of_kind(view, "removed")


def _ambiguous(view: View) -> Iterator[Found]:
    yield from _of_kind(view, "ambiguous")


def _value(view: View) -> Iterator[Found]:
    yield from _of_kind(view, "value")
    for given in view.line.given:
        flag = view.table.spellings.get(given.name)
        if flag is None or isinstance(given.value, bool) or not isinstance(given.value, int):
            continue
        name = given.name
        if flag.kind in ("int", "size") and name in COUNTED and given.value < 1 and name not in view.unknown:
            allowed = name in ("--max-model-len", "--context-length", "--chunked-prefill-size") and given.value == -1
            if not allowed:
                yield Found(view.word_of(given.token), f"{name} {given.value}; expected at least 1")


COUNTED = {
    "--tensor-parallel-size", "--tp-size", "--pipeline-parallel-size", "--pp-size", "--data-parallel-size", "--dp-size",
    "--attn-dp-size", "--decode-context-parallel-size", "--dcp-size", "--block-size", "--page-size", "--max-num-seqs",
    "--max-num-batched-tokens", "--max-model-len", "--context-length", "--ep-size", "--expert-parallel-size",
    "--nnodes",
}  # fmt: skip


def _repeated(view: View) -> Iterator[Found]:
    seen: dict[str, object] = {}
    for given in view.line.given:
        dotted = "." in given.spelled.partition("=")[0]
        if given.name in seen and not dotted and seen[given.name] != given.value:
            message = f"{given.name} is given twice, {seen[given.name]} and then {given.value}; the last one counts"
            yield Found(view.word_of(given.token), message)
        if not dotted:
            seen[given.name] = given.value


def _stale_env(view: View) -> Iterator[Found]:
    for name, (since, instead) in STALE_ENV.items():
        word = view.launch.env.get(name)
        if word is None or not at_least(view.version, since):
            continue
        help_ = f"use {instead}" if instead else "remove it"
        yield Found(word, f"{view.label} does not read {name}: it has no effect", help_)


def _deprecated(view: View) -> Iterator[Found]:
    if view.base == "vllm" and view.has("--disable-log-requests"):
        word = view.place("--disable-log-requests")
        yield Found(word, f"--disable-log-requests is deprecated in {view.label}", "use --no-enable-log-requests",
                    edit="--no-enable-log-requests" if view.table.name("--enable-log-requests") else None)  # fmt: skip
    if view.base == "sglang" and view.table.name("--attn-dp-size") and view.has("--enable-dp-attention"):
        word = view.place("--enable-dp-attention")
        yield Found(word, f"{view.label} translates --enable-dp-attention with --dp-size until the end of 2026 only",
                    "use --attn-dp-size N in place of --dp-size N --enable-dp-attention")  # fmt: skip


UNKNOWN = LintRule(
    "MLA401", "unknown-flag", "error", "the engine has no such flag in any version that is known",
    "The server stops at start-up with a usage message.", "Use the nearest match, or remove the flag.",
    f"{V3} --max-model-length 8192\n", f"{V3} --max-model-len 8192\n",
    "argparse; the flag tables of each version", _unknown,
)  # fmt: skip
REMOVED = LintRule(
    "MLA402", "removed-flag", "error", "the flag does not exist in this version",
    "It was removed, or came later. The server stops at start-up with a usage message.",
    "Use what took its place, or a version that has it.",
    f"# vLLM 0.33.0\n{V3} --swap-space 4\n", f"# vLLM 0.11.0\n{V3} --swap-space 4\n",
    "vllm/engine/arg_utils.py and sglang/srt/server_args.py at each version", _removed,
)  # fmt: skip
AMBIGUOUS = LintRule(
    "MLA403", "ambiguous-flag", "error", "the flag is short for more than one",
    "argparse takes any unique beginning of a flag. A flag that was renamed can become the beginning of several.",
    "Write the flag out.",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 "
    "--cuda-graph-max-bs 64\n",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 "
    "--cuda-graph-max-bs-decode 64\n",
    "argparse, allow_abbrev", _ambiguous,
)  # fmt: skip
VALUE = LintRule(
    "MLA404", "bad-value", "error", "the flag does not take this value",
    "The server stops at start-up: no value, a value of another kind, or none of the choices.",
    "Give one of the values named.",
    f"{V3} --kv-cache-dtype fp9\n", f"{V3} --kv-cache-dtype fp8\n",
    "argparse types and choices of each version", _value,
)  # fmt: skip
REPEATED = LintRule(
    "MLA405", "repeated-flag", "warning", "a flag is given twice with different values",
    "argparse keeps the last one without a word.", "Remove one of them.",
    f"{V3} --max-model-len 8192 --max-model-len 4096\n", f"{V3} --max-model-len 4096\n", "argparse", _repeated,
)  # fmt: skip
STALE = LintRule(
    "MLA406", "stale-env", "warning", "the engine no longer reads this environment variable",
    "vLLM logs `Unknown vLLM environment variable detected` and goes on without it: the backend asked for is not used.",
    "Use the flag that took its place.",
    f"# vLLM 0.33.0\nVLLM_ATTENTION_BACKEND=FLASHMLA {V3}\n", f"# vLLM 0.33.0\n{V3} --attention-backend FLASHMLA\n",
    "vllm/platforms/interface.py; vllm-project/vllm issue 50292", _stale_env, "vLLM from 0.26.0 on", ("vllm",),
)  # fmt: skip
DEPRECATED = LintRule(
    "MLA407", "deprecated-spelling", "warning", "the spelling is deprecated",
    "It works in this version and is gone in a later one.", "Use the new spelling.",
    f"# vLLM 0.15.1\n{V3} --disable-log-requests\n", f"# vLLM 0.15.1\n{V3} --no-enable-log-requests\n",
    "vllm/entrypoints/openai/cli_args.py; sglang/srt/arg_groups/parallel_hook.py", _deprecated,
)  # fmt: skip

FLAGS = (UNKNOWN, REMOVED, AMBIGUOUS, VALUE, REPEATED, STALE, DEPRECATED)
