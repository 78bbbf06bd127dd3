"""The cache of a deployment as a pool: what a chip and a replica hold, in every format and block size.

    pool     = what weights, activations, workspaces and buffers leave of the memory, or the size that is asked for
    tokens   = floor(pool / bytes of a token on the chip)          distinct tokens of one attention-DP rank
    replica  = DP x tokens

Tensor parallelism divides the bytes of a GQA token until a rank holds one key-value head, and never those of a latent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlaplan.costs import kv_formats, paging, prefix
from mlaplan.costs.precision import SIXTEEN_BIT, sixteen_bit
from mlaplan.engines.profile import attention_kind
from mlaplan.explain import explain

if TYPE_CHECKING:
    from mlaplan.costs.kv_formats import Format
    from mlaplan.costs.paging import Bucket, Lengths
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy

BLOCKS = (1, 16, 32, 64, 128)
BUCKETS = (64, 256, 1024, 4096)
ERROR_CONTEXT = 1024  # cached tokens of the comparison with an exact cache


@dataclass(frozen=True, slots=True)
class Stored:
    """One format of the pool."""

    format: Format
    model_bytes: float  # a token in the whole model
    chip_bytes: float  # a token on a chip of the fullest stage
    chip_tokens: int  # distinct tokens that the pool of a chip holds: those of its attention-DP rank
    replica_tokens: int
    model_tokens: int  # tokens of the whole model that one pool would hold by itself
    sequences: float  # of a rank, in whole blocks, beside shared prefixes
    has: bool  # the chip multiplies the dtype
    reads: bool  # the engine reads such a cache here
    widen_s: float  # the whole pool once, on the vector units
    error: float  # of attention's output, relative, on Gaussian rows


@dataclass(frozen=True, slots=True)
class Block:
    """One block size: tokens of a sequence's blocks that hold nothing, as a count and a share; sequences of a rank.

    Blocks of a sequence are those of its own: a shared prefix is stored once, beside all.
    """

    size: int
    waste_tokens: float
    waste_share: float
    sequences: float


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool of one strategy. pool_bytes: on a chip; given: it was asked for; fits: beside everything else."""

    base: Explanation
    usable_bytes: float
    beside_bytes: float  # weights and all that is no cache
    pool_bytes: float
    given: bool
    watermark: float
    lengths: Lengths
    formats: list[Stored]
    blocks: list[Block]
    buckets: list[tuple[int, Bucket]]
    prefixes: Lengths

    @property
    def fits(self) -> bool:
        return self.beside_bytes + self.pool_bytes <= self.usable_bytes and self.pool_bytes > 0


def pool(
    q: Question, s: Strategy, lengths: Lengths, prefixes: Lengths, *, pool_bytes: float | None = None,
    watermark: float = 0.0, block_sizes: tuple[int, ...] = BLOCKS, bucket_sizes: tuple[int, ...] = BUCKETS,
) -> Pool:  # fmt: skip
    """The pool of a strategy, of what memory leaves or of `pool_bytes` a chip."""
    base = explain(q, s, served=False)
    beside = base.memory.total_bytes - base.memory.items["kv_bytes"]
    left = base.memory.usable_bytes - beside
    if q.setting.engine.of_free:
        left *= q.budget.memory_fraction
    size = pool_bytes if pool_bytes is not None else max(left, 0.0)
    formats = [_stored(q, s, f, size, lengths, watermark) for f in _formats(q)]
    own = next(f for f in formats if f.format.dtype == s.kv_dtype)
    blocks = [_block(q, s, own, b, lengths, watermark) for b in block_sizes]
    buckets = [(b, paging.bucket(prefixes, b)) for b in bucket_sizes]
    return Pool(
        base, base.memory.usable_bytes, beside, size, pool_bytes is not None, watermark, lengths, formats, blocks,
        buckets, prefixes,
    )  # fmt: skip


def _formats(q: Question) -> tuple[Format, ...]:
    return kv_formats.formats(q.setting.model, sixteen_bit(q.setting.chip))


def _stored(q: Question, s: Strategy, f: Format, size: float, lengths: Lengths, watermark: float) -> Stored:
    chip, model = q.setting.chip, q.setting.model
    whole = kv_formats.model_bytes(model, f)
    per_chip = chip_bytes(q, s, f)
    tokens = int(size // per_chip)
    read = q.profile.kv_dtypes(chip.efficiency_class, attention_kind(model))
    return Stored(
        f, whole, per_chip, tokens, tokens * s.dp, int(size // whole),
        held(q, s, tokens, s.block_size, lengths, watermark), f.stored in chip.peak, f.dtype in read,
        _widen_s(q, f, size / whole),
        error(q, f),
    )  # fmt: skip


def _widen_s(q: Question, f: Format, tokens: float) -> float:
    """Time for the vector units to widen so many tokens of the whole model; none in 16 bit. [s]"""
    if f.stored in SIXTEEN_BIT:
        return 0.0
    return kv_formats.widening_s(q.setting.chip, f, kv_formats.model_numbers(q.setting.model, f) * tokens)


def chip_bytes(q: Question, s: Strategy, f: Format) -> float:
    """Bytes of one distinct token on a chip of the fullest stage, by the layout of the strategy. [B]

    A format that strategies have no word for is divided as the plain one of its dtype is.
    """
    plain = explain(q, replace(s, kv_dtype=f.dtype or f.stored), served=False).memory.kv_bytes_per_token
    if f.dtype is not None:
        return plain
    a = next(iter(q.setting.model.attention.values()))
    return plain * kv_formats.row_bytes(a, f) / kv_formats.row_bytes(a, f._replace(name=f.stored))


def held(q: Question, s: Strategy, tokens: int, block: int, lengths: Lengths, watermark: float) -> float:
    """Sequences of these lengths that a rank holds in blocks of this size, beside shared prefixes."""
    cells = {**s.to_dict(), "block_size": block}
    whole = block * s.dcp
    usable = float(paging.usable_blocks(tokens, whole, watermark))
    shared = q.budget.shared
    kept = float(prefix.stored_tokens(cells, shared)) / whole
    saved = 0.0 if shared is None else float(prefix.whole_blocks(shared.tokens, whole)) / whole
    each = max(float(paging.blocks(lengths, whole)) - saved, 1.0)
    return max(usable - kept, 0.0) / each


def _block(q: Question, s: Strategy, own: Stored, size: int, lengths: Lengths, watermark: float) -> Block:
    waste = float(paging.waste_tokens(lengths, size * s.dcp))
    shared = q.budget.shared
    saved = 0.0 if shared is None else float(prefix.whole_blocks(shared.tokens, size * s.dcp))
    return Block(
        size,
        waste,
        waste / max(waste + lengths.mean - saved, 1.0),
        held(q, s, own.chip_tokens, size, lengths, watermark),
    )


def error(q: Question, f: Format) -> float:
    """Relative error of attention's output by a cache in this format, as `verify` computes it on Gaussian rows."""
    from mlaplan.kernel.cache_error import cache_errors, grouped_cache_errors
    from mlaplan.kernel.shapes import Shapes

    a = next(iter(q.setting.model.attention.values()))
    if a.kind == "gqa":
        return grouped_cache_errors(a.head_dim, [ERROR_CONTEXT], [f.rounding])[0].relative
    shapes = Shapes(
        q.setting.model.hidden_size, a.heads, a.kv_lora_rank, a.qk_nope_head_dim, a.qk_rope_head_dim, a.v_head_dim,
        a.q_lora_rank,
    )  # fmt: skip
    return cache_errors(shapes, [ERROR_CONTEXT], [f.rounding])[0].relative
