"""Closed forms of the bytes that each partition sends in one layer of one step; buffers S, in bytes.

B sequences of q_len new tokens, n_h heads of the group, T cached tokens of all sequences together. What a
rank sends is (n-1)/n S for a gather, a scatter or an exchange and 2 (n-1)/n S for an all-reduce. The
collectives of the kernel count their messages, and tests hold the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlaplan.kernel.shapes import Shapes


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes an element takes on the wire."""

    activation: float = 2.0  # q, o and u in bf16
    score: float = 4.0  # partial logits in fp32
    lse: float = 4.0  # fp32


def output_all_reduce_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Tensor parallelism, o_proj: S = B q d. Split over the ranks by heads, summed after W^O."""
    return batch * q_len * s.hidden_size * w.activation


def query_gather_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Decode context parallel, before the core: S = B q n_h (d_c + d_h^R), absorbed queries of all heads."""
    return batch * q_len * s.heads * s.cache_dim * w.activation


def lse_gather_bytes(s: Shapes, batch: int, q_len: int, ranks: int, w: Widths) -> float:
    """Decode context parallel, merge by gather and scatter: S = N B q n_h log-sum-exps."""
    return ranks * batch * q_len * s.heads * w.lse


def latent_output_scatter_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Decode context parallel, after the core: S = B q n_h d_c, latent outputs of all heads.

    The same S for a reduce-scatter of rescaled outputs and for an all-to-all of partials.
    """
    return batch * q_len * s.heads * s.kv_lora_rank * w.activation


def lse_exchange_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Decode context parallel, merge by all-to-all: S = B q n_h log-sum-exps."""
    return batch * q_len * s.heads * w.lse


def expanded_query_gather_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Latent-sharded, before W^UK: S = B q n_h (d_h + d_h^R); narrower than absorbed queries."""
    return batch * q_len * s.heads * s.qk_head_dim * w.activation


def score_all_reduce_bytes(s: Shapes, q_len: int, context_tokens: int, w: Widths) -> float:
    """Latent-sharded, before the softmax: S = q n_h T partial logits, T summed over the sequences."""
    return q_len * s.heads * context_tokens * w.score


def head_output_scatter_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Latent-sharded, after W^UV: S = B q n_h d_v partial sums, scattered by heads."""
    return batch * q_len * s.heads * s.v_head_dim * w.activation


def stage_boundary_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Pipeline parallelism, each boundary between stages: S = B q d, sent once."""
    return batch * q_len * s.hidden_size * w.activation
