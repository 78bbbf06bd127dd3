"""Sizes for people."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from mlaplan.report import size_data, tables, words
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.size_words import arrivals, limit, method, nothing
from mlaplan.report.tables import as_markdown, wrapped
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.fleet.operating import Point
    from mlaplan.fleet.size import Load, Sized
    from mlaplan.fleet.sizing import Answer

Part = tuple[list[Column], list[list[str]]]


def rendered(answers: list[Answer], how: str) -> str:
    """All chips as a table, json, csv or markdown."""
    if how == "json":
        return tables.as_json(size_data.document(answers))
    if how == "csv":
        return tables.as_csv([size_data.row(a) for a in answers])
    return markdown(answers) if how == "md" else report(answers)


def report(answers: list[Answer]) -> str:
    """The whole text in 80 columns: all chips first, then each with its loads and rates."""
    parts = [asked(answers[0]), grid(*chips_table(answers), fold=3)]
    for a in answers:
        title = a.asked.q.setting.chip.name
        if a.best is None:
            parts.append(wrapped(nothing(a)))
            continue
        spare = f"\n{wrapped(spared(a))}" if spared(a) else ""
        parts.append(f"{wrapped(f'{title}: {load_title(a)}')}\n{grid(*loads_table(a))}{spare}")
        if len(a.rates) > 1:
            parts.append(f"{wrapped(f'{title}: {rates_title(a)}')}\n{grid(*rates_table(a), fold=3)}")
    parts.append(wrapped(method(answers)))
    return "\n\n".join(parts)


def asked(a: Answer) -> str:
    """The question as it was understood."""
    q, w, sent = a.asked.q, a.asked.q.workload, a.asked.offered
    prefix = f", {w.prefix_tokens:,} of the prompt cached" if w.prefix_tokens else ""
    kept = [f"{name} {limit(one)}" for name, one in (("TTFT", a.asked.ttft), ("TPOT", a.asked.tpot)) if one]
    return "\n".join([
        f"Fewest chips for {per_s(a.asked.rate)} requests/s of {q.setting.model.title}",
        words.line("workload", f"{sent.words}{prefix}, {arrivals(sent, a.asked.rate)}"),
        words.line("limits", ", ".join(kept) or "none: only that the queue does not grow"),
        words.line("engine", f"{q.profile.label}; instances of up to {words.times(a.asked.largest, 'chip')}"),
    ])  # fmt: skip


def chips_table(answers: list[Answer]) -> Part:
    """One line per kind of chip, as asked."""
    columns = [text("chip"), Column("chips"), Column("repl."), text("plan of one"), Column("batch"), text("KV")]
    columns += [Column("TTFT"), Column("TPOT"), Column("tok/s\nchip"), Column("$/\nMtok")]
    rows = []
    for a in answers:
        name = a.asked.q.setting.chip.name
        if a.best is None:
            rows.append([name, "-", "-", "none keeps the limits", "", "", "", "", "", ""])
            continue
        s, point = a.best, a.point
        assert point is not None
        tok = s.rate * s.instance.q.workload.osl / s.chips
        rows.append([
            name, f"{s.chips:,}", f"{s.replicas:,}", s.instance.strategy.label(), str(s.instance.strategy.batch),
            s.instance.strategy.kv_dtype, seconds(point.ttft_s), _tpot(a, point), words.plain(tok), usd(s, a),
        ])  # fmt: skip
    if all(row[-1] in ("-", "") for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return columns, rows


def seconds(value: float) -> str:
    """A time, or a dash where it has no end."""
    return format_seconds(value) if isfinite(value) else "-"


def usd(s: Sized, a: Answer) -> str:
    """Dollars per million output tokens, or a dash."""
    found = s.usd_per_mtok(a.price)
    return "-" if found is None else words.dollars(found)


def load_title(a: Answer) -> str:
    """What the loads are of."""
    assert a.best is not None
    best = a.best
    lost = "the only replica" if best.lost == best.replicas == 1 else words.times(best.lost, "replica")
    whole = f", {words.times(best.lost * best.instance.chips, 'chip')}," if best.instance.chips > best.server else ""
    return (
        f"headroom of {best.replicas:,} x {best.instance.strategy.label()} (a failed server of "
        f"{words.times(best.server, 'chip')} takes {lost}{whole} with it)"
    )


def spared(a: Answer) -> str:
    """What would keep the limits with a server failed, where the answer does not."""
    assert a.best is not None
    if a.loads[-1].meets:
        return ""
    more = a.best.with_spare
    touched = more.replicas - a.best.replicas
    return (
        f"{words.times(more.replicas, 'replica')} on {words.times(more.chips, 'chip')} keep the limits with a server "
        f"failed{', or fewer that share no server' * (touched > 1)}."
    )


def rates_title(a: Answer) -> str:
    """What the rates are of."""
    return f"other rates, {'each simulated' if a.asked.simulate else 'by the formula'}"


def loads_table(a: Answer) -> Part:
    """One line per load."""
    columns = [text("load"), Column("requests/s"), Column("repl."), Column("TTFT"), Column("TPOT")]
    columns += [Column("batch\nof slots"), Column("prompts"), *([Column("found")] * found(a)), text("limits")]
    return columns, [_load(a, x) for x in a.loads]


def _tpot(a: Answer, p: Point) -> str:
    """A single output token has no time between tokens."""
    return seconds(p.tpot_s) if a.asked.q.workload.osl > 1 else "-"


def _load(a: Answer, x: Load) -> list[str]:
    p = x.point
    if p is None:
        return [x.name, per_s(x.rate), "0", "-", "-", "-", "-", *(["-"] * found(a)), "none left"]
    kept = "kept" if x.meets else "overload" if not isfinite(p.ttft_s) or p.grows else "missed"
    return [
        x.name, per_s(x.rate), f"{x.replicas:,}", seconds(p.ttft_s), _tpot(a, p),
        f"{p.in_flight:,.0f}/{p.slots:,}", words.percent(p.prompt_share), *([words.percent(p.hit_share)] * found(a)),
        kept,
    ]  # fmt: skip


def per_s(rate: float) -> str:
    """A rate in four digits, a large one whole."""
    return f"{rate:,.0f}" if rate >= 9999.5 else f"{rate:.4g}"


def found(a: Answer) -> bool:
    """Whether prompts find anything in the cache, so that it is worth a column."""
    return any(x.point is not None and x.point.hit_share > 0 for x in a.loads)


def rates_table(a: Answer) -> Part:
    """One line per rate."""
    columns = [Column("requests/s"), Column("chips"), Column("replicas"), text("plan of one")]
    columns += [Column("requests/s\nof one"), Column("tok/s\nchip"), Column("$/\nMtok")]
    rows = []
    for s in a.rates:
        tok = s.rate * s.instance.q.workload.osl / s.chips
        rows.append([
            per_s(s.rate), f"{s.chips:,}", f"{s.replicas:,}", s.instance.strategy.label(),
            f"{s.rate / s.replicas:.3g}", words.plain(tok), usd(s, a),
        ])  # fmt: skip
    if all(row[-1] == "-" for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return columns, rows


def markdown(answers: list[Answer]) -> str:
    """The same as GitHub renders it."""

    def table(part: Part) -> str:
        columns, rows = part
        return as_markdown([c.title.replace("\n", " ") for c in columns], rows)

    title, *lines = asked(answers[0]).splitlines()
    out = [f"# {title}", "", "```", *lines, "```", "", table(chips_table(answers))]
    for a in answers:
        name = a.asked.q.setting.chip.name
        if a.best is None:
            out += ["", nothing(a)]
            continue
        out += ["", f"## {name}", "", f"{load_title(a)[0].upper()}{load_title(a)[1:]}:", "", table(loads_table(a))]
        out += ["", spared(a)] if spared(a) else []
        if len(a.rates) > 1:
            out += ["", f"{rates_title(a)[0].upper()}{rates_title(a)[1:]}:", "", table(rates_table(a))]
    return "\n".join([*out, "", method(answers)])
