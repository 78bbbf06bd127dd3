"""The numbers that define one MLA block."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shapes:
    """Names as in a Hugging Face config.json; the paper's symbol beside each."""

    hidden_size: int  # d
    heads: int  # n_h
    kv_lora_rank: int  # d_c
    qk_nope_head_dim: int  # d_h
    qk_rope_head_dim: int  # d_h^R
    v_head_dim: int  # d_h again: equal to qk_nope_head_dim in V2 and V3, free here
    q_lora_rank: int | None = None  # d_c'; None: queries come straight from the hidden state

    @property
    def qk_head_dim(self) -> int:
        """d_h + d_h^R, the width of one expanded query or key. The logit scale derives from this one."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def cache_dim(self) -> int:
        """d_c + d_h^R, the width of one cached row, shared by all heads."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def query_input(self) -> int:
        """Width of what W^UQ multiplies: d_c' or, without query compression, d."""
        return self.q_lora_rank or self.hidden_size


DEEPSEEK_V3 = Shapes(
    hidden_size=7168,
    heads=128,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    q_lora_rank=1536,
)
