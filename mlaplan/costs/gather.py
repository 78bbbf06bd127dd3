"""Where the cache of a group lives and what travels instead: the alternatives to gathering it every step.

One attention core of a decode step on one of N ranks, H heads over the group, per layer:

    replicated       nothing travels; every rank reads the whole cache for its H/N heads
    gathered         (N-1)/N B S row bytes of cache; capacity N, plus staging
    sequence-sharded (decode context parallel) queries gathered, partial outputs and log-sum-exp merged; every rank
                     works on all H heads over S/N tokens; capacity N
    latent-sharded   64 of 512 dimensions a rank: partial scores B q H S all-reduced in fp32; capacity
                     (d_c + d_r) / (d_c/N + d_r), or N with the rotary keys sharded too; the core is cut in two
                     there, writes and reads its scores and reads the latent columns twice

The merge is that of `merge`. Source: TPLA, arXiv:2508.15881, for latent sharding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import collectives as net
from mlaplan.costs import kv, mla
from mlaplan.costs.collectives import Group
from mlaplan.costs.merge import Merge, local_tokens, merge_parts
from mlaplan.costs.precision import attention_peak
from mlaplan.costs.roofline import Numeric, kernel_s, pad_to

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import MLA

ELEMENT_BYTES = 2.0
WAYS = ("replicated", "gathered", "sequence-sharded", "latent-sharded")


class Block(NamedTuple):
    """Decode of one attention block over a group; batch and context may be arrays."""

    attention: MLA
    batch: Numeric
    context: Numeric
    ranks: int
    q_len: int = 1
    kv_dtype: str = "bf16"
    heads: int | None = None  # of the group, if not the model's

    @property
    def all_heads(self) -> int:
        return self.attention.heads if self.heads is None else self.heads

    @property
    def row_bytes(self) -> float:
        return kv.row_bytes(self.attention, self.kv_dtype)


class Way(NamedTuple):
    """Per layer and chip: bytes on the link, time on it, time of the core; cache bytes per token; tokens it holds."""

    name: str
    link_bytes: Numeric
    link_s: Numeric
    core_s: Numeric
    kv_bytes: float
    capacity: float  # tokens, as a multiple of a replicated cache

    @property
    def step_s(self) -> Numeric:
        return self.link_s + self.core_s


def core_s(
    chip: Chip, b: Block, heads: Numeric, context: Numeric, d_c: Numeric | None = None, d_r: Numeric | None = None,
    more_bytes: Numeric = 0.0,
) -> Numeric:  # fmt: skip
    """The absorbed core over `context` tokens with `heads` heads and d_c of the latent's dimensions. [s]"""
    a = b.attention
    d_c = a.kv_lora_rank if d_c is None else d_c
    d_r = a.qk_rope_head_dim if d_r is None else d_r
    fit = chip.kernel("mla_decode", "bf16")
    rows = pad_to(b.q_len * heads, chip.padding.attention_rows)
    tokens = pad_to(context, chip.padding.kv_tokens)
    flops = mla.core_flops(b.batch, 1, tokens, rows, d_c, d_r)
    share = (d_c + d_r) / (a.kv_lora_rank + a.qk_rope_head_dim)
    nbytes = b.batch * context * b.row_bytes * share + b.batch * b.q_len * heads * (2 * d_c + d_r) * ELEMENT_BYTES
    memory_s = (nbytes + more_bytes) / (fit.memory * float(chip.memory.bandwidth))
    return kernel_s(flops / (fit.compute * attention_peak(chip, "bf16")), memory_s, fit.floor, fit.norm)


def replicated(chip: Chip, b: Block) -> Way:
    return Way("replicated", 0.0, 0.0, core_s(chip, b, b.all_heads / b.ranks, b.context), b.row_bytes, 1.0)


def gathered(chip: Chip, b: Block) -> Way:
    """The whole cache gathered before the core; see `overlap` for slices."""
    size = b.batch * b.context * b.row_bytes
    link = net.collective_s(chip, "all_gather", size, Group(b.ranks))
    moved = net.volume_bytes("all_gather", size, b.ranks)
    core = core_s(chip, b, b.all_heads / b.ranks, b.context)
    return Way("gathered", moved, link, core, b.row_bytes / b.ranks, float(b.ranks))


def sequence_sharded(chip: Chip, b: Block, m: Merge = Merge()) -> Way:  # noqa: B008 - a constant
    """Decode context parallel."""
    a, n, tokens = b.attention, b.ranks, b.batch * b.q_len
    heads = b.all_heads
    query = tokens * heads * (a.kv_lora_rank + a.qk_rope_head_dim) * ELEMENT_BYTES
    parts = [("all_gather", query)]
    parts += [(sent.op, sent.size) for sent in merge_parts(m, tokens, heads, a.kv_lora_rank, n)]
    link = sum(net.collective_s(chip, op, size, Group(n)) for op, size in parts)
    moved = sum(net.volume_bytes(op, size, n) for op, size in parts)
    core = core_s(chip, b, heads, local_tokens(b.context, n, m.interleave))
    return Way("sequence-sharded", moved, link, core, b.row_bytes / n, float(n))


def latent_sharded(chip: Chip, b: Block, rope_sharded: bool = False, exact: bool = True) -> Way:
    """The latent's dimensions over the ranks.

    exact: partial scores are all-reduced before the softmax; without (TPLA) each rank takes the softmax of its own,
    an approximation after a change of basis.
    """
    a, n, tokens = b.attention, b.ranks, b.batch * b.q_len
    d_c = a.kv_lora_rank / n
    d_r = a.qk_rope_head_dim / (n if rope_sharded else 1)
    heads = b.all_heads
    asked, moved = (
        w * tokens * heads * ELEMENT_BYTES / n for w in (a.kv_lora_rank + a.qk_rope_head_dim, a.kv_lora_rank)
    )
    parts, scores = [("all_to_all", asked), ("all_to_all", moved)], 0.0
    if exact:
        parts.append(("all_reduce", tokens * heads * b.context * mla.SCORE_BYTES))
        latent_row = kv.latent_row_bytes(a, b.kv_dtype) / n
        scores = mla.exchanged_score_bytes(b.batch, b.q_len, b.context, heads, latent_row)
    link = sum(net.collective_s(chip, op, size, Group(n)) for op, size in parts)
    volume = sum(net.volume_bytes(op, size, n) for op, size in parts)
    share = (d_c + d_r) / (a.kv_lora_rank + a.qk_rope_head_dim)
    core = core_s(chip, b, heads, b.context, d_c, d_r, scores)
    return Way("latent-sharded", volume, link, core, b.row_bytes * share, 1.0 / share)


def ways(chip: Chip, b: Block, m: Merge = Merge()) -> list[Way]:  # noqa: B008 - a constant
    """All alternatives in the order of `WAYS`."""
    return [replicated(chip, b), gathered(chip, b), sequence_sharded(chip, b, m), latent_sharded(chip, b)]


def byte_crossover(a: MLA, m: Merge, heads: int | None = None) -> float:
    """Context above which decode context parallelism moves fewer bytes than gathering a bf16 cache.

    S* = H ((d_c + d_r) 2 + d_c w_o + w_lse) / row, whatever the batch and the ranks (they divide out).
    """
    share = (heads or a.heads) / a.heads
    return share * mla.gather_crossover_tokens(a, m.out_bytes, m.lse_bytes)


def first_context(better: Way, worse: Way, contexts: Sequence[int]) -> int | None:
    """The least of the contexts from which on `better` is faster; None where it never stays so."""
    wins = np.asarray(better.step_s) < np.asarray(worse.step_s)
    if not wins[-1]:
        return None
    losing = np.flatnonzero(~wins)
    return int(contexts[int(losing[-1]) + 1]) if len(losing) else int(contexts[0])
