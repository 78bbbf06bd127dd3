"""A deployment as one version of its engine sees it: flags read, the plan in them, and what prices it."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mlaplan.engines.flags import CommandLine, FlagTable, load_flags, read_flags
from mlaplan.engines.load import load_profile
from mlaplan.lint.deployment import Deployment
from mlaplan.lint.text import Word

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile

MODULES = {
    "vllm": "mlaplan.engines.vllm", "sglang": "mlaplan.engines.sglang", "trtllm": "mlaplan.engines.trtllm",
    "vllm_ascend": "mlaplan.engines.vllm_ascend",
}  # fmt: skip
MOST = 10**8  # of anything countable: products with bytes stay within 64 bits
# parts of a plan that are counts, and how the engines spell the flag
DEGREES = ("tp", "pp", "dp", "ep", "dcp", "cp", "replicas")
COUNTS = (*DEGREES, "block_size", "prefill_chunk", "batch", "max_model_len")
FLAGS = {
    "vllm": {
        "tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size", "dp": "--data-parallel-size",
        "ep": "--enable-expert-parallel", "dcp": "--decode-context-parallel-size",
        "cp": "--prefill-context-parallel-size", "block_size": "--block-size", "kv_dtype": "--kv-cache-dtype",
        "batch": "--max-num-seqs", "prefill_chunk": "--max-num-batched-tokens", "max_model_len": "--max-model-len",
        "memory_fraction": "--gpu-memory-utilization", "mtp": "--speculative-config",
        "two_batch_overlap": "--enable-dbo",
        "backend": "--attention-backend",
    },
    "sglang": {
        "tp": "--tp-size", "pp": "--pp-size", "dp": "--attn-dp-size", "replicas": "--dp-size", "ep": "--ep-size",
        "dcp": "--dcp-size", "cp": "--attn-cp-size", "block_size": "--page-size", "kv_dtype": "--kv-cache-dtype",
        "batch": "--max-running-requests", "prefill_chunk": "--chunked-prefill-size",
        "max_model_len": "--context-length", "memory_fraction": "--mem-fraction-static",
        "mtp": "--speculative-num-steps", "two_batch_overlap": "--enable-two-batch-overlap",
        "backend": "--attention-backend",
    },
    "trtllm": {
        "tp": "--tp_size", "pp": "--pp_size", "ep": "--ep_size", "batch": "--max_batch_size",
        "prefill_chunk": "--max_num_tokens", "max_model_len": "--max_seq_len",
        "memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    },
}  # fmt: skip
# the same in an options file, which counts more
OPTIONS = {
    "trtllm": {
        "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "ep": "moe_expert_parallel_size",
        "dp": "enable_attention_dp", "batch": "max_batch_size", "prefill_chunk": "max_num_tokens",
        "max_model_len": "max_seq_len", "block_size": "kv_cache_config.tokens_per_block",
        "kv_dtype": "kv_cache_config.dtype", "memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
        "mtp": "speculative_config.num_nextn_predict_layers",
    },
}  # fmt: skip
JSON_OBJECTS = {
    "--speculative-config",
    "--eplb-config",
    "--compilation-config",
    "--additional-config",
    "--hf-overrides",
}


def is_open(value: Any) -> bool:
    """Whether a value is a variable or a template that nothing here fills in, as in arguments without a shell."""
    return isinstance(value, str) and ("$" in value or "{{" in value)


class View:
    """One deployment at one known version."""

    def __init__(self, deployment: Deployment, version: str) -> None:
        self.deployment, self.version = deployment, version
        self.launch, self.engine, self.base = deployment.launch, deployment.engine, deployment.base
        self.model, self.chip = deployment.model, deployment.chip
        self.table: FlagTable = load_flags(deployment.engine, version)
        self.unknown: dict[str, Word] = {}  # flags whose value is not known here, by the table's name
        self.line = self._read()

    @property
    def label(self) -> str:
        """`vLLM 0.33.0`"""
        return f"{TITLES.get(self.engine, self.engine)} {self.version}"

    def _read(self) -> CommandLine:
        """The flags as read, without those whose value is not known here."""
        line = read_flags(self.table, [word.text for word in self.launch.words])
        for given in line.given:
            if self._unknown(given.token, given.value):
                self.unknown[given.name] = self.word_of(given.token)
                line.values.pop(given.name, None)
        line.values |= {name: setting.value for name, setting in self.launch.settings.items()
                        if setting.value is not None and not is_open(setting.value)}  # fmt: skip
        for name in JSON_OBJECTS:
            if name in line.values and not isinstance(line.values[name], dict):
                del line.values[name]
        return line

    def _unknown(self, token: int, value: Any) -> bool:
        words = self.launch.words
        if words[token].unknown or is_open(value):
            return True
        follows = words[token + 1] if token + 1 < len(words) else None
        return bool(follows and follows.unknown and value is not True and "=" not in words[token].text)

    def word_of(self, token: int) -> Word:
        return self.launch.words[token]

    def get(self, spelled: str, default: Any = None) -> Any:
        """A flag's value by any spelling, or an option's by its dotted key."""
        flag = self.table.spellings.get(spelled)
        if flag is None and spelled.startswith("-"):
            return default
        return self.line.values.get(flag.name if flag is not None else spelled, default)

    def has(self, spelled: str) -> bool:
        """Whether the flag or option is given with a known value."""
        return self.get(spelled) is not None

    def place(self, *spelled: str) -> Word:
        """The word of the first of these flags that is given (the last time it is), else the whole launch's."""
        for one in spelled:
            if one in self.launch.settings:
                return self.launch.settings[one].word
            name = self.table.name(one)
            found = [given for given in self.line.given if given.name == name]
            if found:
                return self.word_of(found[-1].token)
        return self.launch.anchor

    def value_word(self, spelled: str) -> Word:
        """The word that holds the value of a flag: the flag's own where both are one word."""
        word = self.place(spelled)
        words = self.launch.words
        at = next((i for i, one in enumerate(words) if one is word), None)
        if at is None or "=" in word.text or at + 1 >= len(words):
            return word
        return words[at + 1]

    def part(self, name: str) -> Word:
        """The word behind a part of the plan."""
        base = self.base
        flag = FLAGS[base].get(name) if base in FLAGS else None
        option = OPTIONS.get(base, {}).get(name)
        extra = ("--dp-size", "--enable-dp-attention") if name in ("dp", "replicas") else ()
        return self.place(*([option] if option else []), *([flag] if flag else []), *extra)

    def env(self, name: str) -> str | None:
        """The value of an environment variable, None where it is not set or not known."""
        found = self.launch.env.get(name)
        return None if found is None or found.unknown else found.text

    @cached_property
    def profile(self) -> Profile:
        return load_profile(f"{self.engine}@{self.version}")

    @cached_property
    def attention(self) -> str | None:
        """The model's kind of attention: mla, mla_sparse or gqa."""
        if self.model is None:
            return None
        from mlaplan.engines.profile import attention_kind

        return attention_kind(self.model)

    @cached_property
    def plan(self) -> dict[str, Any] | None:
        """The plan in the flags; None where a part of it is not known or makes no sense."""
        if self.engine not in MODULES:
            return None
        if self.hides(*DEGREES, "kv_dtype"):
            return None
        module = import_module(MODULES[self.engine])
        env = {name: word.text for name, word in self.launch.env.items() if not word.unknown}
        try:
            # the version is all that is read of the profile, which takes long to build
            about = SimpleNamespace(version=self.version)
            plan: dict[str, Any] = module.parse(about, self.line, env, self.attention or "mla")
        except (TypeError, ValueError, AttributeError):  # a JSON value of another shape
            return None
        for name in COUNTS:
            if plan.get(name) is not None and not _is_count(plan[name], 0 if name == "max_model_len" else 1):
                if name == "max_model_len" and plan[name] == -1:
                    continue
                return None
        if self.base == "sglang" and plan["tp"] * plan["dp"] != self.get("--tp-size", 1):
            return None  # attention DP that does not divide the ranks
        return plan if isinstance(plan.get("mtp"), int) and 0 <= plan["mtp"] <= 64 else None

    def hides(self, *parts: str) -> bool:
        """Whether the flag behind one of these parts of the plan is given with a value that is not known here."""
        if not self.unknown and not self.launch.settings:
            return False
        flags = FLAGS[self.base]
        names = {self.table.name(flags[part]) for part in parts or flags if part in flags}
        options = {OPTIONS.get(self.base, {}).get(part) for part in parts or flags}
        hidden = any(is_open(s.value) for name, s in self.launch.settings.items() if name in options)
        return hidden or any(name in names for name in self.unknown)

    @cached_property
    def row(self) -> dict[str, Any] | None:
        """The deployment as one row of the planner's table; None where a part of it has no column."""
        p = self.plan
        if p is None or self.model is None:
            return None
        from mlaplan.costs.precision import quantised
        from mlaplan.strategy import KV_DTYPES

        if p["kv_dtype"] not in KV_DTYPES:
            return None

        row = {name: p[name] for name in ("tp", "pp", "dp", "ep", "dcp", "cp", "kv_layout", "kv_dtype", "mtp")}
        return {**row, "replicas": p.get("replicas", 1), "weight_dtype": quantised(self.model)}

    @property
    def complete(self) -> bool:
        """Whether nothing is hidden that could hold further flags: a rule on what is absent needs this."""
        positionals = [self.word_of(at) for at, _ in self.line.positionals]
        nothing_open = self.launch.open is None and self.line.stopped is None
        return nothing_open and not any(word.unknown for word in positionals)

    @property
    def world(self) -> int | None:
        """Chips that the flags ask for."""
        p = self.plan
        return p["tp"] * p["pp"] * p["dp"] * p.get("replicas", 1) if p else None

    @cached_property
    def priced(self) -> Any:
        """The deployment as the planner sees it; None where it cannot be priced."""
        if self.model is None or self.chip is None or self.plan is None or self.hides():
            return None
        from mlaplan.lint.pricing import priced

        return priced(self)


TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "vllm_ascend": "vLLM-Ascend"}


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST
