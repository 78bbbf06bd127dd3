"""An unmodified Hugging Face config.json to a model in the shape of `models/*.yaml`.

What sizes something must be given; what only the arithmetic of a layer needs (rope scaling, activation)
is not read. `hf_refuse` refuses architectures without a cost model; `hf_quant` reads weight formats.
Source of key names and defaults: the configuration classes of transformers and of the models' own code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from mlaplan.errors import Problem, SpecError
from mlaplan.specs import hf_quant
from mlaplan.specs.hf_keys import REQUIRED, Keys
from mlaplan.specs.hf_refuse import refuse_unknown, refuse_unmodelled
from mlaplan.specs.model import Model
from mlaplan.specs.source import Document

TEXT_PARTS = ("text_config", "language_config", "llm_config")
OTHER_TOWERS = ("vision_config", "audio_config", "vit_config")
MOST_LAYERS = 1000


@dataclass(frozen=True, slots=True)
class Family:
    """What a model_type fixes without saying so in its config."""

    attention: str  # mla | gqa
    ffn: str  # dense | moe | shortcut (LongCat: two attentions, two dense FFNs and one MoE a layer)
    expert_size: str = "moe_intermediate_size"
    leading_dense: int = REQUIRED  # value of first_k_dense_replace where it may be left out
    shared_experts: int = REQUIRED
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False


_DEEPSEEK = Family("mla", "moe")
FAMILIES: dict[str, Family] = {
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "pangu_ultra_moe": _DEEPSEEK,
    "mistral4": Family("mla", "moe", leading_dense=0),
    "longcat_flash": Family("mla", "shortcut", "expert_ffn_hidden_size", 0, 0),
    "minicpm3": Family("mla", "dense", tied=True),
    "llama": Family("gqa", "dense"),
    "mistral": Family("gqa", "dense"),
    "qwen2": Family("gqa", "dense", qkv_bias=True),
    "qwen3": Family("gqa", "dense", qk_norm=True),
    "qwen3_moe": Family("gqa", "moe", leading_dense=0, shared_experts=0, qk_norm=True),
    "mixtral": Family("gqa", "moe", "intermediate_size", 0, 0),
    "glm4_moe": Family("gqa", "moe"),
}
# the class that engines dispatch on, for a model_type that is absent or a repository's own
ARCHITECTURES = {
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "Glm4MoeForCausalLM": "glm4_moe",
    "PanguUltraMoEForCausalLM": "pangu_ultra_moe",
    "Mistral4ForCausalLM": "mistral4",
    "LongcatFlashForCausalLM": "longcat_flash",
    "LongcatCausalLM": "longcat_flash",
    "MiniCPM3ForCausalLM": "minicpm3",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}
ACCEPTANCE = {
    "value": 0.8,
    "low": 0.6,
    "high": 0.9,
    "source": "not in config.json; DeepSeek-V3, arXiv:2412.19437, sec. 5.4.3 (85 to 90 % for the second"
    " token); CloudMatrix384, arXiv:2506.12708 (70 % in serving)",
    "confidence": "assumed",
}
MAX_DRAFT = 3


def model_from_config(document: Document) -> Model:
    """The model that a config.json describes, or SpecError with every problem at its place in that file."""
    from pydantic import ValidationError

    data = from_config(document)
    try:
        return Model.model_validate(data)
    except ValidationError as error:  # sizes that are each possible and together absurd
        told = [
            (".".join(map(str, detail["loc"])), detail["msg"].removeprefix("Value error, "))
            for detail in error.errors()
        ]
        raise SpecError([document.problem((), f"{place}: {words}") for place, words in told]) from None


def from_config(document: Document) -> dict[str, Any]:
    """The data of a `kind: model` spec; it passes the validation of Model."""
    problems: list[Problem] = []
    keys, outer = _text_part(document, problems)
    model_type, shown = _architecture(keys, outer)
    family = FAMILIES.get(model_type or "")
    if model_type is None:
        raise SpecError(
            [document.problem(keys.path, "missing key 'model_type'", expected=f"one of {', '.join(sorted(FAMILIES))}")]
        )
    refuse_unmodelled(keys, shown, model_type, dense=family is not None and family.ffn == "dense")
    if family is None:
        raise refuse_unknown(keys, shown, model_type, sorted(FAMILIES))

    notes: list[str] = []
    attention = _attention(keys, family, notes)
    ffn = _ffn(keys, family)
    layers = _schedule(keys, family, attention, ffn)
    mtp = _mtp(keys, layers)
    _drop_unused(attention, layers, mtp, "attention")
    _drop_unused(ffn, layers, mtp, "ffn")
    shape = hf_quant.Shape(layers, attention, ffn, mtp, keys.count("hidden_size"))
    weights = hf_quant.read(keys, outer, shape, notes)
    if any(outer.data.get(tower) for tower in OTHER_TOWERS):
        notes.append("only the text model is counted; the vision or audio tower is not")
    name = _name(document, keys, outer)
    data = {
        "kind": "model",
        "name": name,
        "title": name,
        "source": f"config.json, model_type {keys.data.get('model_type') or model_type}",
        "served_names": (),
        "notes": tuple(notes),
        "published": None,
        "hidden_size": keys.count("hidden_size"),
        "vocab_size": keys.count("vocab_size"),
        "max_position": keys.count("max_position_embeddings", "model_max_length", "seq_length"),
        "tied_embeddings": keys.flag("tie_word_embeddings", outer.flag("tie_word_embeddings", family.tied)),
        "attention": attention,
        "ffn": ffn,
        "layers": tuple(layers),
        "mtp": mtp,
        "weights": weights,
    }
    if not problems:
        problems += _contradictions(keys, data)
    if problems:
        unique = {problem.text(): problem for problem in problems}
        raise SpecError(sorted(unique.values(), key=lambda p: (p.line or 0, p.col or 0)))
    return data


def _text_part(document: Document, problems: list[Problem]) -> tuple[Keys, Keys]:
    """(keys of the text model, keys of the whole file); the same where nothing is nested."""
    outer = Keys(document, (), problems)
    if "num_attention_heads" not in document.data:
        for part in TEXT_PARTS:
            if isinstance(document.data.get(part), dict):
                return Keys(document, (part,), problems), outer
    return outer, outer


def _architecture(keys: Keys, outer: Keys) -> tuple[str | None, str]:
    """(covered model_type or the one given, how to call the architecture in an error)."""
    classes = keys.data.get("architectures") or outer.data.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else None
    given = keys.data.get("model_type")
    given = given if isinstance(given, str) and given else None
    parts = [part for part in (outer.data.get("model_type"), given) if isinstance(part, str) and part]
    shown = " / ".join(dict.fromkeys(parts)) or name or ""
    shown = f"architecture '{shown}'" + (f" ({name})" if name and name != shown else "")
    if given in FAMILIES:
        return given, shown
    return ARCHITECTURES.get(name or "", given or name), shown


def _attention(keys: Keys, family: Family, notes: list[str]) -> dict[str, dict[str, Any]]:
    """The named attention kinds; those no layer uses are dropped later."""
    heads = keys.count("num_attention_heads")
    if family.attention == "gqa":
        width = keys.count("hidden_size") // heads if keys.given("num_attention_heads") else 1
        gqa = {
            "kind": "gqa",
            "heads": heads,
            "kv_heads": keys.count("num_key_value_heads", default=heads),
            "head_dim": keys.count("head_dim", default=max(width, 1)),
            "qkv_bias": family.qkv_bias or keys.flag("attention_bias", False),
            "qk_norm": family.qk_norm or keys.flag("use_qk_norm", False),
        }
        return {"gqa": gqa}
    q_rank = keys.given("q_lora_rank", "attention_q_lora_dim")
    if q_rank is None and "q_lora_rank" not in keys.data:
        notes.append("config.json does not give q_lora_rank, so queries are taken as not compressed")
    # MiniCPM3 leaves v_head_dim out: its model code takes hidden_size / heads
    v_default = max(keys.count("hidden_size") // heads, 1) if family.tied else REQUIRED
    mla: dict[str, Any] = {
        "kind": "mla",
        "heads": heads,
        "q_lora_rank": keys.count(q_rank) if q_rank else None,
        "kv_lora_rank": keys.count("kv_lora_rank", "attention_kv_lora_dim"),
        "qk_nope_head_dim": keys.count("qk_nope_head_dim", "attention_qk_dim"),
        "qk_rope_head_dim": keys.count("qk_rope_head_dim", "attention_qk_rope_dim"),
        "v_head_dim": keys.count("v_head_dim", "attention_v_dim", default=v_default),
        "bias": keys.flag("attention_bias", False),
        "sparse": None,
    }
    if keys.given("index_topk") is None:
        return {"mla": mla}
    indexer = {"heads": keys.count("index_n_heads"), "head_dim": keys.count("index_head_dim")}
    top_k = keys.count("index_topk")
    return {
        "mla": mla | {"sparse": {"top_k": top_k, "indexer": indexer}},
        "mla_shared": mla | {"sparse": {"top_k": top_k, "indexer": None}},
    }


def _ffn(keys: Keys, family: Family) -> dict[str, dict[str, Any]]:
    """The named FFN kinds. A width is asked for only where a layer needs it, see `_schedule`."""
    ffn: dict[str, dict[str, Any]] = {}
    if family.ffn != "moe":
        ffn["dense"] = _dense(keys)
    if family.ffn == "dense":
        return ffn
    size = keys.count(family.expert_size)
    # null says that there are none; leaving the key out does not
    no_shared = 0 if "n_shared_experts" in keys.data else family.shared_experts
    shared = keys.count("n_shared_experts", "num_shared_experts", default=no_shared, least=0)
    ffn["moe"] = {
        "kind": "moe",
        "intermediate_size": size,
        "experts": keys.count("n_routed_experts", "num_routed_experts", "num_local_experts", "num_experts"),
        "experts_per_token": keys.count("num_experts_per_tok", "moe_topk", "num_experts_per_token"),
        "zero_experts": keys.count("zero_expert_num", default=0, least=0),
        "shared_experts": shared,
        "shared_intermediate_size": shared * size,
        "groups": keys.count("n_group", default=1),
        "groups_per_token": keys.count("topk_group", default=1),
    }
    return ffn


def _dense(keys: Keys) -> dict[str, Any]:
    return {"kind": "dense", "intermediate_size": keys.count("intermediate_size", "ffn_hidden_size")}


def _schedule(keys: Keys, family: Family, attention: dict[str, Any], ffn: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs of equal layers in order."""
    if family.ffn == "shortcut":
        # num_hidden_layers, where present, counts the attention blocks
        count = keys.count("num_layers", most=MOST_LAYERS)
        return [{"count": count, "attention": ("mla", "mla"), "ffn": ("dense", "dense", "moe")}]
    count = keys.count("num_hidden_layers", most=MOST_LAYERS)
    attentions, ffns = _attention_kinds(keys, attention, count), _ffn_kinds(keys, family, count)
    if "dense" in ffns and "dense" not in ffn:
        ffn["dense"] = _dense(keys)
    return [
        {"count": len(list(run)), "attention": (a,), "ffn": (f,)}
        for (a, f), run in groupby(zip(attentions, ffns, strict=True))
    ]


def _attention_kinds(keys: Keys, attention: dict[str, Any], count: int) -> list[str]:
    first = next(iter(attention))
    if "mla_shared" not in attention:
        return [first] * count
    indexers = keys.words("indexer_types", ("full", "shared"), count, spare=_mtp_layers(keys))
    if indexers is None:
        if keys.data.get("indexer_types") is None and keys.data.get("index_topk_freq") not in (None, 1):
            keys.missing("indexer_types")
        return [first] * count
    if indexers[0] == "shared":
        expected = "'full', since there is no earlier selection to reuse"
        keys.complain(("indexer_types", 0), "indexer_types[0] is 'shared'", expected=expected)
    return ["mla" if kind == "full" else "mla_shared" for kind in indexers]


def _ffn_kinds(keys: Keys, family: Family, count: int) -> list[str]:
    if family.ffn == "dense":
        return ["dense"] * count
    listed = keys.words("mlp_layer_types", ("dense", "sparse"), count, spare=_mtp_layers(keys))
    if listed is not None:
        return ["moe" if kind == "sparse" else "dense" for kind in listed]
    if isinstance(keys.data.get("moe_layer_freq"), list):
        flags = keys.words("moe_layer_freq", (0, 1), count) or [1] * count
        return ["moe" if flag else "dense" for flag in flags]
    leading = keys.count("first_k_dense_replace", "num_dense_layers", default=family.leading_dense, least=0)
    every = keys.count("moe_layer_freq", default=1)
    # Qwen3-MoE counts from one, DeepSeek from zero
    step = keys.count("decoder_sparse_step", default=1)
    dense = keys.data.get("mlp_only_layers")
    dense = dense if isinstance(dense, list) else []
    return [
        "moe" if i >= leading and i % every == 0 and (i + 1) % step == 0 and i not in dense else "dense"
        for i in range(count)
    ]


def _mtp_layers(keys: Keys) -> int:
    return keys.count("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0, most=MOST_LAYERS)


def _mtp(keys: Keys, layers: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The MTP layer is one more layer of the last kind, with an indexer of its own."""
    if (count := _mtp_layers(keys)) == 0:
        return None
    last = layers[-1]
    attention = "mla" if last["attention"][-1] == "mla_shared" else last["attention"][-1]
    # LongCat's head is a single dense layer
    ffn = "dense" if len(last["ffn"]) > 1 else last["ffn"][-1]
    mtp = {"layers": count, "attention": attention, "ffn": ffn}
    return mtp | {"max_draft": MAX_DRAFT, "acceptance": ACCEPTANCE}


def _drop_unused(kinds: dict[str, Any], layers: list[dict[str, Any]], mtp: dict[str, Any] | None, part: str) -> None:
    used = {name for run in layers for name in run[part]} | ({mtp[part]} if mtp else set())
    for name in [name for name in kinds if name not in used]:
        del kinds[name]


def _contradictions(keys: Keys, data: dict[str, Any]) -> list[Problem]:
    """Sizes that do not fit each other, told at the key of config.json that they come from."""
    source = {
        "experts_per_token": ("num_experts_per_tok", "moe_topk", "num_experts_per_token"),
        "groups_per_token": ("topk_group",),
        "groups": ("n_group",),
        "kv_heads": ("num_key_value_heads",),
    }
    found = []
    for path, message, expected, _ in Model.contradictions(data):
        key = keys.given(*source.get(str(path[-1]), ()))
        found.append(keys.document.problem((*keys.path, *([key] if key else [])), message, expected=expected))
    return found


def _name(document: Document, keys: Keys, outer: Keys) -> str:
    """A name for the model: of the file, of its folder, or the one it was saved under."""
    path = Path(document.file)
    if path.stem != "config":
        return path.stem.removesuffix("_config").removesuffix("-config") or path.stem
    folders = path.resolve().parent.parts
    cached = [part for part in folders if part.startswith("models--")]  # the hub's cache: models--org--name
    if cached:
        return cached[-1].split("--")[-1]
    given = [str(part.data.get("_name_or_path") or "").strip("/. ") for part in (keys, outer)]
    if len(path.parts) < 2 and any(given):
        return max(given, key=bool).split("/")[-1]
    name = folders[-1] if folders else ""
    return re.sub(r"\s+", "-", name).strip("/") or str(keys.data.get("model_type") or "model")
