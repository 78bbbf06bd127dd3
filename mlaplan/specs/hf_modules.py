"""Names of the linear layers of a model, and the patterns with which checkpoints leave some unquantised."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlaplan.specs.hf_quant import Shape

Modules = list[tuple[str, float]]  # (name of a linear layer, its parameters)
LONGEST_PATTERN = 500
_NESTED_REPEAT = re.compile(r"\([^()]*[+*][^()]*\)[+*{]")  # a pattern that could run for ever


def matcher(patterns: list[Any], complain: Callable[[int, str], None]) -> Callable[[str], bool]:
    """Whether a module name is meant by one of the patterns.

    Three kinds are in use: `re:` and a regular expression from the start of the name; shell patterns;
    plain names, which mean everything below them too and may leave out what is above (`self_attn`).
    """
    plain: set[str] = set()
    expressions: list[str] = []
    for i, pattern in enumerate(patterns):
        if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN:
            complain(i, "this is not a module name or pattern")
        elif pattern.startswith("re:"):
            if _NESTED_REPEAT.search(pattern) or not _compiles(pattern[3:]):
                complain(i, f"'{pattern[3:]}' is not a usable regular expression")
            else:
                expressions.append(f"(?:{pattern[3:]})")
        elif any(c in pattern for c in "*?["):
            expressions.append(rf"(?:.*\.)?{fnmatch.translate(pattern)}")
        else:
            plain.add(_without_wrapper(pattern.strip(".")))
    compiled = re.compile("|".join(expressions)) if expressions else None

    def matches(name: str) -> bool:
        if any(run in plain for run in _runs(name)):
            return True
        return compiled is not None and any(compiled.match(n) for n in (name, f"language_model.{name}"))

    return matches


def _compiles(expression: str) -> bool:
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def _without_wrapper(name: str) -> str:
    return name.removeprefix("language_model.")


def _runs(name: str) -> Iterator[str]:
    """Every dotted part of a name: a.b.c -> a, a.b, a.b.c, b, b.c, c."""
    parts = name.split(".")
    for start in range(len(parts)):
        for end in range(start + 1, len(parts) + 1):
            yield ".".join(parts[start:end])


def part_modules(shape: Shape) -> dict[str, Modules]:
    """The linear layers of each part of the model, named as in the checkpoint. One expert stands for all."""
    parts: dict[str, Modules] = {}
    index = 0
    for run in shape.layers:
        for _ in range(run["count"]):
            _layer(parts, shape, f"model.layers.{index}", run["attention"], run["ffn"])
            index += 1
    if shape.mtp:
        inner: dict[str, Modules] = {}
        for i in range(index, index + shape.mtp["layers"]):
            _layer(inner, shape, f"model.layers.{i}", (shape.mtp["attention"],), (shape.mtp["ffn"],))
        parts["mtp"] = [module for modules in inner.values() for module in modules]
    return parts


def _layer(
    parts: dict[str, Modules], shape: Shape, layer: str, attention: tuple[str, ...], ffn: tuple[str, ...]
) -> None:
    for i, name in enumerate(attention):
        prefix = f"{layer}.self_attn" + (f".{i}" if len(attention) > 1 else "")
        for part, module, params in _attention(shape.attention[name], shape.hidden_size):
            parts.setdefault(part, []).append((f"{prefix}.{module}", params))
    for i, name in enumerate(ffn):
        kind = shape.ffn[name]
        if kind["kind"] == "dense":
            place = f"{layer}.mlps.{i}" if len(ffn) > 1 else f"{layer}.mlp"
            parts.setdefault("dense", []).extend(_gated(place, shape.hidden_size * kind["intermediate_size"]))
            continue
        size = shape.hidden_size * kind["intermediate_size"]
        parts.setdefault("routed", []).extend(_gated(f"{layer}.mlp.experts.0", size * kind["experts"]))
        if kind["shared_experts"]:
            shared = shape.hidden_size * kind["shared_intermediate_size"]
            parts.setdefault("shared", []).extend(_gated(f"{layer}.mlp.shared_experts", shared))


def _gated(place: str, params: float) -> Modules:
    return [(f"{place}.{name}", params) for name in ("gate_proj", "up_proj", "down_proj")]


def _attention(kind: dict[str, Any], hidden: int) -> Iterator[tuple[str, str, float]]:
    heads = kind["heads"]
    if kind["kind"] == "gqa":
        yield "attention", "q_proj", hidden * heads * kind["head_dim"]
        yield "attention", "k_proj", hidden * kind["kv_heads"] * kind["head_dim"]
        yield "attention", "v_proj", hidden * kind["kv_heads"] * kind["head_dim"]
        yield "attention", "o_proj", hidden * heads * kind["head_dim"]
        return
    qk_dim, rank = kind["qk_nope_head_dim"] + kind["qk_rope_head_dim"], kind["q_lora_rank"]
    if rank:
        yield "attention", "q_a_proj", hidden * rank
        yield "attention", "q_b_proj", rank * heads * qk_dim
    else:
        yield "attention", "q_proj", hidden * heads * qk_dim
    yield "attention", "kv_a_proj_with_mqa", hidden * (kind["kv_lora_rank"] + kind["qk_rope_head_dim"])
    kv_dim = kind["qk_nope_head_dim"] + kind["v_head_dim"]
    yield "attention", "kv_b_proj", kind["kv_lora_rank"] * heads * kv_dim
    yield "attention", "o_proj", heads * kind["v_head_dim"] * hidden
    if kind["sparse"] and kind["sparse"]["indexer"]:
        indexer = kind["sparse"]["indexer"]
        yield "indexer", "indexer.wq_b", (rank or hidden) * indexer["heads"] * indexer["head_dim"]
        yield "indexer", "indexer.wk", hidden * indexer["head_dim"]
