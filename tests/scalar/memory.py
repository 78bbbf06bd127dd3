"""Bytes per chip: weights, cache, and the rest, of one layer or of one pipeline stage."""

from __future__ import annotations

from typing import Any, NamedTuple

from .attention import cache_row, indexer_row, per_rank
from .feed_forward import weighted_choices
from .machine import Case, of_draft, part_width, weight_width


class Shards(NamedTuple):
    tp: int
    dp: int
    ep: int
    dcp: int
    cp: int

    @property
    def heads(self) -> int:
        """Ranks that share the attention heads."""
        return self.tp // self.cp

    @property
    def moe_tp(self) -> int:
        return self.tp * self.dp // self.ep


# ---- weights ----


def attention_weights(case: Case, a: Any, s: Shards) -> float:
    """Head-wise matrices are divided, latent down-projections, norms and the indexer are whole on every rank."""
    d, w = case.model.hidden_size, part_width(case, "attention")
    if a.kind == "gqa":
        q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
        held = per_rank(a.kv_heads, s.heads) / a.kv_heads
        vectors = d + (2 * a.head_dim if a.qk_norm else 0) + (q + 2 * kv if a.qkv_bias else 0)
        return w * (2 * d * q / s.heads + 2 * d * kv * held) + 2.0 * vectors
    q_in = a.q_lora_rank or d
    up = a.kv_lora_rank * a.heads * (a.qk_nope_head_dim + a.v_head_dim)
    divided = q_in * a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim) + up + a.heads * a.v_head_dim * d
    whole = d * ((a.q_lora_rank or 0) + a.kv_lora_rank + a.qk_rope_head_dim)
    vectors = d + (a.q_lora_rank or 0) + a.kv_lora_rank
    # absorbed decode keeps W_UK and W_UV once more in 16 bit
    total = w * (divided / s.heads + whole) + 2.0 * vectors + 2.0 * up / s.heads
    ix = a.sparse.indexer if a.sparse else None
    if ix is not None:
        total += part_width(case, "indexer") * (q_in * ix.heads * ix.head_dim + d * ix.head_dim)
        total += part_width(case, "router") * d * ix.heads + 2.0 * 2 * ix.head_dim
    return total


def ffn_weights(case: Case, f: Any, s: Shards) -> float:
    d = case.model.hidden_size
    norm = 2.0 * d
    if f.kind == "dense":
        over = s.tp * s.dp if case.engine.placement.dense and everyone(case, s) else s.tp
        return part_width(case, "dense") * 3 * d * f.intermediate_size / over + norm
    apart = case.engine.beside.ranks if f.shared_experts and s.ep > case.engine.beside.ranks else 0
    experts = per_rank(f.experts + case.redundant_experts, s.ep - apart)
    total = norm + part_width(case, "router") * d * (f.experts + f.zero_experts)
    routed = part_width(case, "routed") * experts * 3 * d * f.intermediate_size / s.moe_tp
    total += routed
    if apart:  # a chip has either
        total += max(part_width(case, "shared") * 3 * d * f.shared_intermediate_size / s.moe_tp - routed, 0.0)
    elif f.shared_experts:
        over = s.tp
        if case.engine.placement.shared:
            over = 1 if dispatches(case, s) else s.tp * s.dp
        total += part_width(case, "shared") * 3 * d * f.shared_intermediate_size / over
    return total


def layer_weights(case: Case, kind: tuple[Any, Any], s: Shards) -> float:
    model = case.model
    return sum(attention_weights(case, model.attention[n], s) for n in kind[0]) + sum(
        ffn_weights(case, model.ffn[n], s) for n in kind[1]
    )


def draft_weights(case: Case, s: Shards) -> float:
    """The MTP layers, each with its projection [2d, d]; they share embedding and head with the model."""
    mtp = case.model.mtp
    if mtp is None:
        return 0.0
    own = of_draft(case)
    layer = layer_weights(own, ((mtp.attention,), (mtp.ffn,)), s)
    return mtp.layers * (layer + 2 * case.model.hidden_size**2 * part_width(own, "mtp"))


def vocabulary_weights(case: Case, part: str, s: Shards) -> float:
    model, over = case.model, s.tp
    if part == "lm_head" and case.engine.placement.head and everyone(case, s):
        over = s.tp * s.dp
    return model.vocab_size * model.hidden_size / over * weight_width(model, model.weight_dtype(part))


# ---- cache ----


def layer_cache(case: Case, names: tuple[str, ...], s: Shards, layout: str) -> float:
    """Bytes per distinct token on one chip."""
    total = 0.0
    for a in (case.model.attention[n] for n in names):
        row = cache_row(a, case.kv_dtype)
        if a.kind == "gqa":
            row *= per_rank(a.kv_heads, s.heads) / a.kv_heads
        elif layout == "latent_sharded":
            row *= (a.kv_lora_rank / s.heads + a.qk_rope_head_dim) / (a.kv_lora_rank + a.qk_rope_head_dim)
        total += (row + indexer_row(a)) / (s.dcp if layout == "sequence_sharded" else 1)
    return total


def draft_cache(case: Case, s: Shards, layout: str) -> float:
    mtp = case.model.mtp
    return 0.0 if mtp is None else mtp.layers * layer_cache(case, (mtp.attention,), s, layout)


# ---- the rest ----


def dispatches(case: Case, s: Shards) -> bool:
    """Whether the engine sends tokens to their experts, so that no rank gathers those of all."""
    e, whole = case.engine, s.ep == s.tp * s.dp
    rule = e.dispatch_rule
    wanted = s.ep > 1 and s.ep >= rule.least_ranks and (s.dp > 1 or rule.fixed)
    return e.dispatch and wanted and (whole or not e.dispatch_whole)


def everyone(case: Case, s: Shards) -> bool:
    """Whether each attention-DP rank gathers the tokens of all."""
    return s.dp > 1 and not (dispatches(case, s) and case.engine.dispatch_rule.prefill)


def activations(case: Case, s: Shards, chunk: int) -> float:
    """Live 16-bit tensors of a pass of `chunk` tokens per DP rank: residual copies and the largest block's own."""
    model, e = case.model, case.engine
    d, largest = model.hidden_size, 0.0
    for a in model.attention.values():
        if a.kind == "mla":
            width = per_rank(a.heads, s.heads) * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim)
        else:
            width = (per_rank(a.heads, s.heads) + per_rank(a.kv_heads, s.heads)) * a.head_dim
        largest = max(largest, 2.0 * chunk * width)
    for f in model.ffn.values():
        if f.kind == "dense":
            largest = max(largest, 3.0 * chunk * f.intermediate_size / s.tp)
            continue
        tokens = chunk * s.dp
        apart = e.beside.ranks if f.shared_experts and s.ep > e.beside.ranks else 0
        copies = tokens * weighted_choices(f) / (s.ep - apart)
        gathered = tokens * d if everyone(case, s) else 0.0
        largest = max(largest, copies * (e.routed_copies * d + 3.0 * f.intermediate_size / s.moe_tp) + gathered)
    return 2.0 * (e.hidden_copies * chunk * d + largest)


def logits(case: Case, s: Shards, rows: int) -> float:
    """Logits of `rows` positions in fp32, and in 16 bit those of all ranks whose head is one."""
    together = s.dp if case.engine.placement.head and everyone(case, s) else 1
    return rows * case.model.vocab_size * (2.0 * together + 4.0)


def workspace(case: Case, s: Shards, rows: float) -> float:
    """Latents gathered from the cache, and the keys and values expanded from them, for dense MLA."""
    largest = 0.0
    for a in case.model.attention.values():
        if a.kind == "mla" and not a.sparse:
            width = a.kv_lora_rank + a.qk_rope_head_dim
            width += per_rank(a.heads, s.heads) * (a.qk_nope_head_dim + a.v_head_dim)
            largest = max(largest, 2.0 * rows * width)
    return largest


def everything_else(case: Case, st: Any, budget: Any) -> float:
    """Activations, workspace and dispatch buffers; graphs, communication buffers and context, or the user's reserve.

    Some engines have the former, and graphs, outside their share of the memory, as far as there is room.
    """
    e, s = case.engine, Shards(st.tp, st.dp, st.ep, st.dcp, st.cp)
    max_context, reserve = budget.max_context, budget.reserve_bytes
    total = activations(case, s, st.prefill_chunk) + logits(case, s, st.batch * (1 + st.mtp))
    if e.workspace is not None:
        w = e.workspace
        wanted = max(w.per_length * max_context, w.per_sequence_block * st.batch * st.block_size)
        total += workspace(case, s, min(wanted, w.cap))
    if dispatches(case, s):
        total += e.dispatch_buffer_bytes
    if reserve is None:
        total += e.graph_bytes
    if e.reserve_holds_activations:
        total = max(total - (1 - budget.memory_fraction) * float(case.chip.memory.capacity), 0.0)
    if reserve is not None:
        return total + reserve
    total += e.context_bytes
    return total + (e.comm_buffer_bytes if st.tp * st.dp * st.pp > 1 else 0.0)
