"""The matrices of one MLA block, stored so that each formula of the paper is one product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlaplan.kernel.shapes import Shapes


@dataclass(frozen=True, slots=True)
class Weights:
    """Row-vector convention: y = x W, so the first axis of a projection is its input."""

    w_dq: np.ndarray | None  # W^DQ [d, d_c'], None without query compression
    q_norm: np.ndarray | None  # [d_c']
    w_uq: np.ndarray  # W^UQ and W^QR side by side per head: [d_c' or d, n_h, d_h + d_h^R]
    w_dkv: np.ndarray  # W^DKV and W^KR side by side: [d, d_c + d_h^R]
    kv_norm: np.ndarray  # [d_c]
    w_uk: np.ndarray  # W^UK per head: [n_h, d_h, d_c]; k^C = w_uk c
    w_uv: np.ndarray  # W^UV per head: [n_h, d_v, d_c]; v^C = w_uv c
    w_o: np.ndarray  # W^O per head: [n_h, d_v, d]
    norm_eps: float = 1e-6

    @property
    def heads(self) -> int:
        return self.w_uk.shape[0]


def random_weights(
    shapes: Shapes, rng: np.random.Generator, dtype: np.dtype | type = np.float64, logit_std: float = 1.0
) -> Weights:
    """Matrices of variance 1/fan_in, norms away from one so that a forgotten norm weight shows.

    logit_std stretches the queries. Near zero every softmax is a plain average, and an implementation that
    averages slices instead of merging them goes unnoticed; 1 to 8 is what trained models show.
    """

    def matrix(fan_in: int, *shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * fan_in**-0.5).astype(dtype)

    def norm(width: int) -> np.ndarray:
        return (1.0 + 0.1 * rng.standard_normal(width)).astype(dtype)

    s = shapes
    compressed = s.q_lora_rank is not None
    return Weights(
        w_dq=matrix(s.hidden_size, s.hidden_size, s.query_input) if compressed else None,
        q_norm=norm(s.query_input) if compressed else None,
        w_uq=matrix(s.query_input, s.query_input, s.heads, s.qk_head_dim) * np.asarray(logit_std, dtype),
        w_dkv=matrix(s.hidden_size, s.hidden_size, s.cache_dim),
        kv_norm=norm(s.kv_lora_rank),
        w_uk=matrix(s.kv_lora_rank, s.heads, s.qk_nope_head_dim, s.kv_lora_rank),
        w_uv=matrix(s.kv_lora_rank, s.heads, s.v_head_dim, s.kv_lora_rank),
        w_o=matrix(s.heads * s.v_head_dim, s.heads, s.v_head_dim, s.hidden_size),
    )
