"""Agreement of the core with torch's scaled_dot_product_attention, heads as query rows of one KV head."""

from __future__ import annotations

import numpy as np
import pytest

from mlaplan.kernel import core
from mlaplan.kernel.online import cut, streamed
from mlaplan.kernel.tolerance import FP64, difference, fp32_core_tolerance

torch = pytest.importorskip("torch", reason="the outside checks need the extra `reference`")

CASES = [(1, 16, 129), (3, 6, 977), (4, 1, 64), (17, 9, 128), (1, 128, 1), (2, 3, 5)]


def sdpa(q: np.ndarray, cache: np.ndarray, d_c: int, scale: float, mask: np.ndarray) -> np.ndarray:
    """[q_len, heads, d_c + rope] x [T, d_c + rope] -> [q_len, heads, d_c]; mask [q_len, T]."""
    q_len, heads, width = q.shape
    rows = torch.from_numpy(q.reshape(1, 1, q_len * heads, width).copy())
    keys = torch.from_numpy(cache)[None, None]
    allowed = torch.from_numpy(np.repeat(mask, heads, axis=0))[None, None]
    out = torch.nn.functional.scaled_dot_product_attention(rows, keys, keys[..., :d_c], attn_mask=allowed, scale=scale)
    return out[0, 0].reshape(q_len, heads, d_c).numpy()


@pytest.mark.parametrize(("q_len", "heads", "keys"), CASES)
@pytest.mark.parametrize("std", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_core_against_sdpa(q_len, heads, keys, std, dtype):
    rng = np.random.default_rng(keys)
    q = rng.standard_normal((q_len, heads, 576)).astype(dtype)
    cache = rng.standard_normal((keys, 576)).astype(dtype)
    scale = std * 576**-0.5
    at, keys_at = np.arange(keys - q_len, keys), np.arange(keys)
    expected = sdpa(q, cache, 512, scale, keys_at[None, :] <= at[:, None])
    logits = scale * np.einsum("qhd,td->qht", q.astype(np.float64), cache.astype(np.float64))
    tolerance = FP64 if dtype == np.float64 else fp32_core_tolerance(np.abs(logits).max())
    for got in (
        core.absorbed(q, cache, 512, scale, at, keys_at),
        streamed(q, cut(cache, 50)[::-1], 512, scale, at),
    ):
        assert max(difference(g, e).relative for g, e in zip(got.out, expected, strict=True)) <= tolerance


def test_a_row_that_sees_nothing_is_zero_in_both():
    rng = np.random.default_rng(0)
    q, cache = rng.standard_normal((2, 3, 40)), rng.standard_normal((7, 40))
    at, keys_at = np.array([2, 20]), np.arange(10, 17)
    mask = keys_at[None, :] <= at[:, None]
    expected = sdpa(q, cache, 32, 0.2, mask)
    got = core.absorbed(q, cache, 32, 0.2, at, keys_at)
    assert not expected[0].any()
    assert not got.out[0].any()
    assert difference(got.out, expected).relative <= FP64


def test_fp8_e4m3_and_bf16_bits_are_torchs():
    from mlaplan.kernel.rounding import cast

    rng = np.random.default_rng(0)
    x = (rng.standard_normal(200_000) * np.exp(rng.uniform(-12, 7, 200_000))).astype(np.float32)
    x = np.clip(x, -448, 448)
    for name, torch_dtype in (("fp8_e4m3", torch.float8_e4m3fn), ("bf16", torch.bfloat16)):
        theirs = torch.from_numpy(x).to(torch_dtype).to(torch.float32).numpy()
        assert np.array_equal(cast(x, name), theirs)
