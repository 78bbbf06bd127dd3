"""Prefill and decode apart, for people: pools, transfer, what it serves, and from which ISL:OSL on it is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan import units
from mlaplan.fleet import arrivals
from mlaplan.report import words
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import as_markdown, wrapped
from mlaplan.serving.steady import front_end_s
from mlaplan.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from mlaplan.fleet.decision import Decision
    from mlaplan.fleet.split import Side, Split
    from mlaplan.strategy import Strategy


def section(d: Decision) -> str:
    """The whole section in 80 columns."""
    if d.split is None or d.bands is None:
        return nothing(d)
    parts = [wrapped(verdict(d)), grid(*pools(d.split), fold=2), figures(d), wrapped(carried(d.split))]
    if d.points:
        parts.append(f"{wrapped(crossover(d))}\n{grid(*curve(d))}")
    parts.append(wrapped(notes(d.split)))
    return "\n\n".join(parts)


NOTES = (
    "Apart, both pools are priced by themselves and matched in whole instances; other traffic on the network and the "
    "proxy between the pools are left out."
)


def notes(s: Split) -> str:
    """What the figures leave out."""
    if s.prefill.strategy.dp == 1:
        return NOTES
    return (
        f"{NOTES} Attention-DP ranks of the prefill pool step together, which waits know on average only: "
        "mlaplan simulate runs a saved plan."
    )


def nothing(d: Decision) -> str:
    """Why there is no split."""
    c = d.ask.connector
    joins = f", {c.label} joins none of their plans" if c is not None else ""
    return wrapped(
        f"APART: no two pools on {d.ask.devices} chips serve this: what is asked for is beyond their memory, the "
        f"service level or the rate they complete{joins}, or no network joins them."
    )


def verdict(d: Decision) -> str:
    """Which way serves more, and by how much."""
    assert d.split is not None
    served = d.together.plans[0].served if d.together.plans else None
    if served is None:
        return "PREFILL AND DECODE APART: together nothing serves this."
    change = d.split.tok_s_chip / served.tok_s_chip.value - 1.0
    more = f"{words.percent(abs(change))} {'more' if change > 0 else 'less'} than together"
    title = "PREFILL AND DECODE APART" if d.wins == "apart" else "Prefill and decode apart"
    return f"{title}: {words.plain(d.split.tok_s_chip)} tok/s/chip, {more} ({words.plain(served.tok_s_chip.value)})."


def pools(s: Split) -> tuple[list[Column], list[list[str]]]:
    """One line per pool."""
    columns = [text("pool"), Column("inst."), text("plan of one"), text("chip"), Column("chips"), Column("batch")]
    columns += [text("KV"), Column("MTP"), Column("requests/s\nof one"), Column("busy")]
    return columns, [
        _pool("prefill", s.prefill, str(s.prefill.strategy.batch)),
        _pool("decode", s.decode, f"{s.filled:.0f}/{s.decode.strategy.batch}"),
    ]


def _pool(role: str, side: Side, batch: str) -> list[str]:
    one = side.strategy
    plan = " ".join(part for part in one.label().split() if not part.startswith("x"))
    return [
        role, str(side.instances), plan, side.q.setting.chip.name, str(side.chips), batch, one.kv_dtype,
        str(one.mtp), words.plain(side.rate), words.percent(side.utilisation),
    ]  # fmt: skip


def figures(d: Decision) -> str:
    """What the split serves, with bands."""
    s, b = d.split, d.bands
    assert s is not None and b is not None
    front = front_end_s(s.prefill.q.setting.engine, s.decode.q.workload)
    room = f"room in the decode pool {format_seconds(s.slot_wait_s)}, " if s.slot_wait_s else ""
    parts = (
        f"waiting {format_seconds(s.wait_s)}, prefill {format_seconds(s.prefill_s)}, {room}transfer "
        f"{format_seconds(s.exposed_s)}, front end {format_seconds(front)}"
    )
    lines = [words.line("TTFT", f"{words.span(b.ttft_s, format_seconds)}: {parts}")]
    if b.tpot_s is not None:
        lines.append(words.line("TPOT", f"{words.span(b.tpot_s, format_seconds)}, no prefill between the rounds"))
    lines.append(words.line("tok/s/chip", f"{words.span(b.tok_s_chip)}, {words.plain(s.requests_per_s)} requests/s"))
    lines.append(words.line("in flight", f"{s.in_flight:,.0f} requests"))
    lines.append(words.line("arrivals", random_arrivals(s)))
    idle = d.ask.devices - s.chips
    share = f"{s.prefill.chips}:{s.decode.chips} chips, {s.prefill.instances}:{s.decode.instances} instances"
    lines.append(words.line("P:D", share + (f", {words.times(idle, 'chip')} idle" if idle else "")))
    if d.usd_per_mtok is not None:
        lines.append(words.line("$/Mtok", words.dollars(d.usd_per_mtok)))
    return "\n".join(lines)


def random_arrivals(s: Split) -> str:
    """What the TTFT above takes arrivals for, and what it is where they are random."""
    p = arrivals.poisson(s)
    served = f"TTFT {format_seconds(p.ttft_s)} on average, p95 {format_seconds(p.ttft_p95_s)}"
    if s.decode.q.workload.rate is not None and p.share == 1.0:
        return f"Poisson: {served}"
    at = f"at {words.plain(p.requests_per_s)} requests/s"
    if p.share < 1.0:
        at += f", {words.percent(p.share)} of these, as at all of them a queue would grow without end"
    taken = "" if s.decode.q.workload.rate is not None else "taken as evenly spaced. "
    return f"{taken}Poisson {at}: {served}"


def carried(s: Split) -> str:
    """Bytes of the cache, who sends and who takes them, and what shows."""
    t, model, one = s.transfer, s.decode.q.setting.model, s.decode.strategy
    said = (
        f"A prompt's cache is {format_bytes(t.total_bytes)} on the link: {format_bytes(t.sent_bytes)} from "
        f"{_each(s.prefill.strategy, 'prefilling')}, {format_bytes(t.received_bytes)} to {_each(one, 'decoding')}, "
        f"in {format_seconds(t.time_s)} over {s.link.name} at "
        f"{units.format_bytes_per_s(s.link.bytes_per_s)} a chip."
    )
    if one.tp // one.dcp > 1 and one.kv_layout != "latent_sharded":
        if any(a.kind == "mla" for a in model.attention.values()):
            said += f" The latent goes whole to each of {one.tp // one.dcp} tensor-parallel ranks."
        elif any(a.kind == "gqa" and one.tp > a.kv_heads for a in model.attention.values()):
            said += " Key-value heads go to every rank that repeats them."
    by = f" by {s.connector.label}" if s.connector is not None else ""
    if s.sends == "after":
        return f"{said} It is sent after the prefill{by}, and all of it shows."
    after = f"sent after it, {format_seconds(t.time_s)} would"
    how = "Layer by layer" if s.sends == "layers" else "Chunk by chunk"
    return f"{said} {how} while the prompt computes{by}, {format_seconds(s.exposed_s)} show; {after}."


def _each(s: Strategy, role: str) -> str:
    """The chips that hold one sequence."""
    return f"each of {s.tp * s.pp} {role} chips" if s.tp * s.pp > 1 else f"one {role} chip"


def crossover(d: Decision) -> str:
    """Where the better way changes."""
    first, last = d.points[0], d.points[-1]
    whole = first.isl + first.osl
    if not d.crossings:
        better = "apart" if d.points[0].apart_wins else "together"
        span = f"from {_ratio(first.ratio)} to {_ratio(last.ratio)}"
        said = f"Of {whole:,} tokens a request, {better} serves more at every ISL:OSL {span}"
    else:
        turns = [
            f"{'apart' if next(p for p in d.points if p.ratio > c * (1 - 1e-9)).apart_wins else 'together'} from about "
            f"{_ratio(c)} on"
            for c in d.crossings
        ]
        said = f"Of {whole:,} tokens a request, by ISL:OSL, {', '.join(turns)} serves more"
    return f"{said} (each by its best plan; - where nothing serves):"


def _ratio(value: float) -> str:
    return f"{value:.2g}:1" if value >= 1 else f"1:{1 / value:.2g}"


def curve(d: Decision) -> tuple[list[Column], list[list[str]]]:
    """One line per ratio."""
    columns = [Column("ISL"), Column("OSL"), Column("ISL:OSL"), Column("together\ntok/s/chip")]
    columns += [Column("apart\ntok/s/chip"), Column("P:D\nchips"), text("more")]
    rows = []
    for p in d.points:
        better = "-" if not (p.together or p.apart) else "apart" if p.apart_wins else "together"
        shown = [words.plain(v) if v else "-" for v in (p.together, p.apart)]
        chips = f"{p.prefill_chips}:{p.decode_chips}" if p.apart else "-"
        rows.append([f"{p.isl:,}", f"{p.osl:,}", _ratio(p.ratio), *shown, chips, better])
    return columns, rows


def markdown(d: Decision) -> str:
    """The same as GitHub renders it."""
    if d.split is None:
        return f"## Apart\n\n{nothing(d)}"

    def table(part: tuple[list[Column], list[list[str]]]) -> str:
        columns, rows = part
        return as_markdown([c.title.replace("\n", " ") for c in columns], rows)

    lines = ["## Apart", "", verdict(d), "", table(pools(d.split)), "", "```", figures(d), "```", "", carried(d.split)]
    if d.points:
        lines += ["", crossover(d), "", table(curve(d))]
    return "\n".join([*lines, "", notes(d.split)])
