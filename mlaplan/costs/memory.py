"""Memory of one chip: weights by shard, latent KV by layout, activations, workspaces, buffers, reserve.

All sizes are bytes per chip of one pipeline stage; the worst stage decides what fits. TP does not divide the
latent cache: capacity grows by decode context parallelism, pipeline stages or attention DP only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import kv, params
from mlaplan.costs.pipeline import LayerKind
from mlaplan.costs.precision import draft_model, part_dtype, stored_bytes
from mlaplan.costs.roofline import Numeric, ceil_div
from mlaplan.costs.shared_experts import routed_ranks

if TYPE_CHECKING:
    from mlaplan.specs.model import Model

ACTIVATION_BYTES = 2.0


class Shards(NamedTuple):
    """How a strategy divides things; scalars or columns."""

    tp: Numeric
    dp: Numeric
    ep: Numeric
    dcp: Numeric
    cp: Numeric
    dense: Numeric = None  # chips that share a dense block, the shared expert, the head; None: tp
    shared: Numeric = None
    head: Numeric = None
    shared_ranks: int = 0  # EP ranks with the shared experts alone

    def of(self, part: str) -> Numeric:
        """Chips that share the matrices of a part divided by tensor parallelism."""
        if part == "attention":
            return self.attn_tp
        own = {"dense": self.dense, "shared": self.shared, "lm_head": self.head}.get(part)
        return self.tp if own is None else own

    @property
    def attn_tp(self) -> Numeric:
        return self.tp // self.cp

    @property
    def moe_tp(self) -> Numeric:
        return self.tp * self.dp // self.ep

    @property
    def routed(self) -> Numeric:
        """EP ranks with routed experts."""
        return routed_ranks(self.ep, self.shared_ranks)


# ---- weights ----


def matrix_bytes(model: Model, m: params.Matrix, s: Shards, target: str, redundant_experts: int = 0) -> Numeric:
    """Bytes of one matrix (or of a block's experts) on one chip."""
    width = stored_bytes(model, part_dtype(model, m.part, target))
    elements: Numeric = float(m.params)
    if m.split == "tp":
        elements = elements / s.of(m.part)
    elif m.split == "kv":
        a = next(a for a in model.attention.values() if a.kind == "gqa")
        elements = elements * ceil_div(a.kv_heads, s.attn_tp) / a.kv_heads
    elif m.split == "moe":
        one = float(m.rows * m.cols)
        elements = ceil_div(m.copies + redundant_experts, s.routed) * one / s.moe_tp
    return elements * width


def layer_weight_bytes(model: Model, kind: LayerKind, s: Shards, target: str, redundant_experts: int = 0) -> Numeric:
    """Weights of one layer on one chip, with the 16-bit copy of W_UK and W_UV that absorbed decode multiplies.

    Where shared experts have ranks of their own a chip holds either, and the larger counts.
    """
    total: Numeric = 0.0
    for name in kind.attention:
        for m in params.attention_matrices(model, name):
            total = total + matrix_bytes(model, m, s, target, redundant_experts)
            if m.name == "kv_b":
                total = total + m.params * ACTIVATION_BYTES / s.attn_tp
    for name in kind.ffn:
        routed: Numeric = 0.0
        for m in params.ffn_matrices(model, name):
            one = matrix_bytes(model, m, s, target, redundant_experts)
            if m.part == "routed":
                routed = one
            elif m.part == "shared" and s.shared_ranks:
                beyond = np.maximum(one * s.of("shared") / s.moe_tp - routed, 0.0)
                one = np.where(np.asarray(s.ep) > s.shared_ranks, beyond, one)
            total = total + one
    return total


def mtp_weight_bytes(model: Model, s: Shards, target: str, redundant_experts: int = 0) -> Numeric:
    """Weights of the MTP layers on the last stage's chips; embedding and head are the main model's."""
    if model.mtp is None:
        return 0.0
    kind = LayerKind((model.mtp.attention,), (model.mtp.ffn,))
    own, own_target = draft_model(model, target)
    one = layer_weight_bytes(own, kind, s, own_target, redundant_experts)
    proj = 2.0 * model.hidden_size**2 * stored_bytes(own, part_dtype(own, "mtp", own_target))
    return model.mtp.layers * (one + proj)


def vocabulary_bytes(model: Model, part: str, s: Shards) -> Numeric:
    """The embedding or the head, divided over the vocabulary."""
    return model.vocab_size * model.hidden_size / s.of(part) * stored_bytes(model, model.weight_dtype(part))


# ---- cache ----


def layer_kv_bytes(model: Model, kind: LayerKind, s: Shards, layout: str, dtype: str) -> Numeric:
    """Bytes that one distinct cached token takes on one chip in one layer.

        replicated        row                      the whole latent on every TP rank
        sequence_sharded  row / dcp
        latent_sharded    (d_c / tp + d_r) / (d_c + d_r) row      rotary keys stay whole
        GQA               ceil(h_kv / tp) / h_kv row / dcp

    The indexer's cache is divided like the sequence, if at all.
    """
    total: Numeric = 0.0
    for name in kind.attention:
        a = model.attention[name]
        row = kv.row_bytes(a, dtype)
        if a.kind == "gqa":
            row = row * ceil_div(a.kv_heads, s.attn_tp) / a.kv_heads
        elif layout == "latent_sharded":
            width = a.kv_lora_rank + a.qk_rope_head_dim
            row = row * (a.kv_lora_rank / s.attn_tp + a.qk_rope_head_dim) / width
        total = total + (row + kv.indexer_row_bytes(a)) / (s.dcp if layout == "sequence_sharded" else 1.0)
    return total


# ---- everything else ----


def activation_bytes(
    model: Model, s: Shards, chunk: Numeric, hidden_copies: float, routed_copies: float, gathers: Numeric
) -> Numeric:
    """Peak of live activations of one forward pass of `chunk` tokens per DP rank. [B]

        residual stream and its norms     c_h T d                       c_h, c_r: tensors alive at once, by engine
        the larger of
          attention   T h 2 (d_n + d_r + d_v)            queries, expanded keys and values, output
          dense       3 T I / tp
          experts     T dp k / ep (c_r d + 3 I / moe_tp), and T dp d where the DP ranks gather their tokens

    times 2 bytes. Source: shapes of the operators; the copies are in the engine's profile.
    """
    d = model.hidden_size
    worst: Numeric = 0.0
    for a in model.attention.values():
        if a.kind == "mla":
            width = ceil_div(a.heads, s.attn_tp) * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim)
        else:
            width = (ceil_div(a.heads, s.attn_tp) + ceil_div(a.kv_heads, s.attn_tp)) * a.head_dim
        worst = np.maximum(worst, 2.0 * chunk * width)
    for f in model.ffn.values():
        if f.kind == "dense":
            worst = np.maximum(worst, 3.0 * chunk * f.intermediate_size / s.tp)
        else:
            copies = chunk * s.dp * params.routed_per_token(f) / s.routed
            gathered = chunk * s.dp * d * gathers
            worst = np.maximum(worst, copies * (routed_copies * d + 3.0 * f.intermediate_size / s.moe_tp) + gathered)
    return (hidden_copies * chunk * d + worst) * ACTIVATION_BYTES


def logit_bytes(model: Model, batch: Numeric, q_len: Numeric, gathered: Numeric = 1) -> Numeric:
    """Logits of a decode step over the whole vocabulary: B q vocab (2 g + 4). [B]

    In 16 bit those of the g DP ranks whose logits are gathered together, in fp32 the rank's own.
    """
    return batch * q_len * model.vocab_size * (2.0 * gathered + 4.0)


def mla_workspace_bytes(model: Model, s: Shards, rows: Numeric) -> Numeric:
    """Workspace of MLA chunked prefill: gathered latents and the keys and values expanded from them.

        rows (d_c + d_r) 2 + rows h (d_n + d_v) 2

    4 GiB for 128 local heads at 64 K rows, 0.5 GiB at TP8.
    Source: vLLM v1/attention/backends/mla/common.py, MLACommonMetadataBuilder.
    """
    sizes: list[Numeric] = [
        rows
        * ((a.kv_lora_rank + a.qk_rope_head_dim) + ceil_div(a.heads, s.attn_tp) * (a.qk_nope_head_dim + a.v_head_dim))
        * ACTIVATION_BYTES
        for a in model.attention.values()
        if a.kind == "mla" and not a.sparse
    ]
    worst: Numeric = 0.0
    for one in sizes:
        worst = np.maximum(worst, one)
    return worst
