"""Cache tiers for people, and as data: `mlaplan.tiers/1`."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from mlaplan.report import plan_data, tables, words
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import as_markdown, wrapped
from mlaplan.units import format_bytes, format_bytes_per_s, format_seconds

if TYPE_CHECKING:
    from mlaplan.fleet.tiers import Context, Found, Worth
    from mlaplan.rules.rule import Question

SCHEMA = "mlaplan.tiers/1"
Part = tuple[list[Column], list[list[str]]]


def rendered(q: Question, f: Found, trace: str | None, how: str) -> str:
    """The tiers as a table, json, csv or markdown."""
    if how == "json":
        return tables.as_json(document(q, f, trace))
    if how == "csv":
        return tables.as_csv([context(c) for c in f.contexts])
    parts = sections(q, f, trace)
    if how == "md":
        lines = [f"# {title(q, f)}"]
        for said, part in parts:
            columns, rows = part
            lines += ["", said]
            if rows:
                lines += ["", as_markdown([c.title.replace("\n", " ") for c in columns], rows)]
        return "\n".join([*lines, "", notes(f)])
    shown = [f"{wrapped(said)}\n{grid(*part)}" if part[1] else wrapped(said) for said, part in parts]
    return "\n\n".join([wrapped(title(q, f)), *shown, wrapped(notes(f))])


def notes(f: Found) -> str:
    """What is left out, and what a trace's replay means."""
    said = (
        "Fetching goes over each chip's own link, copies counted; staging on the way, look-up and other traffic are "
        "left out."
    )
    if f.curve is None:
        return f"{said} With --trace: what caches of any size find, and what a tier is worth."
    return (
        f"{said} Outputs are not kept; the trace is replayed once against one LRU cache over all tiers, with requests "
        "routed to it: what a short trace touches fits small tiers."
    )


def title(q: Question, f: Found) -> str:
    """Model, chips and plan."""
    s = f.strategy
    return (
        f"Cache tiers of {q.setting.model.title} on {s.devices} x {q.setting.chip.name}, {s.label()}, "
        f"{words.times(s.batch, 'sequence')} a rank, {s.kv_dtype} cache"
    )


def sections(q: Question, f: Found, trace: str | None) -> list[tuple[str, Part]]:
    """(what is said, its table) of each part."""
    out = [(
        f"Fetch or recompute: a token is {f.token_bytes:,.0f} B of a chip to fetch; even is the rate of a link below "
        "which computing is faster.", contexts(f),
    )]  # fmt: skip
    if f.curve is not None:
        w = q.workload
        out.append((
            f"Hit rate against capacity, by stack distance over {trace}: {words.percent(f.curve.most)} of prompt "
            f"tokens can be found, in {f.curve.distinct:,} different blocks; {f.stored_bytes:,.0f} B a token."
            + (" No prompt begins with a whole block of one before it." if not f.sizes else ""),
            sizes(f),
        ))  # fmt: skip
        out.append((
            f"Worth of a tier, for {w.isl:,} tokens in and {w.osl:,} out, the plan and its batch unchanged.", tiers(f),
        ))  # fmt: skip
    return out


def contexts(f: Found) -> Part:
    """One line per length."""
    columns = [Column("context"), Column("recompute")]
    columns += [Column(f"{'host' if i == 0 and len(f.links) > 1 else 'pool' if i else link.name[:12]}\n"
                       f"{format_bytes_per_s(link.bytes_per_s)}") for i, link in enumerate(f.links)]  # fmt: skip
    columns += [Column("even"), text("faster")]
    rows = []
    for c in f.contexts:
        fetched = [format_seconds(t) for t in c.fetch_s]
        better = [column.title.split("\n")[0] for column, t in zip(columns[2:], c.fetch_s, strict=False)
                  if t < c.recompute_s]  # fmt: skip
        faster = f"fetch: {', '.join(better)}" if better else "recompute"
        even = format_bytes_per_s(c.break_even_bytes_per_s) if isfinite(c.break_even_bytes_per_s) else "-"
        rows.append([f"{c.tokens:,}", format_seconds(c.recompute_s), *fetched, even, faster])
    return columns, rows


def sizes(f: Found) -> Part:
    """One line per share that is found."""
    columns = [Column("found"), Column("tokens"), Column("capacity")]
    return columns, [[words.percent(s), f"{t:,.0f}", format_bytes(b)] for s, t, b in f.sizes]


def tiers(f: Found) -> Part:
    """One line per tier, each with those above it."""
    columns = [text("tiers"), Column("tokens\nheld"), Column("found"), Column("fetched\na prompt"), Column("TTFT")]
    columns += [Column("tok/s\nchip"), Column("gained"), text("")]
    rows = []
    for i, w in enumerate(f.worth):
        gained = "" if i == 0 else f"{w.tok_s_chip - f.worth[i - 1].tok_s_chip:+.1f}"
        said = "capped by its link" if w.capped else "" if w.used else "slower than computing"
        rows.append([
            w.tier.name, f"{w.tokens:,.0f}", words.percent(w.hit_share), f"{w.fetched_tokens:,.0f}",
            format_seconds(w.ttft_s), words.plain(w.tok_s_chip), gained, said,
        ])  # fmt: skip
    return columns, rows


def context(c: Context) -> dict[str, Any]:
    """One length as flat data."""
    fetched = {f"fetch_{i}_s": t for i, t in enumerate(c.fetch_s)}
    head = {"context_tokens": c.tokens, "recompute_s": c.recompute_s, **fetched}
    even = plan_data.finite(c.break_even_bytes_per_s)
    return {**head, "break_even_bytes_per_s": even, "fetch_is_faster": any(t < c.recompute_s for t in c.fetch_s)}


def worth(w: Worth) -> dict[str, Any]:
    """One tier as data."""
    return {
        "tier": w.tier.name,
        "capacity_bytes": w.tier.capacity_bytes,
        "link_bytes_per_s": w.tier.link.bytes_per_s if w.tier.link else None,
        "held_tokens": w.tokens,
        "hit_share": w.hit_share,
        "fetched_tokens": w.fetched_tokens,
        "used": w.used,
        "capped_by_link": w.capped,
        "tok_s_chip": w.tok_s_chip,
        "ttft_s": w.ttft_s,
    }


def document(q: Question, f: Found, trace: str | None) -> dict[str, Any]:
    """`mlaplan.tiers/1`."""
    return {
        "schema": SCHEMA,
        **plan_data.subject(q),
        "workload": plan_data.workload(q),
        "trace": trace,
        "strategy": plan_data.strategy(f.strategy),
        "fetched_bytes_per_token": f.token_bytes,
        "stored_bytes_per_token": f.stored_bytes,
        "links": [link._asdict() for link in f.links],
        "contexts": [context(c) for c in f.contexts],
        "most_found": f.curve.most if f.curve else None,
        "distinct_blocks": f.curve.distinct if f.curve else None,
        "curve": [{"found": s, "tokens": t, "bytes": b} for s, t, b in f.sizes],
        "tiers": [worth(w) for w in f.worth],
    }
