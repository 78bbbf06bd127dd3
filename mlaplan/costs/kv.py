"""Bytes that one cached token takes, per attention block and in the whole model, by cache dtype.

MLA caches one latent row of kv_lora_rank + qk_rope_head_dim numbers per token whatever the number of heads, so
tensor parallelism does not divide it. GQA caches keys and values of kv_heads heads, divided over at most
kv_heads ranks. A sparse-attention indexer keeps its own keys: head_dim bytes of fp8 and a 4-byte scale.
Source: DeepSeek-V2, arXiv:2405.04434, eq. 9 to 13; FlashMLA README for the 656-byte fp8_ds_mla row (512 fp8 +
4 fp32 scales + 64 bf16); vLLM model_executor/models/deepseek_v2.py for the indexer's row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlaplan.specs.model import MLA, Model

ELEMENT_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
INT8_GROUP, INT8_SCALE_BYTES = 128, 2
FP8_DS_SCALES, FP8_DS_SCALE_BYTES = 4, 4
GROUPED = ("fp8_ds_mla", "int8")  # dtypes with one scale per group of numbers


def kv_dtypes(attention: Any) -> tuple[str, ...]:
    """The cache dtypes that have a meaning for this attention kind."""
    if attention.kind == "mla" and attention.sparse:
        return ("bf16", "fp8", "fp8_ds_mla")
    return ("bf16", "fp8", "int8") if attention.kind == "gqa" else ("bf16", "fp8")


def row_bytes(attention: Any, dtype: str) -> float:
    """Bytes of one cached token in one attention block, all KV heads, indexer apart.

        MLA: (d_c + d_r) w          fp8_ds_mla: d_c + 4 x 4 + 2 d_r          GQA: 2 h_kv d w

    int8 carries one fp16 scale per group of 128 numbers; plain fp8 one scale per layer (not counted).
    """
    if attention.kind == "mla":
        latent, rope = attention.kv_lora_rank, attention.qk_rope_head_dim
        if dtype == "fp8_ds_mla":
            return latent + FP8_DS_SCALES * FP8_DS_SCALE_BYTES + 2.0 * rope
        return (latent + rope) * ELEMENT_BYTES[dtype] + _scales(latent + rope, dtype)
    return numbers(attention) * ELEMENT_BYTES[dtype] + _scales(numbers(attention), dtype)


def numbers(attention: Any) -> int:
    """Numbers of one cached token in one attention block: 2 h_kv d_h, or d_c + d_r."""
    if attention.kind == "mla":
        return int(attention.kv_lora_rank + attention.qk_rope_head_dim)
    return int(2 * attention.kv_heads * attention.head_dim)


def scaled_numbers(attention: Any, dtype: str) -> int:
    """Those of them that have scales per group: all of int8, the latent of fp8_ds_mla, whose rotary key is in bf16."""
    if dtype not in GROUPED:
        return 0
    return int(attention.kv_lora_rank) if dtype == "fp8_ds_mla" else numbers(attention)


def latent_row_bytes(attention: MLA, dtype: str) -> float:
    """The latent columns of one cached token, d_c w and their scales, without the rotary key. [B]"""
    d_c, d_r = attention.kv_lora_rank, attention.qk_rope_head_dim
    if dtype == "fp8_ds_mla":
        return row_bytes(attention, dtype) - 2.0 * d_r
    return d_c * ELEMENT_BYTES[dtype] + _scales(d_c, dtype)


def _scales(count: int, dtype: str) -> float:
    return count / INT8_GROUP * INT8_SCALE_BYTES if dtype == "int8" else 0.0


def indexer_row_bytes(attention: Any) -> float:
    """Bytes of one token in an indexer's own cache: fp8 key and fp32 scale; 0 without an indexer. [B]"""
    if attention.kind == "mla" and attention.sparse and attention.sparse.indexer:
        return attention.sparse.indexer.head_dim + 4.0
    return 0.0


def kv_bytes_per_token_layer(model: Model) -> dict[str, float]:
    """Bytes per token of one attention block of the model's first kind, indexer apart, by cache dtype."""
    first = model.attention[model.layers[0].attention[0]]
    return {dtype: row_bytes(first, dtype) for dtype in kv_dtypes(first)}


def kv_bytes_per_token(model: Model) -> dict[str, float]:
    """Bytes per token of the whole model (MTP apart), indexer caches included, by cache dtype."""
    first = model.attention[model.layers[0].attention[0]]
    return {dtype: sum(n * token_bytes(model, kinds, dtype) for n, kinds in _runs(model)) for dtype in kv_dtypes(first)}


def token_bytes(model: Model, kinds: tuple[str, ...] | list[str], dtype: str) -> float:
    """Bytes per token of one layer with the given attention blocks."""
    return sum(row_bytes(model.attention[k], dtype) + indexer_row_bytes(model.attention[k]) for k in kinds)


def _runs(model: Model) -> list[tuple[int, list[str]]]:
    return [(run.count, list(run.attention)) for run in model.layers]
