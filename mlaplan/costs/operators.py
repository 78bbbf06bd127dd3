"""Which operators a block has: the one place where kinds of attention and feed-forward meet their cost files.

A block is one attention or feed-forward block of one layer, or the embedding, the head, an MTP draft. Its
operators come from columns of the strategy table (or scalars), per chip and for one micro-batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mlaplan.costs import dense, gqa, mla, moe, sparse
from mlaplan.costs.machine import Machine, Op
from mlaplan.costs.roofline import Numeric
from mlaplan.strategy import KV_LAYOUTS

Cells = dict[str, Any]  # columns of a (sub-)table, or scalars of one strategy


class Prefill(NamedTuple):
    """Prompts whose steps are priced: `new` tokens to compute after `past` cached ones."""

    new: Numeric
    past: Numeric = 0


def geometry(step_tokens: Numeric, p: Prefill) -> tuple[Numeric, Numeric]:
    """(query-key pairs, keys needed) of a mean step of `step_tokens` new tokens of such prompts.

    A prompt of n tokens after c cached ones has n (c + n/2) causal pairs; a step does its share of them. A step
    of r >= 1 prompts needs r (c + n) keys; one chunk of a longer prompt needs c + (n + chunk)/2 on average.
    """
    share = step_tokens / p.new
    pairs = share * p.new * (p.past + p.new / 2.0)
    keys = np.where(share >= 1.0, share * (p.past + p.new), p.past + (p.new + step_tokens) / 2.0)
    return pairs, keys


def attention_decode(m: Machine, name: str, c: Cells, context: int, core: bool = False) -> list[Op]:
    """One attention block of a decode micro-batch, or what of it goes with the context (`core`).

    Columns: tp, cp, dcp, kv_layout, seqs, q_len.
    """
    a = m.model.attention[name]
    shape = mla.DecodeShape(
        c["seqs"], c["q_len"], context, c["tp"] // c["cp"], c["dcp"], KV_LAYOUTS[int(np.max(c["kv_layout"]))],
        c.get("dp", 1),
    )  # fmt: skip
    if core:
        return mla.of_context(m, a, shape) if a.kind == "mla" else gqa.of_context(m, a, shape)
    return mla.decode_ops(m, a, shape) if a.kind == "mla" else gqa.decode_ops(m, a, shape)


def attention_prefill(m: Machine, name: str, c: Cells, p: Prefill) -> list[Op]:
    """One attention block of a prefill step. Columns: tp, cp, step_tokens."""
    a, tokens = m.model.attention[name], c["step_tokens"]
    pairs, keys = geometry(tokens, p)
    kept: Numeric = 0.0
    if a.kind == "mla" and a.sparse:
        kept = tokens / p.new * sparse.causal_selected_pairs(p.past, p.new, a.sparse.top_k)
    ranks, prompts = c["tp"] // c["cp"], np.maximum(tokens / p.new, 1.0)
    shape = mla.PrefillShape(tokens, pairs, keys, ranks, c["cp"], kept, prompts, c.get("dp", 1))
    return mla.prefill_ops(m, a, shape) if a.kind == "mla" else gqa.prefill_ops(m, a, shape)


def feed_forward(m: Machine, name: str, c: Cells, decode: bool, choice: moe.MoeChoice) -> list[Op]:
    """One feed-forward block over `tokens` of one DP rank. Columns: tp, dp, ep, cp, tokens; mean_tokens where others
    have fewer."""
    f = m.model.ffn[name]
    cp = 1 if decode else c["cp"]
    if f.kind == "dense":
        return dense.ffn_ops(m, f, c["tokens"], c["tp"], cp, c["dp"], c["ep"], c.get("mean_tokens"))
    shape = moe.MoeShape(c["tokens"], c["tp"], c["dp"], c["ep"], cp, decode, c.get("mean_tokens"))
    return moe.ffn_ops(m, f, shape, choice)


def head(m: Machine, rows: Numeric, c: Cells) -> list[Op]:
    """The head over `rows` positions of one DP rank. Columns: tp, and dp and ep where the engine divides it by them."""
    return dense.head_ops(m, rows, c["tp"], c.get("dp", 1), c.get("ep", 1))


def mtp_drafts(m: Machine, c: Cells, context: int, choice: moe.MoeChoice) -> list[Op]:
    """All drafts of a round: `mtp` passes of projection, one layer, and the shared head for one token of each sequence.

    The first pass is over the tokens just verified, `q_len` of each sequence: their keys go to the layer's own cache.
    (NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/speculative/mtp.py, MTPEagleWorker; vLLM and SGLang do the same.)
    """
    mtp = m.model.mtp
    if mtp is None:
        return []

    def passes(own: Cells, count: int) -> list[Op]:
        ops = [
            *dense.embedding_ops(m, own["tokens"], own["tp"]),
            dense.mtp_projection(m, own["tokens"]),
            *attention_decode(m, mtp.attention, own, context),
            *feed_forward(m, mtp.ffn, own, True, choice),
        ]
        return [op.scaled(count) for op in ops]

    depth, one = c["mtp"], {**c, "q_len": 1, "tokens": c["seqs"]}
    return passes(c, 1) + passes(one, depth - 1) + [op.scaled(depth) for op in head(m, c["seqs"], c)]


def split(ops: list[Op]) -> tuple[Numeric, Numeric]:
    """(time on the chip, time on the link) of a list of operators."""
    chip: Numeric = 0.0
    link: Numeric = 0.0
    for op in ops:
        if op.is_link:
            link = link + op.time_s
        else:
            chip = chip + op.time_s
    return chip, link
