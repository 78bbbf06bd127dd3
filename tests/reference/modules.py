"""Attention modules of `transformers` with random weights, and the same weights in our layout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mlaplan.kernel import block
from mlaplan.kernel.arithmetic import EXACT
from mlaplan.kernel.rope import RopeTables, Yarn, logit_scale
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.weights import Weights

MISSING = "the outside checks need the extra `reference` (pip install 'mlaplan[reference]')"
torch = pytest.importorskip("torch", reason=MISSING)
pytest.importorskip("transformers", reason=MISSING)

torch.set_num_threads(1)

REDUCED = Shapes(
    hidden_size=256,
    heads=8,
    kv_lora_rank=64,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    v_head_dim=32,
    q_lora_rank=96,
)
# the head of V3 at full width, four of them
FULL_HEADS = Shapes(
    hidden_size=1024,
    heads=4,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    q_lora_rank=384,
)


@dataclass(frozen=True)
class Rope:
    """The rope settings of a released model."""

    theta: float
    yarn: Yarn | None


RELEASED = {
    "DeepSeek-V3": Rope(10000.0, Yarn(factor=40.0, mscale=1.0, mscale_all_dim=1.0)),
    "Kimi-K2": Rope(50000.0, Yarn(factor=32.0, mscale=1.0, mscale_all_dim=1.0)),
    "DeepSeek-V2": Rope(10000.0, Yarn(factor=40.0, mscale=0.707, mscale_all_dim=0.707)),
    "Moonlight": Rope(50000.0, None),
}


def configuration(config_class: type, shapes: Shapes, rope: Rope, attention: str, **more: object) -> object:
    parameters: dict[str, object] = {"rope_type": "default", "rope_theta": rope.theta}
    if rope.yarn is not None:
        parameters |= {
            "rope_type": "yarn",
            "factor": rope.yarn.factor,
            "mscale": rope.yarn.mscale,
            "mscale_all_dim": rope.yarn.mscale_all_dim,
            "beta_fast": rope.yarn.beta_fast,
            "beta_slow": rope.yarn.beta_slow,
            "original_max_position_embeddings": rope.yarn.original_positions,
        }
    config = config_class(
        hidden_size=shapes.hidden_size,
        num_attention_heads=shapes.heads,
        num_key_value_heads=shapes.heads,
        num_hidden_layers=1,
        q_lora_rank=shapes.q_lora_rank,
        kv_lora_rank=shapes.kv_lora_rank,
        qk_nope_head_dim=shapes.qk_nope_head_dim,
        qk_rope_head_dim=shapes.qk_rope_head_dim,
        v_head_dim=shapes.v_head_dim,
        max_position_embeddings=int(4096 * rope.yarn.factor) if rope.yarn else 8192,
        rope_parameters=parameters,
        attention_bias=False,
        **more,
    )
    config._attn_implementation = attention
    return config


def fill(module: torch.nn.Module, seed: int, logit_std: float = 2.0) -> None:
    """N(0, 1/fan_in), queries stretched to logits of that std, norms away from one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            if p.dim() == 1:
                p.copy_(0.1 * noise if name.endswith("bias") else 1 + 0.1 * noise)
            else:
                stretch = logit_std if name in ("q_b_proj.weight", "q_proj.weight") else 1.0
                p.copy_(stretch * noise * p.shape[1] ** -0.5)


def weights_of(module: torch.nn.Module, shapes: Shapes, dtype: type) -> Weights:
    """torch stores [out, in]; kv_b_proj holds, per head, the rows of W^UK and then those of W^UV."""

    def matrix(name: str) -> np.ndarray:
        return module.get_parameter(f"{name}.weight").detach().numpy().astype(dtype)

    s = shapes
    kv_b = matrix("kv_b_proj").reshape(s.heads, s.qk_nope_head_dim + s.v_head_dim, s.kv_lora_rank)
    compressed = s.q_lora_rank is not None
    q_up = matrix("q_b_proj" if compressed else "q_proj").T
    return Weights(
        w_dq=matrix("q_a_proj").T.copy() if compressed else None,
        q_norm=matrix("q_a_layernorm") if compressed else None,
        w_uq=q_up.reshape(s.query_input, s.heads, s.qk_head_dim),
        w_dkv=matrix("kv_a_proj_with_mqa").T.copy(),
        kv_norm=matrix("kv_a_layernorm"),
        w_uk=kv_b[:, : s.qk_nope_head_dim].copy(),
        w_uv=kv_b[:, s.qk_nope_head_dim :].copy(),
        w_o=matrix("o_proj").T.reshape(s.heads, s.v_head_dim, s.hidden_size),
    )


def setting_of(shapes: Shapes, rope: Rope, tables: RopeTables) -> block.Setting:
    return block.Setting(logit_scale(shapes.qk_head_dim, rope.yarn), tables, EXACT)


def causal(q_len: int, keys: int, dtype: torch.dtype) -> torch.Tensor:
    """Bottom-right aligned, additive. [1, 1, q_len, keys]"""
    seen = torch.arange(keys)[None, :] <= torch.arange(keys - q_len, keys)[:, None]
    return torch.zeros(q_len, keys, dtype=dtype).masked_fill(~seen, -torch.inf)[None, None]


def exact_rms_norm(self: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The modules' RMSNorm without its cast to fp32."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def as_half_split(rows: np.ndarray, d_c: int) -> np.ndarray:
    """Interleaved rope columns as modules with rope_interleave write them: evens, then odds."""
    rope = rows[..., d_c:]
    return np.concatenate([rows[..., :d_c], rope[..., 0::2], rope[..., 1::2]], axis=-1)
