"""Dense feed-forward blocks, the embedding, the head and sampling.

A dense block is divided over the attention TP ranks of one DP rank: gate and up by columns, down by rows, then an
all-reduce. The head is divided over the vocabulary; every rank gathers the logits of its sequences. Engines that
divide them over all DP ranks too (see `placement`) gather everyone's tokens first.
Source: Megatron-LM, arXiv:1909.08053, sec. 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlaplan.costs import placement
from mlaplan.costs.collectives import Group
from mlaplan.costs.machine import ACTIVATION_BYTES, Machine, Op
from mlaplan.costs.roofline import Numeric

if TYPE_CHECKING:
    from mlaplan.specs.model import DenseFFN

LOGIT_BYTES = 4.0


def gated_ops(m: Machine, name: str, part: str, tokens: Numeric, inner: Numeric) -> list[Op]:
    """Gate and up [d, 2 I], their product, down [I, d], with I the columns on this chip."""
    d = m.model.hidden_size
    return [
        m.gemm(f"{name}_gate_up", part, tokens, d, 2 * inner),
        m.elementwise(f"{name}_activation", 3 * tokens * inner * ACTIVATION_BYTES),
        m.gemm(f"{name}_down", part, tokens, inner, d),
    ]


def reduce_ops(m: Machine, name: str, tokens: Numeric, tp: Numeric, cp: Numeric, dp: Numeric = 1) -> list[Op]:
    """Sum of the ranks' partial outputs: an all-reduce, or gather and scatter where tokens are divided (cp)."""
    size = tokens * m.model.hidden_size * ACTIVATION_BYTES
    divided = cp > 1
    whole = m.sum_over_tp(f"{name}_all_reduce", tokens, tp, dp)
    if not np.any(divided):
        return [whole]
    gather = m.collective(f"{name}_token_gather", "all_gather", size, Group(tp))
    scatter = m.collective(f"{name}_token_scatter", "reduce_scatter", size, Group(tp))
    return [whole.scaled(1 - divided), gather.scaled(1 * divided), scatter.scaled(1 * divided)]


def ffn_ops(
    m: Machine, f: DenseFFN, tokens: Numeric, tp: Numeric, cp: Numeric, dp: Numeric = 1, ep: Numeric = 1,
    mean: Numeric | None = None,
) -> list[Op]:  # fmt: skip
    """One dense block over the tokens of one attention-DP rank, or of all of them, `mean` of each where they differ."""
    norm = m.norm("ffn_norm", tokens / cp, tp // cp, dp)
    ranks = placement.ranks(m.engine, tp, dp, ep).dense
    each = tokens if mean is None else np.where(np.asarray(ranks) > tp, mean, tokens)
    before, seen, after = over_dp(m, "dense", each, tp, ranks)
    ops = gated_ops(m, "dense", "dense", seen, f.intermediate_size / ranks)
    return [norm, *before, *ops, *after, *reduce_ops(m, "dense", tokens, tp, cp, dp)]


def over_dp(m: Machine, name: str, tokens: Numeric, tp: Numeric, ranks: Numeric) -> tuple[list[Op], Numeric, list[Op]]:
    """For a block over `ranks` chips: gather of all DP ranks' tokens, tokens that a chip sees, scatter of the sums."""
    groups = np.asarray(ranks) // tp
    if np.max(groups) == 1:
        return [], tokens, []
    seen = tokens * groups
    size = seen * m.model.hidden_size * ACTIVATION_BYTES
    return (
        [m.collective(f"{name}_dp_gather", "all_gather", size, Group(groups, tp))],
        seen,
        [m.collective(f"{name}_dp_scatter", "reduce_scatter", size, Group(groups, tp))],
    )


def embedding_ops(m: Machine, tokens: Numeric, tp: Numeric) -> list[Op]:
    """Look-up in the vocabulary-divided table and the sum over its parts."""
    size = tokens * m.model.hidden_size * ACTIVATION_BYTES
    return [
        m.elementwise("embedding", 2 * size),
        m.collective("embedding_all_reduce", "all_reduce", size, Group(tp)),
    ]


def head_ops(m: Machine, rows: Numeric, tp: Numeric, dp: Numeric = 1, ep: Numeric = 1) -> list[Op]:
    """Final norm, logits of `rows` positions, their gather, sampling. Over all DP ranks: everyone's rows."""
    d, vocab = m.model.hidden_size, m.model.vocab_size
    ranks = placement.ranks(m.engine, tp, dp, ep).head
    before, seen, _ = over_dp(m, "head", rows, tp, ranks)
    return [
        m.elementwise("final_norm", 3 * rows * d * ACTIVATION_BYTES),
        *before,
        m.gemm("lm_head", "lm_head", seen, d, vocab / ranks),
        m.collective("logits_gather", "all_gather", seen * vocab * ACTIVATION_BYTES, Group(ranks)),
        m.elementwise("sampling", rows * vocab * LOGIT_BYTES),
    ]


def mtp_projection(m: Machine, tokens: Numeric) -> Op:
    """[hidden; embedding] -> hidden at the entry of an MTP layer; every rank keeps it whole."""
    d = m.model.hidden_size
    return m.gemm("mtp_proj", "mtp", tokens, 2 * d, d)
