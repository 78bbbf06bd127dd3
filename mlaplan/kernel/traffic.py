"""Closed forms of the bytes that each partition sends in one layer of one step; buffers S, in bytes.

B sequences of q_len new tokens, n_h heads of the group, T cached tokens of all sequences together. What a
rank sends is (n-1)/n S for a gather, a scatter or an exchange and 2 (n-1)/n S for an all-reduce. The
collectives of the kernel count their messages, and tests hold the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlaplan.kernel.shapes import Shapes

REPLICATED = "replicated"
LATENT_SHARDED = "latent-sharded"
SEQUENCE_SHARDED = "sequence-sharded"
GATHER_SCATTER = "gather_scatter"
ALL_TO_ALL = "all_to_all"


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes an element takes on the wire."""

    activation: float = 2.0  # q, o and u in bf16
    partial_output: float = 4.0  # outputs that a log-sum-exp merge still has to sum, in fp32
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
    return batch * q_len * s.heads * s.kv_lora_rank * w.partial_output


def lse_exchange_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Decode context parallel, merge by all-to-all: S = B q n_h log-sum-exps."""
    return batch * q_len * s.heads * w.lse


def latent_query_exchange_bytes(s: Shapes, batch: int, q_len: int, ranks: int, w: Widths) -> float:
    """Latent-sharded, before the core: S = B q n_h/N (d_c + d_h^R), one rank's absorbed queries.

    The rope columns go to where they are scored; on average over the ranks S is the same wherever that is.
    """
    return batch * q_len * s.heads / ranks * s.cache_dim * w.activation


def score_all_reduce_bytes(s: Shapes, q_len: int, context_tokens: int, w: Widths) -> float:
    """Latent-sharded, before the softmax: S = q n_h T partial logits, T over all sequences."""
    return q_len * s.heads * context_tokens * w.score


def latent_output_exchange_bytes(s: Shapes, batch: int, q_len: int, ranks: int, w: Widths) -> float:
    """Latent-sharded, after the core: S = B q n_h/N d_c, one rank's columns of the latent outputs."""
    return batch * q_len * s.heads / ranks * s.kv_lora_rank * w.activation


def stage_boundary_bytes(s: Shapes, batch: int, q_len: int, w: Widths) -> float:
    """Pipeline parallelism, each boundary between stages: S = 2 B q d.

    The residual stream and the last block's output travel apart: the next norm adds them.
    """
    return 2 * batch * q_len * s.hidden_size * w.activation


def layer_sent_bytes(
    s: Shapes,
    batch: int,
    q_len: int,
    context_tokens: int,
    tp: int,
    kv_layout: str = REPLICATED,
    dcp: int = 1,
    exchange: str = GATHER_SCATTER,
    w: Widths | None = None,
) -> dict[str, float]:
    """What one rank of a tensor-parallel group sends in one layer's attention, by transfer.

    context_tokens: cached tokens of all `batch` sequences, the new ones included. Where tp > dcp the group
    holds tp / dcp context groups, each with its share of the heads.
    """
    w = w or Widths()
    share, of_group = (tp - 1) / tp, (dcp - 1) / dcp
    sent = {"o_proj": 2 * share * output_all_reduce_bytes(s, batch, q_len, w)}
    if kv_layout == LATENT_SHARDED:
        exchanged = latent_query_exchange_bytes(s, batch, q_len, tp, w)
        sent["latent_query_exchange"] = share * exchanged
        sent["latent_score_all_reduce"] = 2 * share * score_all_reduce_bytes(s, q_len, context_tokens, w)
        sent["latent_output_exchange"] = share * latent_output_exchange_bytes(s, batch, q_len, tp, w)
    elif kv_layout == SEQUENCE_SHARDED:
        g = replace(s, heads=s.heads * dcp // tp)
        sent["query_gather"] = of_group * query_gather_bytes(g, batch, q_len, w)
        if exchange == GATHER_SCATTER:
            sent["lse_gather"] = of_group * lse_gather_bytes(g, batch, q_len, dcp, w)
            sent["output_scatter"] = of_group * latent_output_scatter_bytes(g, batch, q_len, w)
        else:
            sent["lse_exchange"] = of_group * lse_exchange_bytes(g, batch, q_len, w)
            sent["output_exchange"] = of_group * latent_output_scatter_bytes(g, batch, q_len, w)
    return {name: value for name, value in sent.items() if value}
