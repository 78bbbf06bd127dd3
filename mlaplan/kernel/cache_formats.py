"""What one cached row [c^KV ; k^R] looks like in memory: its bytes, and what rounding does to it.

format       latent                        rope       bytes of a V3 row (512 + 64)
fp32         fp32                          fp32       2304
bf16, fp16   2 bytes                       2 bytes    1152
fp8_e4m3     1 byte, static scale          same        576
fp8_ds_mla   1 byte, fp32 scale per 128    bf16        656   (FlashMLA, vLLM)
int8         1 byte, fp32 scale per 128    bf16        656
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel.rounding import DTYPES, GROUP, cast, dequantise, encode, quantise


@dataclass(frozen=True, slots=True)
class CacheFormat:
    row_bytes: Callable[[int, int], int]  # (d_c, d_h^R) -> bytes of one row of one layer
    store: Callable[[np.ndarray, int], np.ndarray]  # (rows, d_c) -> what is read back, same dtype


def _scaled_latent(name: str) -> CacheFormat:
    def store(rows: np.ndarray, d_c: int) -> np.ndarray:
        codes, scales = quantise(rows[..., :d_c], name)
        latent = dequantise(codes, scales, dtype=rows.dtype)
        return np.concatenate([latent, cast(rows[..., d_c:], "bf16")], axis=-1)

    return CacheFormat(lambda d_c, rope: d_c + 4 * -(-d_c // GROUP) + 2 * rope, store)


def _cast_all(name: str) -> CacheFormat:
    width = DTYPES[name].itemsize
    return CacheFormat(lambda d_c, rope: width * (d_c + rope), lambda rows, _: cast(rows, name))


FORMATS: dict[str, CacheFormat] = {
    "fp32": CacheFormat(lambda d_c, rope: 4 * (d_c + rope), lambda rows, _: rows.astype(np.float32).astype(rows.dtype)),
    "bf16": _cast_all("bf16"),
    "fp16": _cast_all("fp16"),
    # scale 1.0 is what an engine uses without calibration; calibrated, divide and multiply around this one
    "fp8_e4m3": _cast_all("fp8_e4m3"),
    "fp8_ds_mla": _scaled_latent("fp8_e4m3"),
    "int8": _scaled_latent("int8"),
}

ALIASES = {"fp8": "fp8_e4m3"}


def store_as(name: str, kv_lora_rank: int) -> Callable[[np.ndarray], np.ndarray]:
    """The rounding that `block.Setting.store` wants. Quantise, then dequantise, then feed the same numbers to
    every variant: otherwise quantisation error hides a wrong kernel."""
    store = FORMATS[name].store
    return lambda rows: store(rows, kv_lora_rank)


def pack_fp8_ds_mla(rows: np.ndarray, kv_lora_rank: int) -> np.ndarray:
    """The bytes of fp8_ds_mla rows: d_c e4m3 codes, d_c/128 fp32 scales, then the rope part in bf16.

    rows [T, d_c + d_h^R] -> uint8 [T, 656] for V3. Source: deepseek-ai/FlashMLA README, FP8 KV cache.
    """
    codes, scales = quantise(rows[:, :kv_lora_rank], "fp8_e4m3")
    rope = encode(rows[:, kv_lora_rank:], "bf16")
    parts = [np.ascontiguousarray(part).view(np.uint8) for part in (codes, scales, rope)]
    return np.concatenate(parts, axis=1)


def unpack_fp8_ds_mla(packed: np.ndarray, kv_lora_rank: int, dtype: np.dtype | type = np.float64) -> np.ndarray:
    """Inverse of pack: uint8 [T, bytes] -> rows [T, d_c + d_h^R]."""
    after_codes = kv_lora_rank
    after_scales = after_codes + 4 * -(-kv_lora_rank // GROUP)
    codes = np.ascontiguousarray(packed[:, :after_codes]).view(DTYPES["fp8_e4m3"])
    scales = np.ascontiguousarray(packed[:, after_codes:after_scales]).view(np.float32)
    rope = np.ascontiguousarray(packed[:, after_scales:]).view(DTYPES["bf16"])
    return np.concatenate([dequantise(codes, scales, dtype=dtype), rope.astype(dtype)], axis=1)
