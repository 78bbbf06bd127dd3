"""Rounding to the precisions of caches and matrix units, by ml_dtypes.

A cast saturates: ml_dtypes turns fp8 e4m3 overflow into NaN from 465 up, hardware and torch clip at 448.
fp64 values pass through fp32, as they would on a device.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype] = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int8": np.dtype(np.int8),
}
LARGEST = {"fp16": 65504.0, "fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0}
GROUP = 128  # elements that share a scale: fp8 tiles of DeepSeek-V3, int8 groups


def encode(x: np.ndarray, name: str) -> np.ndarray:
    """The nearest representable values, ties to even, clipped to the largest finite one."""
    dtype = DTYPES[name]
    if name in LARGEST:
        x = np.clip(x, -LARGEST[name], LARGEST[name])
    if name == "int8":
        return np.rint(x).astype(np.int8)
    return x.astype(np.float32, copy=False).astype(dtype)


def cast(x: np.ndarray, name: str) -> np.ndarray:
    """x rounded to `name`, in the dtype of x."""
    return encode(x, name).astype(x.dtype)


def quantise(x: np.ndarray, name: str, group: int = GROUP, power_of_two: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Codes and one fp32 scale per `group` neighbours of the last axis.

    scale = max|x| / largest, rounded up to a power of two if asked (ue8m0); 1 where a group is all zero.
    x [..., n] -> codes [..., n], scales [..., ceil(n / group)]. The last group may be shorter.
    """
    groups = -(-x.shape[-1] // group)
    largest = np.stack([np.max(np.abs(x[..., g * group : (g + 1) * group]), axis=-1) for g in range(groups)], axis=-1)
    scales = np.where(largest > 0, largest / LARGEST[name], 1.0)
    if power_of_two:
        scales = np.exp2(np.ceil(np.log2(scales)))
    scales = scales.astype(np.float32)
    return encode(x / spread(scales, x.shape[-1], group).astype(x.dtype), name), scales


def dequantise(
    codes: np.ndarray, scales: np.ndarray, group: int = GROUP, dtype: np.dtype | type = np.float64
) -> np.ndarray:
    """codes * scale of their group, [..., n]."""
    return codes.astype(dtype) * spread(scales, codes.shape[-1], group).astype(dtype)


def spread(scales: np.ndarray, width: int, group: int) -> np.ndarray:
    """[..., groups] -> [..., width], each scale repeated over its group."""
    return np.repeat(scales, group, axis=-1)[..., :width]


def round_inputs(x: np.ndarray, name: str, axis: int) -> np.ndarray:
    """An operand of a matrix product as an engine would feed it, in the dtype of x.

    bf16 and fp16 are cast; fp8 and int8 take a scale per 128 elements along the summed axis.
    """
    if name in ("bf16", "fp16"):
        return cast(x, name)
    along = np.moveaxis(x, axis, -1)
    codes, scales = quantise(along, name)
    return np.moveaxis(dequantise(codes, scales, dtype=x.dtype), -1, axis)
