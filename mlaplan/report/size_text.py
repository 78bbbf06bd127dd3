"""Sizes for people, and as data: `mlaplan.size/1`."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from mlaplan.report import plan_data, tables, words
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import as_markdown, wrapped
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.fleet.operating import Point
    from mlaplan.fleet.size import Load, Sized
    from mlaplan.fleet.sizing import Answer
    from mlaplan.serving.simulator.outcome import Limit

SCHEMA = "mlaplan.size/1"
Part = tuple[list[Column], list[list[str]]]


def rendered(answers: list[Answer], how: str) -> str:
    """All chips as a table, json, csv or markdown."""
    if how == "json":
        return tables.as_json(document(answers))
    if how == "csv":
        return tables.as_csv([row(a) for a in answers])
    return markdown(answers) if how == "md" else report(answers)


def report(answers: list[Answer]) -> str:
    """The whole text in 80 columns: all chips first, then each with its loads and rates."""
    parts = [asked(answers[0]), grid(*chips_table(answers), fold=3)]
    for a in answers:
        title = a.asked.q.setting.chip.name
        if a.best is None:
            parts.append(wrapped(nothing(a)))
            continue
        parts.append(f"{wrapped(f'{title}: {load_title(a)}')}\n{grid(*loads_table(a))}")
        parts.append(f"{title}: other rates, by the formula\n{grid(*rates_table(a), fold=3)}")
    parts.append(wrapped(method(answers)))
    return "\n\n".join(parts)


def asked(a: Answer) -> str:
    """The question as it was understood."""
    q, w = a.asked.q, a.asked.q.workload
    prefix = f", {w.prefix_tokens:,} of the prompt cached" if w.prefix_tokens else ""
    kept = [f"{name} {limit(one)}" for name, one in (("TTFT", a.asked.ttft), ("TPOT", a.asked.tpot)) if one]
    return "\n".join([
        f"Fewest chips for {a.asked.rate:g} requests/s of {q.setting.model.title}",
        words.line("workload", f"{w.isl:,} tokens in, {w.osl:,} out{prefix}, Poisson arrivals"),
        words.line("limits", ", ".join(kept) or "none: only that the queue does not grow"),
        words.line("engine", f"{q.profile.label}; instances of up to {a.asked.largest} chips"),
    ])  # fmt: skip


def limit(one: Limit) -> str:
    """p95 up to 2.00 s."""
    name = f"p{one.percentile:g}" if one.percentile else "mean"
    return f"{name} up to {format_seconds(one.seconds)}"


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
        s, point = a.best, next(x.point for x in a.loads if x.name == "as asked")
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
    lost = words.times(a.best.lost, "replica")
    return f"headroom of {a.best.replicas} x {a.best.instance.strategy.label()} (a server takes {lost} with it)"


def loads_table(a: Answer) -> Part:
    """One line per load."""
    columns = [text("load"), Column("requests/s"), Column("replicas"), Column("TTFT"), Column("TPOT")]
    columns += [Column("batch\nof slots"), Column("prompts"), text("limits")]
    return columns, [_load(a, x) for x in a.loads]


def _tpot(a: Answer, p: Point) -> str:
    """A single output token has no time between tokens."""
    return seconds(p.tpot_s) if a.asked.q.workload.osl > 1 else "-"


def _load(a: Answer, x: Load) -> list[str]:
    p = x.point
    if p is None:
        return [x.name, f"{x.rate:g}", "0", "-", "-", "-", "-", "none left"]
    kept = "kept" if x.meets else "overloaded" if not isfinite(p.ttft_s) else "missed"
    return [
        x.name, f"{x.rate:.4g}", f"{x.replicas:,}", seconds(p.ttft_s), _tpot(a, p),
        f"{p.in_flight:,.0f}/{p.slots:,}", words.percent(p.prompt_share), kept,
    ]  # fmt: skip


def rates_table(a: Answer) -> Part:
    """One line per rate."""
    columns = [Column("requests/s"), Column("chips"), Column("replicas"), text("plan of one")]
    columns += [Column("busy"), Column("tok/s\nchip"), Column("$/\nMtok")]
    rows = []
    for s in a.rates:
        tok = s.rate * s.instance.q.workload.osl / s.chips
        busy = s.rate / (s.replicas * s.instance.most_per_s)
        rows.append([
            f"{s.rate:g}", f"{s.chips:,}", f"{s.replicas:,}", s.instance.strategy.label(), words.percent(busy),
            words.plain(tok), usd(s, a),
        ])  # fmt: skip
    if all(row[-1] == "-" for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return columns, rows


def nothing(a: Answer) -> str:
    """Why no number of chips is enough."""
    name = a.asked.q.setting.chip.name
    if not a.options:
        return f"{name}: no instance of up to {a.asked.largest} chips keeps the limits, however few requests it gets."
    return (
        f"{name}: the formula asks for {a.options[0].chips:,} chips, but the simulator misses the limits there and "
        "with up to 3 replicas more."
    )


def method(answers: list[Answer]) -> str:
    """How the numbers came about."""
    a = answers[0]
    search = (
        f"{sum(x.priced for x in answers):,} strategies were ranked by a queueing formula (Poisson arrivals, M/D/1 "
        "wait, Poisson batch; docs/cost-model.md)."
    )
    if not a.asked.simulate:
        return f"{search} All figures are the formula's; --simulate lets the simulator decide."
    said = [
        f"{x.formula.chips:,} of {x.asked.q.setting.chip.name}"
        for x in answers
        if x.formula is not None and (x.best is None or x.best.chips != x.formula.chips)
    ]
    change = f" The formula alone asks for {', '.join(said)}." if said else " The formula alone asks for as many chips."
    runs = sum(x.runs for x in answers)
    return (
        f"{search} The simulator decided how many replicas keep the limits and gave all figures but those of other "
        f"rates ({runs} runs, seed {a.asked.seed}).{change} Lengths are equal here: mlaplan simulate takes "
        "distributions and traces."
    )


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
        out += ["", "Other rates, by the formula:", "", table(rates_table(a))]
    return "\n".join([*out, "", method(answers)])


def row(a: Answer) -> dict[str, Any]:
    """One kind of chip as flat data."""
    s = a.best
    point = next((x.point for x in a.loads if x.name == "as asked"), None)
    out: dict[str, Any] = {"chip": a.asked.q.setting.chip.name, "rate_per_s": a.asked.rate, "met": s is not None}
    out |= {"chips": s.chips if s else None, "replicas": s.replicas if s else None}
    out |= {"label": s.instance.strategy.label() if s else None}
    out |= {"ttft_s": _finite(point, "ttft_s"), "tpot_s": _finite(point, "tpot_s")}
    return out | {"usd_per_mtok": s.usd_per_mtok(a.price) if s else None, "simulated": a.asked.simulate}


def _finite(point: Point | None, name: str) -> float | None:
    return None if point is None else plan_data.finite(getattr(point, name))


def document(answers: list[Answer]) -> dict[str, Any]:
    """`mlaplan.size/1`."""
    first = answers[0].asked
    return {
        "schema": SCHEMA,
        "workload": plan_data.workload(first.q),
        "limits": {
            name: None if one is None else {"percentile": one.percentile or None, "seconds": one.seconds}
            for name, one in (("ttft", first.ttft), ("tpot", first.tpot))
        },
        "chips": [
            {
                **row(a),
                **plan_data.subject(a.asked.q),
                "strategy": plan_data.strategy(a.best.strategy) if a.best else None,
                "formula_chips": a.formula.chips if a.formula else None,
                "loads": [
                    {
                        "load": x.name, "rate_per_s": x.rate, "replicas": x.replicas, "meets": x.meets,
                        "ttft_s": _finite(x.point, "ttft_s"), "tpot_s": _finite(x.point, "tpot_s"),
                        "in_flight": _finite(x.point, "in_flight"), "prompt_share": _finite(x.point, "prompt_share"),
                    }
                    for x in a.loads
                ],
                "rates": [
                    {"rate_per_s": s.rate, "chips": s.chips, "replicas": s.replicas,
                     "label": s.instance.strategy.label(), "usd_per_mtok": s.usd_per_mtok(a.price)} for s in a.rates
                ],
                "instances": [
                    {"devices": s.instance.chips, "label": s.instance.strategy.label(),
                     "most_per_s": s.instance.most_per_s} for s in a.options
                ],
            }
            for a in answers
        ],
    }  # fmt: skip
