"""What was understood of a model, for people (80 columns) and as data."""

from __future__ import annotations

from typing import Any

from mlaplan.costs import kv, params
from mlaplan.report.tables import aligned, wrapped
from mlaplan.specs.model import GQA, MLA, Attention, Ffn, Model
from mlaplan.units import format_count, format_percent

SCHEMA = "mlaplan.model/1"
LABEL = 13  # columns of the label before each paragraph


def data(model: Model) -> dict[str, Any]:
    """Sizes and shapes; bytes per token include the indexer's cache where a model has one."""
    kinds = sorted({kind.kind for kind in model.attention.values()})
    return {
        "schema": SCHEMA,
        "name": model.name,
        "title": model.title,
        "file": model.origin,
        "source": model.source,
        "attention": "+".join(kinds),
        "attention_kinds": {name: kind.model_dump() for name, kind in model.attention.items()},
        "ffn_kinds": {name: kind.model_dump() for name, kind in model.ffn.items()},
        "layer_count": model.layer_count,
        "layers": [run.model_dump(mode="json") for run in model.layers],
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_position": model.max_position,
        "tied_embeddings": model.tied_embeddings,
        "mtp": model.mtp.model_dump(mode="json") if model.mtp else None,
        "weights": model.weights.model_dump(mode="json"),
        "params_total": params.params_total(model),
        "params_active": params.params_active(model),
        "params": params.breakdown(model),
        "params_published": model.published.model_dump(mode="json") if model.published else None,
        "kv_bytes_per_token_layer": kv.kv_bytes_per_token_layer(model),
        "kv_bytes_per_token": kv.kv_bytes_per_token(model),
        "indexer_bytes_per_token": _indexer_bytes(model),
        "notes": list(model.notes),
    }


def text(model: Model) -> str:
    """The same in words."""
    lines = [
        f"{model.title} ({model.name})",
        f"file: {model.origin}",
        wrapped(model.source, label="source: "),
        "",
    ]
    for name, attention in model.attention.items():
        lines.append(_line("attention", f"{name}: {_attention(attention)}"))
    for name, ffn in model.ffn.items():
        lines.append(_line("FFN", f"{name}: {_ffn(ffn)}"))
    runs = [f"{run.count} x ({' + '.join([*run.attention, *run.ffn])})" for run in model.layers]
    lines.append(_line("layers", f"{model.layer_count}: {', '.join(runs)}"))
    if model.mtp:
        lines.append(_line("MTP", _mtp(model)))
    tied = "tied to the head" if model.tied_embeddings else "apart from the head"
    shapes = f"hidden {model.hidden_size}, vocabulary {model.vocab_size}, embedding {tied}, positions"
    lines.append(_line("shapes", f"{shapes} {model.max_position}"))
    lines.append(_line("weights", _weights(model)))
    lines += ["", *_parameters(model), "", *_cache(model)]
    if model.notes:
        lines += ["", *(wrapped(note, label="- ") for note in model.notes)]
    return "\n".join(lines)


def _line(label: str, content: str) -> str:
    return wrapped(content, label=label.ljust(LABEL))


def _attention(kind: Attention) -> str:
    if isinstance(kind, GQA):
        names = {kind.heads: "multi-head attention", 1: "multi-query attention"}
        words = [names.get(kind.kv_heads, "grouped-query attention"), f"{kind.heads} heads"]
        words += [f"{kind.kv_heads} KV heads", f"head size {kind.head_dim}"]
        return ", ".join(words + ["QKV bias"] * kind.qkv_bias + ["QK norm"] * kind.qk_norm)
    return ", ".join(_mla(kind))


def _mla(kind: MLA) -> list[str]:
    words = ["multi-head latent attention", f"{kind.heads} heads"]
    words.append(f"cached per token {kind.kv_lora_rank} latent + {kind.qk_rope_head_dim} rope")
    words.append(f"query latent {kind.q_lora_rank}" if kind.q_lora_rank else "no query latent")
    words.append(f"QK head {kind.qk_nope_head_dim} + {kind.qk_rope_head_dim}, V head {kind.v_head_dim}")
    if kind.sparse:
        words.append(f"reads the top {kind.sparse.top_k} tokens")
        if (indexer := kind.sparse.indexer) is not None:
            words.append(f"indexer of {indexer.heads} heads x {indexer.head_dim}")
        else:
            words.append("selected by the last layer that has an indexer")
    return words


def _ffn(kind: Ffn) -> str:
    if kind.kind == "dense":
        return f"intermediate size {kind.intermediate_size}"
    words = [f"{kind.experts} experts of {kind.intermediate_size}, {kind.experts_per_token} a token"]
    if kind.zero_experts:
        words.append(f"{kind.zero_experts} zero experts that cost nothing")
    if kind.shared_experts:
        words.append(f"{kind.shared_experts} shared (total {kind.shared_intermediate_size})")
    if kind.groups > 1:
        words.append(f"chosen from {kind.groups_per_token} of {kind.groups} groups")
    return ", ".join(words)


def _mtp(model: Model) -> str:
    mtp = model.mtp
    assert mtp is not None  # asked for only where there is one
    low, value, high = mtp.acceptance.bounds
    layers = "1 layer" if mtp.layers == 1 else f"{mtp.layers} layers"
    acceptance = f"acceptance {value:g}" + (f" ({low:g} to {high:g})" if low < high else "")
    source = f"{mtp.acceptance.confidence}: {mtp.acceptance.source}"
    return f"{layers} ({mtp.attention} + {mtp.ffn}), up to {mtp.max_draft} drafted, {acceptance}, {source}"


def _weights(model: Model) -> str:
    weights = model.weights
    words: list[str] = [weights.default]
    if weights.block:
        words[0] += f" in blocks of {weights.block[0]} x {weights.block[1]}"
    elif weights.group:
        words[0] += f" in groups of {weights.group}"
    by_dtype: dict[str, list[str]] = {}
    for part in (
        "embedding",
        "lm_head",
        "router",
        "attention",
        "dense",
        "routed",
        "shared",
        "indexer",
        "mtp",
    ):
        if (dtype := model.weight_dtype(part)) != weights.default:
            by_dtype.setdefault(dtype, []).append(part)
    return "; ".join(words + [f"{dtype}: {', '.join(parts)}" for dtype, parts in by_dtype.items()])


def _parameters(model: Model) -> list[str]:
    total, active = params.params_total(model), params.params_active(model)
    rows = [
        ("total", total, _published(model, "params_total")),
        ("active", active, _published(model, "params_active")),
    ]
    shown = []
    for name, value, published in rows:
        note = ""
        if published:
            note = f"published {format_count(published)}, off by {format_percent(abs(value / published - 1))}"
        shown.append((name, format_count(value), note))
    parts = {part: count for part, count in params.breakdown(model).items() if count}
    shown += [(f"  {part}", format_count(count), "not in the total" * (part == "mtp")) for part, count in parts.items()]
    return [aligned(shown, header=("parameters", "", ""))]


def _published(model: Model, which: str) -> float | None:
    figure = getattr(model.published, which, None)
    return None if figure is None else float(figure)


def _cache(model: Model) -> list[str]:
    layer, whole = kv.kv_bytes_per_token_layer(model), kv.kv_bytes_per_token(model)
    rows = [(dtype, f"{layer[dtype]:,.0f} B", f"{whole[dtype]:,.0f} B") for dtype in layer]
    lines = [aligned(rows, header=("KV per token", "attention block", "whole model"))]
    if index := _indexer_bytes(model):
        lines.append(f"the whole includes {index:,.0f} B for the keys of the indexers")
    return lines


def _indexer_bytes(model: Model) -> float:
    return sum(
        run.count * kv.indexer_row_bytes(model.attention[kind]) for run in model.layers for kind in run.attention
    )
