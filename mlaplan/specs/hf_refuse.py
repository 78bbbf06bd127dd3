"""Architectures that can be read but not priced: which key shows it, and why.

Pricing one of these as if it were plain attention would give a confident wrong answer, so it is refused.
"""

from __future__ import annotations

import re
from typing import Any

from mlaplan.errors import SpecError, did_you_mean
from mlaplan.specs.hf_keys import Keys

NOT_PRICED = "not-priced"

_STATE = "keep a state per request instead of a cache per token"
# key -> what it shows, as the end of "... shows that"; the first of these keys that is set is the one named
MECHANISMS: dict[str, str] = {
    "compress_ratios": "attention reads compressed blocks of a single KV head (compressed MQA)",
    "linear_attn_config": f"most layers are linear attention (KDA) and {_STATE}",
    "full_attention_interval": f"most layers are linear attention and {_STATE}",
    "linear_num_value_heads": f"some layers are linear attention (gated delta rule) and {_STATE}",
    "hybrid_override_pattern": f"some layers are state-space layers and {_STATE}",
    "layers_block_type": f"some layers are of other kinds than attention and {_STATE}",
    "attn_type_list": f"some layers are linear attention and {_STATE}",
    "attn_layer_period": f"most layers are state-space layers and {_STATE}",
    "ssm_cfg": f"the layers are state-space layers and {_STATE}",
    "state_size": f"the layers are state-space layers and {_STATE}",
    "o_lora_rank": "the output projection is factored, which is not part of MLA",
    "mla_use_output_gate": "a gate multiplies the output of attention",
    "attn_output_gate": "a gate multiplies the output of attention",
    "mla_use_nope": "attention has no rotary part, as in linear-attention hybrids",
    "sparse_attention_config": "attention reads selected blocks of the cache",
    "sparse_config": "attention reads selected blocks of the cache",
    "attention_chunk_size": "attention is cut into chunks, so the cache of a layer is bounded",
    "num_kv_shared_layers": "layers share the cache of others",
    "cross_attention_layers": "some layers attend to an encoder",
    "is_encoder_decoder": "it is an encoder-decoder",
    "hc_mult": "hyper-connections keep several residual streams",
    "ngram_vocab_size_ratio": "the input has n-gram embeddings",
    "moe_latent_size": "experts work in a latent space",
}
# a key that begins like this belongs to a mechanism even where the key itself is unknown
_FAMILY_OF_KEYS = re.compile(r"(compress|linear_(attn|key|value|conv)|mamba|ssm|hc|kda|swa|gdn|ngram)_")
_LOW_RANK = re.compile(r"\w+_lora_rank")
_EXPERT_KEYS = ("n_routed_experts", "num_routed_experts", "num_local_experts", "num_experts")
_FULL_ATTENTION = ("full_attention", "attention", "deepseek_sparse_attention")
_WINDOW_ONLY_IF_SAID = ("qwen2", "qwen3", "qwen3_moe")  # use_sliding_window is false unless given


def refuse_unmodelled(keys: Keys, architecture: str, model_type: str | None, dense: bool) -> None:
    """Raises SpecError where a key shows a mechanism that has no cost model."""
    found = _mechanism(keys) or _window(keys, model_type)
    if found is None and dense:
        key = keys.given(*_EXPERT_KEYS)
        if key is not None and isinstance(keys.data[key], int) and keys.data[key] > 1:
            found = (key,), "there are experts, which this architecture is not known to have"
    if found is not None:
        path, reason = found
        raise not_priced(keys, path, architecture, f"key '{_dotted(path)}' shows that {reason}")


def refuse_unknown(keys: Keys, architecture: str, model_type: str | None, covered: list[str]) -> SpecError:
    """The refusal of an architecture that no key explains."""
    expected = f"a model_type of {', '.join(covered)}"
    hint = did_you_mean(model_type, covered) if model_type else None
    place = "model_type" if "model_type" in keys.data else "architectures"
    return not_priced(keys, (place,), architecture, "the cost model does not know it", expected, hint)


def not_priced(
    keys: Keys,
    path: tuple[str | int, ...],
    architecture: str,
    reason: str,
    expected: str | None = None,
    hint: str | None = None,
) -> SpecError:
    """One problem at the key that shows it, with a code by which a linter can tell it from a mistake."""
    message = f"{architecture} can be read but not priced: {reason}"
    problem = keys.document.problem((*keys.path, *path), message, expected=expected, hint=hint)
    return SpecError([problem._replace(code=NOT_PRICED)])


def _mechanism(keys: Keys) -> tuple[tuple[str | int, ...], str] | None:
    for key, reason in MECHANISMS.items():
        if _is_set(keys.data.get(key)):
            return (key,), reason
    for key, value in keys.data.items():
        if not _is_set(value):
            continue
        if _FAMILY_OF_KEYS.match(key):
            return (key,), "there is a mechanism that the cost model does not hold"
        if _LOW_RANK.fullmatch(key) and key not in ("q_lora_rank", "kv_lora_rank"):
            return (key,), "there is a low-rank factor that is not part of MLA"
    return None


def _window(keys: Keys, model_type: str | None) -> tuple[tuple[str | int, ...], str] | None:
    kinds = keys.data.get("layer_types")
    for i, kind in enumerate(kinds if isinstance(kinds, list) else []):
        if kind not in _FULL_ATTENTION:
            return (
                "layer_types",
                i,
            ), f"layer {i} is of the kind '{kind}', not attention over the whole context"
    window, longest = keys.data.get("sliding_window"), keys.data.get("max_position_embeddings")
    if not isinstance(window, int) or isinstance(window, bool) or window <= 0:
        return None
    used = keys.data.get("use_sliding_window", not kinds and model_type not in _WINDOW_ONLY_IF_SAID)
    if used and isinstance(longest, int) and window < longest:
        return ("sliding_window",), f"attention sees a sliding window of {window} tokens"
    return None


def _is_set(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {})


def _dotted(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
