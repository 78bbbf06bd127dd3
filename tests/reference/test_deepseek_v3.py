"""Agreement with transformers' DeepseekV3Attention: a prefill, then steps of q_len 1 to 4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlaplan.kernel import block
from mlaplan.kernel.rope import RopeTables, rope_tables
from mlaplan.kernel.tolerance import FP32, FP64, FP64_FP32_ISLANDS, difference

from . import modules
from .modules import FULL_HEADS, REDUCED, RELEASED, torch

v3 = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3", reason=modules.MISSING)
transformers = pytest.importorskip("transformers", reason=modules.MISSING)

STEPS = (1, 3, 2, 4)


def tables_of(config: object, offset: int, positions: int) -> RopeTables:
    """The module's own fp32 cos and sin."""
    at = torch.arange(offset, offset + positions)[None]
    cos, sin = v3.DeepseekV3RotaryEmbedding(config)(torch.zeros(1, dtype=torch.float64), at)
    half = cos.shape[-1] // 2
    return RopeTables(cos[0, :, :half].numpy(), sin[0, :, :half].numpy())


def run(module, hidden, tables: RopeTables, prefill: int, dtype: torch.dtype):
    """The module's outputs over a prefill and STEPS, and its cache at the end."""
    cos = torch.from_numpy(np.concatenate([tables.cos] * 2, axis=1)).to(dtype)[None]
    sin = torch.from_numpy(np.concatenate([tables.sin] * 2, axis=1)).to(dtype)[None]
    cache = transformers.DynamicCache(config=module.config)
    outputs, done = [], 0
    for q_len in (prefill, *STEPS):
        span = slice(done, done + q_len)
        mask = modules.causal(q_len, done + q_len, dtype)
        with torch.no_grad():
            u = module(hidden[:, span], (cos[:, span], sin[:, span]), mask, cache=cache)[0]
        outputs.append(u.numpy())
        done += q_len
    layer = cache.layers[0]
    return outputs, torch.cat([layer.keys, layer.values], dim=-1)[:, 0].numpy()


def compare(shapes, rope, dtype, tables, attention, prefill=37, offset=0, expand=False, batch=2):
    """Largest relative difference of outputs and of caches between the module and ours."""
    config = modules.configuration(transformers.DeepseekV3Config, shapes, rope, attention, rope_interleave=True)
    module = v3.DeepseekV3Attention(config, 0).to(getattr(torch, dtype)).eval()
    modules.fill(module, seed=offset + prefill)
    total = prefill + sum(STEPS)
    if tables == "module":
        shared = tables_of(config, offset, total)
    else:
        shared = rope_tables(total, shapes.qk_rope_head_dim, rope.theta, rope.yarn, offset)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(batch, total, shapes.hidden_size, generator=generator, dtype=torch.float64)
    hidden = hidden.to(getattr(torch, dtype))
    theirs, their_cache = run(module, hidden, shared, prefill, hidden.dtype)

    weights = modules.weights_of(module, shapes, np.dtype(dtype).type)
    env = modules.setting_of(shapes, rope, shared)
    caches = [np.zeros((0, shapes.cache_dim), dtype)] * batch
    worst, done = 0.0, 0
    for q_len, expected in zip((prefill, *STEPS), theirs, strict=True):
        x = hidden[:, done : done + q_len].numpy()
        u, caches = block.step(x, caches, weights, env, expand=expand)
        assert u.dtype == np.dtype(dtype)
        for j in range(q_len):  # per position: a wrong mask spoils some rows only
            worst = max(worst, difference(u[:, j], expected[:, j]).relative)
        done += q_len
    ours = modules.as_half_split(np.stack(caches), shapes.kv_lora_rank)
    return worst, difference(ours, their_cache).relative


@pytest.fixture
def exact_norm(monkeypatch):
    monkeypatch.setattr(v3.DeepseekV3RMSNorm, "forward", modules.exact_rms_norm)


@pytest.mark.usefixtures("exact_norm")
@pytest.mark.parametrize("model", RELEASED)
@pytest.mark.parametrize("expand", [False, True], ids=["absorbed", "naive"])
def test_fp64_against_the_module_without_its_fp32_islands(model, expand):
    worst, cache = compare(REDUCED, RELEASED[model], "float64", "ours", "sdpa", expand=expand)
    assert worst <= FP64
    assert cache <= FP64


@pytest.mark.usefixtures("exact_norm")
def test_fp64_at_the_width_of_v3_heads():
    worst, cache = compare(FULL_HEADS, RELEASED["DeepSeek-V3"], "float64", "ours", "sdpa", prefill=120)
    assert worst <= FP64
    assert cache <= FP64


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("model", RELEASED)
def test_fp64_against_the_stock_module_with_its_own_tables(model, attention):
    worst, _ = compare(REDUCED, RELEASED[model], "float64", "module", attention)
    assert worst <= FP64_FP32_ISLANDS


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("shapes", [REDUCED, FULL_HEADS], ids=["reduced", "full heads"])
def test_fp32_against_the_stock_module(shapes, attention):
    worst, _ = compare(shapes, RELEASED["DeepSeek-V3"], "float32", "module", attention)
    assert worst <= FP32


@pytest.mark.usefixtures("exact_norm")
def test_without_query_compression():
    worst, _ = compare(replace(REDUCED, q_lora_rank=None), RELEASED["Moonlight"], "float64", "ours", "sdpa")
    assert worst <= FP64


@pytest.mark.usefixtures("exact_norm")
def test_positions_beyond_the_original_context():
    worst, _ = compare(REDUCED, RELEASED["DeepSeek-V3"], "float64", "ours", "sdpa", offset=100_000)
    assert worst <= FP64


@pytest.mark.parametrize("model", RELEASED)
def test_our_fp64_tables_are_the_modules_up_to_fp32_angles(model):
    config = modules.configuration(transformers.DeepseekV3Config, REDUCED, RELEASED[model], "sdpa")
    rope = RELEASED[model]
    for offset, limit in ((0, 3e-5), (4096, 1e-3), (131_072, 2e-2)):
        theirs = tables_of(config, offset, 50)
        ours = rope_tables(50, REDUCED.qk_rope_head_dim, rope.theta, rope.yarn, offset)
        assert np.abs(ours.cos - theirs.cos).max() < limit
        assert np.abs(ours.sin - theirs.sin).max() < limit
