"""A KV pool for people, and as data: `mlaplan.kv/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan import units
from mlaplan.costs import kv_formats
from mlaplan.report import cache, plan_data, tables, words
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import wrapped

if TYPE_CHECKING:
    from mlaplan.fleet.pool import Pool, Stored
    from mlaplan.rules.rule import Question

SCHEMA = "mlaplan.kv/1"
GIB, GB = 2.0**30, 1e9


def rendered(q: Question, p: Pool, how: str) -> str:
    """The pool as a table, json, csv or markdown."""
    if how == "json":
        return tables.as_json(document(q, p))
    if how == "csv":
        return tables.as_csv([row(f) for f in p.formats])
    return markdown(q, p) if how == "md" else report(q, p)


def report(q: Question, p: Pool) -> str:
    """The whole text in 80 columns."""
    s, model = p.base.strategy, q.setting.model
    head = [
        f"KV cache of {model.title} on {q.setting.chip.name}, {s.label()} ({words.times(s.devices, 'chip')})",
        words.line("engine", f"{q.profile.label}, blocks of {s.block_size}, {s.kv_layout.replace('_', '-')}"),
        words.line("memory", memory(q, p)),
        words.line("pool", size(p)),
    ]
    # what does not fit is told above, what no engine launches is not
    head += [words.line("illegal", f"{code} {slug}: {said}") for code, slug, said in p.base.reasons if code < "MLA2"]
    parts = ["\n".join(head), grid(*format_table(p)), _under_formats(q, p)]
    parts += [f"{wrapped(f'Whole blocks: {blocks_said(q, p)}')}\n{grid(*block_table(p))}"]
    parts += [f"{wrapped(f'Prefixes in buckets: {buckets_said(p)}')}\n{grid(*bucket_table(p))}"]
    return "\n\n".join(part for part in parts if part)


def memory(q: Question, p: Pool) -> str:
    """What the chip has, and what is no cache."""
    items = p.base.memory.items
    weights = items["weight_bytes"]
    return (
        f"{units.format_bytes(p.usable_bytes)} of {units.format_bytes(float(q.setting.chip.memory.capacity))} usable; "
        f"weights {units.format_bytes(weights)}, activations and buffers {units.format_bytes(p.beside_bytes - weights)}"
    )


def size(p: Pool) -> str:
    """The pool in both units, and whether it fits."""
    shown = f"{p.pool_bytes / GB:.2f} GB ({p.pool_bytes / GIB:.2f} GiB) a chip"
    if not p.given:
        return f"{shown}, what is left" if p.pool_bytes > 0 else "none: weights and buffers fill the memory"
    if p.fits:
        return f"{shown}, as asked for; it fits"
    over = p.beside_bytes + p.pool_bytes - p.usable_bytes
    return f"{shown}, as asked for; DOES NOT FIT: {units.format_bytes(over)} too much beside weights and buffers"


def format_table(p: Pool) -> tuple[list[Column], list[list[str]]]:
    """One line per format."""
    columns = [text("format"), Column("B a token\nof the model"), Column("and\nchip"), Column("to\n16 bit")]
    columns += [Column("tokens\na chip"), Column("tokens\na replica"), Column("sequences\na rank")]
    columns += [Column("error")]
    first = p.formats[0].model_bytes
    rows = [
        [
            f"{f.format.name}{mark(f)}",
            f"{f.model_bytes:,.0f}",
            f"{f.chip_bytes:,.0f}",
            "" if f is p.formats[0] else f"{100 * (f.model_bytes / first - 1):.1f} %",
            f"{f.chip_tokens:,}",
            f"{f.replica_tokens:,}",
            f"{f.sequences:,.0f}",
            words.percent(f.error) if f.error >= 5e-4 else "0 %",
        ]
        for f in p.formats
    ]
    if p.base.strategy.dp == 1:  # a replica is one rank
        columns, rows = columns[:5] + columns[6:], [row[:5] + row[6:] for row in rows]
    return columns, rows


def mark(f: Stored) -> str:
    """1: no such dtype on the chip; 2: no such cache in the engine."""
    return " (1)" if not f.has else " (2)" if not f.reads else ""


def _under_formats(q: Question, p: Pool) -> str:
    chip = q.setting.chip.name
    dtypes = sorted({f.format.stored for f in p.formats if not f.has})
    lines = []
    if dtypes:
        lines.append(wrapped(f"{chip} multiplies no {', '.join(dtypes)}: stored only, and widened", label="(1) "))
    unread = [f.format.name for f in p.formats if f.has and not f.reads]
    if unread:
        lines.append(wrapped(f"{q.profile.label} reads no cache in {', '.join(unread)} here", label="(2) "))
    lines += [wrapped(line) for line in (whole_model(p), _columns(q, p), _shared(q, p)) if line]
    return "\n".join(lines)


def whole_model(p: Pool) -> str:
    """Tokens of the whole model in one pool, in the unit that was asked for and the other."""
    f = p.formats[0]
    said = f"{_number(p.pool_bytes / GB)} GB (1 GB = 10^9 B) hold {f.model_tokens:,} tokens of the whole model"
    if not p.given:
        return f"{said} in {f.format.name}, before rounding to blocks."
    gib, gb = p.pool_bytes / GIB, p.pool_bytes / GB
    if abs(gib - round(gib)) < 1e-9:
        other = int(gib * GB // f.model_bytes)
        return (
            f"{_number(gib)} GiB (1 GiB = 2^30 B) hold {f.model_tokens:,} tokens of the whole model in "
            f"{f.format.name}, before rounding to blocks; {_number(gib)} GB would hold {other:,}."
        )
    other = int(gb * GIB // f.model_bytes)
    said = f"{said} in {f.format.name}, before rounding to blocks"
    return f"{said}; {_number(gb)} GiB (1 GiB = 2^30 B) would hold {other:,}."


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _columns(q: Question, p: Pool) -> str:
    said = "Error: of attention's output, root mean square, for Gaussian rows of 1,024 tokens."
    narrow = [f for f in p.formats if f.format.stored not in ("bf16", "fp16")]
    chip = q.setting.chip
    times = ", ".join(f"{units.format_seconds(f.widen_s)} from {f.format.name}" for f in narrow)
    rate = f"{units.format_flops(kv_formats.vector_rate(chip))}{'' if chip.vector else ' (taken, its file has none)'}"
    return (
        f"{said} Where a kernel widens what it reads, the vector units of {chip.name} ({rate}) need so long for the "
        f"whole pool: {times}. Formats with a scale per group are always widened; steps show what that adds as "
        f"kv_dequantise."
    )


def _shared(q: Question, p: Pool) -> str:
    w, s = q.workload, p.base.strategy
    if w.prefix_groups is None:
        return ""
    stored, caches = cache.stored_tokens(q, s), s.dp * s.replicas
    return (
        f"{w.prefix_groups:,} shared prefixes of {w.prefix_tokens:,} tokens take {stored:,} tokens of each of "
        f"{words.times(caches, 'cache')}{', as requests go where theirs is' * (w.prefix_routed and caches > 1)}; "
        f"a sequence takes {w.prefix_tokens:,} tokens fewer, and the sequences above are beside the prefixes."
    )


def blocks_said(q: Question, p: Pool) -> str:
    """What the sequences of the block table are."""
    said = f"sequences are {p.lengths.words}{_watermark(p)}, in {p.base.strategy.kv_dtype}."
    if q.workload.prefix_groups is None:
        return said
    return (
        f"{said} Their shared prefix of {q.workload.prefix_tokens:,} tokens is stored once and stands apart: blocks, "
        "empty tokens and their share are of what a sequence adds, and what prefixes take is not there for sequences."
    )


def buckets_said(p: Pool) -> str:
    """What the columns of the bucket table mean."""
    return (
        f"prefixes are {p.prefixes.words}. What lies beyond the last whole bucket is recomputed; a partly filled one "
        "that is kept is empty at its end; a prompt is looked up once a bucket it finds, and once for the miss."
    )


def first(said: str) -> str:
    """With a capital letter."""
    return said[0].upper() + said[1:]


def _watermark(p: Pool) -> str:
    return f"; {words.percent(p.watermark)} of the blocks are kept free" if p.watermark else ""


def block_table(p: Pool) -> tuple[list[Column], list[list[str]]]:
    """One line per block size."""
    columns = [Column("block"), Column("empty\ntokens"), Column("share"), Column("sequences\na rank")]
    rows = [
        [f"{b.size}", f"{b.waste_tokens:,.1f}", f"{100 * b.waste_share:.2f} %", f"{b.sequences:,.1f}"] for b in p.blocks
    ]
    return columns, rows


def bucket_table(p: Pool) -> tuple[list[Column], list[list[str]]]:
    """One line per bucket size."""
    columns = [Column("bucket"), Column("tokens\nrecomputed"), Column("empty\ntokens"), Column("look-ups\na prompt")]
    rows = [[f"{size:,}", f"{b.recomputed:,.0f}", f"{b.padding:,.0f}", f"{b.lookups:,.0f}"] for size, b in p.buckets]
    return columns, rows


def markdown(q: Question, p: Pool) -> str:
    """The same as GitHub renders it."""

    def table(part: tuple[list[Column], list[list[str]]]) -> str:
        columns, rows = part
        return tables.as_markdown([c.title.replace("\n", " ") for c in columns], rows)

    s = p.base.strategy
    return "\n".join([
        f"# KV cache of {q.setting.model.title} on {q.setting.chip.name}, {s.label()}", "",
        f"Memory: {memory(q, p)}.", "", f"Pool: {size(p)}.", "", table(format_table(p)), "", _under_formats(q, p), "",
        "## Blocks", "", first(blocks_said(q, p)), "", table(block_table(p)), "",
        "## Buckets", "", first(buckets_said(p)), "", table(bucket_table(p)),
    ])  # fmt: skip


def row(f: Stored) -> dict[str, Any]:
    """One format as flat data."""
    return {
        "format": f.format.name,
        "kv_dtype": f.format.dtype,
        "model_bytes_per_token": f.model_bytes,
        "chip_bytes_per_token": f.chip_bytes,
        "chip_tokens": f.chip_tokens,
        "replica_tokens": f.replica_tokens,
        "model_tokens": f.model_tokens,
        "rank_sequences": f.sequences,
        "chip_has_dtype": f.has,
        "engine_reads": f.reads,
        "relative_error": f.error,
        "widening_s": f.widen_s,
    }


def document(q: Question, p: Pool) -> dict[str, Any]:
    """`mlaplan.kv/1`."""
    s = p.base.strategy
    return {
        "schema": SCHEMA,
        **plan_data.subject(q),
        "strategy": plan_data.strategy(s, p.base.pp_layers),
        "workload": plan_data.workload(q),
        "memory": {**p.base.memory.items, "usable_bytes": p.usable_bytes, "beside_bytes": p.beside_bytes},
        "pool_bytes": p.pool_bytes,
        "pool_given": p.given,
        "fits": p.fits,
        "illegal": [f"{code} {slug}: {said}" for code, slug, said in p.base.reasons if code < "MLA2"],
        "watermark": p.watermark,
        "shared_tokens": cache.stored_tokens(q, s),
        "formats": [row(f) for f in p.formats],
        "lengths": {"words": p.lengths.words, "mean_tokens": p.lengths.mean},
        "blocks": [
            {"block_tokens": b.size, "waste_tokens": b.waste_tokens, "waste_share": b.waste_share,
             "rank_sequences": b.sequences} for b in p.blocks
        ],
        "buckets": [
            {"bucket_tokens": size, "recomputed_tokens": float(b.recomputed), "padding_tokens": float(b.padding),
             "lookups": float(b.lookups)} for size, b in p.buckets
        ],
    }  # fmt: skip
