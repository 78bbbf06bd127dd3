"""Agreement with transformers' DeepseekV2Attention, which rotates by complex numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlaplan.kernel import block
from mlaplan.kernel.rope import RopeTables, rope_tables
from mlaplan.kernel.tolerance import FP32, FP64, FP64_FP32_ISLANDS, difference

from . import modules
from .modules import REDUCED, RELEASED, torch

v2 = pytest.importorskip("transformers.models.deepseek_v2.modeling_deepseek_v2", reason=modules.MISSING)
transformers = pytest.importorskip("transformers", reason=modules.MISSING)

ROPE = RELEASED["DeepSeek-V2"]
LITE = replace(REDUCED, q_lora_rank=None)  # V2-Lite compresses no queries
PREFILL, STEPS = 29, (1, 2, 3)
TOTAL = PREFILL + sum(STEPS)


def exact_rotation(q, k, turns):
    """apply_rotary_emb without its cast to complex64."""

    def turned(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns.unsqueeze(1)).flatten(3)

    return turned(q), turned(k)


def compare(shapes, dtype: str, exact_tables: bool) -> float:
    config = modules.configuration(transformers.DeepseekV2Config, shapes, ROPE, "sdpa")
    module = v2.DeepseekV2Attention(config, 0).to(getattr(torch, dtype)).eval()
    modules.fill(module, seed=3)
    if exact_tables:
        tables = rope_tables(TOTAL, shapes.qk_rope_head_dim, ROPE.theta, ROPE.yarn)
        turns = torch.from_numpy(tables.cos + 1j * tables.sin)[None]
    else:
        turns = v2.DeepseekV2RotaryEmbedding(config)(torch.zeros(1), torch.arange(TOTAL)[None])
        tables = RopeTables(turns[0].real.numpy(), turns[0].imag.numpy())
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(2, TOTAL, shapes.hidden_size, generator=generator, dtype=torch.float64)
    hidden = hidden.to(getattr(torch, dtype))
    weights = modules.weights_of(module, shapes, np.dtype(dtype).type)
    env = modules.setting_of(shapes, ROPE, tables)
    cache = transformers.DynamicCache(config=config)
    ours = [np.zeros((0, shapes.cache_dim), dtype)] * 2
    worst, done = 0.0, 0
    for q_len in (PREFILL, *STEPS):
        span = slice(done, done + q_len)
        mask = modules.causal(q_len, done + q_len, hidden.dtype)
        with torch.no_grad():
            u, _ = module(hidden[:, span], attention_mask=mask, cache=cache, position_embeddings=turns[:, span])
        expected = u.numpy()
        u, ours = block.step(hidden[:, span].numpy(), ours, weights, env)
        worst = max(worst, *(difference(u[:, j], expected[:, j]).relative for j in range(q_len)))
        done += q_len
    return worst


@pytest.mark.parametrize("shapes", [REDUCED, LITE], ids=["V2", "V2-Lite"])
def test_fp64_against_the_module_without_its_fp32_islands(shapes, monkeypatch):
    monkeypatch.setattr(v2.DeepseekV2RMSNorm, "forward", modules.exact_rms_norm)
    monkeypatch.setattr(v2, "apply_rotary_emb", exact_rotation)
    assert compare(shapes, "float64", exact_tables=True) <= FP64


@pytest.mark.parametrize("shapes", [REDUCED, LITE], ids=["V2", "V2-Lite"])
def test_fp64_against_the_stock_module(shapes):
    assert compare(shapes, "float64", exact_tables=False) <= FP64_FP32_ISLANDS


def test_fp32_against_the_stock_module():
    assert compare(REDUCED, "float32", exact_tables=False) <= FP32
