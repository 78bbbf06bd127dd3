"""Compute one attention in every way and compare: the library behind `mlaplan verify`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mlaplan.kernel import variants
from mlaplan.kernel.cache_error import cache_errors
from mlaplan.kernel.cache_formats import FORMATS, store_as
from mlaplan.kernel.case import Case, layers_reference, random_case
from mlaplan.kernel.composed import Layout
from mlaplan.kernel.rope import Yarn
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.tolerance import difference
from mlaplan.kernel.variants import Outcome

AGREES = "agrees"
DIFFERS = "differs"
BYTES_DIFFER = "bytes differ"
MEASURED = "measured"  # a cost that has no tolerance, such as that of a rounded cache


@dataclass(frozen=True, slots=True)
class Row:
    """One variant against its reference; bytes are sent by all ranks in one step."""

    variant: str
    max_abs: float
    relative: float  # max|d| / max|ref|
    cosine: float
    sent_bytes: float  # counted
    expected_bytes: float  # by closed form
    tolerance: float | None
    verdict: str

    @property
    def ok(self) -> bool:
        return self.verdict in (AGREES, MEASURED)


def verify(
    shapes: Shapes,
    context: int = 512,
    batch: int = 2,
    q_len: int = 2,
    dtype: str = "fp64",
    kv_dtype: str | None = None,
    ranks: Sequence[int] = (2, 4, 8),
    interleaves: Sequence[int] = (1, 16, 64),
    block_sizes: Sequence[int] = (16, 64),
    slice_tokens: int = 64,
    top_k: int | None = None,
    logit_std: float = 4.0,
    yarn: Yarn | None = None,
    seed: int = 0,
    only: Sequence[Layout] | None = None,
) -> list[Row]:
    """Every variant of a random block of these shapes, against naive attention in fp64.

    kv_dtype rounds the cache of all variants alike and adds a row for what that costs. `only` restricts the
    partitions to the given layouts, as those of a plan. Neither hidden size nor query rank takes part in
    attention, so both may be small; bytes of the output projection follow the hidden size given.
    """
    store = store_as(kv_dtype, shapes.kv_lora_rank) if kv_dtype else None
    case = random_case(shapes, context, batch, q_len, dtype, store, logit_std, yarn=yarn, seed=seed)
    rows = [compared(case, o) for o in variants.one_rank(case, slice_tokens, block_sizes, seed)]
    wanted = variants.layouts(case, ranks, interleaves) if only is None else list(only)
    rows += layout_rows(case, wanted)
    if top_k is not None:
        k = min(top_k, max(context // 4, 1))  # a reduced context must still leave something out
        rows += [compared(case, o) for o in variants.sparse_selection(case, k, 2, seed)]
    if kv_dtype:
        rows += cache_rows(shapes, context, kv_dtype, logit_std, seed)
    return rows


def layout_rows(case: Case, layouts: Iterable[Layout]) -> list[Row]:
    """One row per layout. The reference of p pipeline stages is p layers on one rank."""
    references = {1: case.reference}
    rows = []
    for layout in layouts:
        if layout.pp not in references:
            references[layout.pp] = layers_reference(case, layout.pp)
        rows.append(compared(case, variants.partitioned(case, layout, references[layout.pp])))
    return rows


def compared(case: Case, outcome: Outcome) -> Row:
    d = difference(outcome.got, outcome.reference)
    verdict = AGREES if d.relative <= case.tolerance else DIFFERS
    off = abs(outcome.sent_bytes - outcome.expected_bytes)
    if verdict == AGREES and off > 1e-9 * max(outcome.expected_bytes, 1.0):
        verdict = BYTES_DIFFER
    return Row(
        outcome.name,
        d.max_abs,
        d.relative,
        d.cosine,
        outcome.sent_bytes,
        outcome.expected_bytes,
        case.tolerance,
        verdict,
    )


def cache_rows(shapes: Shapes, context: int, kv_dtype: str, logit_std: float, seed: int) -> list[Row]:
    """Output error of the rounded cache against an exact one; also for bf16, to compare."""

    def row_bytes(name: str) -> int:
        return FORMATS[name].row_bytes(shapes.kv_lora_rank, shapes.qk_rope_head_dim)

    names = list(dict.fromkeys(["bf16", kv_dtype]))
    return [
        Row(
            f"{e.cache_format} cache, {row_bytes(e.cache_format)} B a row",
            e.max_abs,
            e.relative,
            e.cosine,
            0.0,
            0.0,
            None,
            MEASURED,
        )
        for e in cache_errors(shapes, [context], names, logit_std, seed=seed)
    ]


def reduced(shapes: Shapes, hidden_size: int = 256, q_lora_rank: int = 128) -> Shapes:
    """The same attention with a narrower model around it, so that it fits a laptop."""
    return replace(
        shapes,
        hidden_size=min(shapes.hidden_size, hidden_size),
        q_lora_rank=min(shapes.q_lora_rank, q_lora_rank) if shapes.q_lora_rank else None,
    )
