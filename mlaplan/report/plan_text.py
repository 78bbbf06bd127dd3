"""A recommendation for people, in 80 columns: what was asked, the ranked plans, why, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlaplan import units
from mlaplan.report import context, explain_text, prefixes, why_text, words
from mlaplan.report.block import Block
from mlaplan.report.grid import Column, text
from mlaplan.report.tables import wrapped
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlaplan.explain import Explanation
    from mlaplan.plan import Recommendation
    from mlaplan.report.why import Why
    from mlaplan.rules.rule import Question

FRONT = 12  # points of a Pareto front that are shown
OBJECTIVES = {
    "throughput": "throughput: output tokens per second and chip",
    "latency": "latency: time to the last token of a request",
    "cost": "cost: dollars per output token, chips may stay unused",
    "pareto": "pareto: tok/s/chip against tok/s/user",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A recommendation with what was asked. `launch`: commands for the best plan, one text per node."""

    q: Question
    devices: int
    objective: str
    pins: dict[str, object]
    found: Recommendation
    why: Why | None
    notes: list[str]
    change: str | None = None  # the smallest that admits something, where nothing is feasible
    launch: Launch | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How an engine is started for a plan, and loaded as the workload says."""

    engine: str
    commands: list[str]
    bench: str | None
    problem: str | None = None


def report(a: Answer) -> str:
    """The whole text."""
    parts = [asked(a)]
    if not a.found.plans:
        parts.append(nothing(a))
    else:
        parts.append(ranked(a))
        if a.found.front:
            parts.append(front(a))
        if a.why is not None:
            parts.append(why_text.reasons(a.q, a.found.plans, a.found.families, a.why))
    parts.append(excluded(a))
    if a.notes:
        parts.append("\n".join(["Notes", *(wrapped(note, label="- ") for note in a.notes)]))
    if a.launch is not None:
        parts.append(launch(a.launch))
    return "\n\n".join(part for part in parts if part)


def asked(a: Answer) -> str:
    """The question as it was understood."""
    return "\n".join([title(a), *(words.line(label, told) for label, told in asked_rows(a))])


def title(a: Answer) -> str:
    """Model, chips and nodes."""
    chip = a.q.setting.chip
    per_node = chip.scale_up.chips_per_node
    nodes = f" ({-(-a.devices // per_node)} nodes of {per_node})" if a.devices > per_node else ""
    return f"{a.q.setting.model.title} on {a.devices} x {chip.name}{nodes}"


def asked_rows(a: Answer) -> list[tuple[str, str]]:
    """(what, how it was understood); without a label it is about the row before."""
    model, chip = a.q.setting.model, a.q.setting.chip
    sixteen = "bf16" if "bf16" in chip.peak else "fp16"
    shown = [d for d in ("fp8", "int8") if d in chip.peak][:1] + [sixteen] * (sixteen in chip.peak)
    peak = ", ".join(f"{units.format_flops(float(chip.peak[d]))} {d}" for d in shown)
    memory = f"{units.format_bytes_both(float(chip.memory.capacity))}, "
    rows = [
        ("model", model.origin),
        ("", words.layers(model)),
        ("chip", chip.origin),
        ("", f"{memory}{units.format_bytes_per_s(float(chip.memory.bandwidth))}, {peak}"),
        *(("kernels", told) for told in words.kernels(chip)),
        ("engine", explain_text.engine(a.q)),
        ("workload", words.workload(a.q.workload)),
        ("objective", OBJECTIVES[a.objective]),
    ]
    if a.pins:
        rows.append(("pinned", ", ".join(f"{name} {value}" for name, value in a.pins.items())))
    return [*rows, ("searched", f"{a.found.considered:,} combinations, {a.found.priced:,} strategies priced")]


def ranked(a: Answer) -> str:
    """One line per shape."""
    return ranked_block(a).text()


def ranked_block(a: Answer) -> Block:
    """One line per shape, and the bands of the first."""
    columns, rows = table(a)
    bands = a.found.plans[0].served
    assert bands is not None  # plans are served
    said = f"80 % band of the first: TTFT {words.span(bands.ttft_s, format_seconds)}"
    if bands.tpot_s is not None:
        said += f", TPOT {words.span(bands.tpot_s, format_seconds)}"
    said += f", tok/s/chip {words.span(bands.tok_s_chip)}."
    if a.q.workload.concurrency is None:
        said += f" It wants {bands.concurrency:,.0f} requests in flight."
    notes = [said]
    number, sharded = next(((i, e) for i, e in enumerate(a.found.plans, 1) if e.strategy.dcp > 1), (0, None))
    if sharded is not None:
        notes.append(f"Decode context parallelism of plan {number}: {context.told(a.q, sharded.strategy)}.")
    if shared := prefixes.told(a.q, a.found.plans[0]):
        notes.append(f"Plan 1: {shared}")
    return Block("", columns, rows, tuple(notes), fold=1)


def table(a: Answer) -> tuple[list[Column], list[list[str]]]:
    """Columns and cells of the ranked plans; a column that says nothing is left out."""
    plans = a.found.plans
    columns = [Column(""), text("plan"), Column("chips"), Column("batch"), Column("TTFT"), Column("TPOT")]
    columns += [Column("tok/s\nchip"), Column("tok/s\nuser"), text("W"), text("KV"), Column("MTP"), Column("comm")]
    columns += [Column("$/\nMtok")]
    rows = [_row(number, e) for number, e in enumerate(plans, 1)]
    silent = {
        "chips": all(e.strategy.devices == a.devices for e in plans),
        "W": len({e.strategy.weight_dtype for e in plans}) == 1,
        "$/\nMtok": all(e.served is None or e.served.usd_per_mtok is None for e in plans),
    }
    kept = [i for i, column in enumerate(columns) if not silent.get(column.title)]
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _row(number: int, e: Explanation) -> list[str]:
    s, served = e.strategy, e.served
    assert served is not None and e.decode is not None
    return [
        str(number),
        s.label(),
        str(s.devices),
        str(s.batch),
        format_seconds(served.ttft_s.value),
        format_seconds(served.tpot_s.value) if served.tpot_s else "-",
        words.plain(served.tok_s_chip.value),
        words.plain(served.tok_s_user.value) if served.tok_s_user else "-",
        s.weight_dtype,
        s.kv_dtype,
        str(s.mtp),
        words.percent(e.decode.comm_share),
        words.dollars(served.usd_per_mtok.value) if served.usd_per_mtok else "-",
    ]


def front(a: Answer) -> str:
    """Points of the front."""
    shown, whole = len(front_block(a).rows), len(a.found.front)
    return front_block(a).text() + (f"\n{shown} of {whole} points" if shown < whole else "")


def front_block(a: Answer) -> Block:
    """Points of the front, thinned evenly."""
    points = a.found.front
    if len(points) > FRONT:
        step = (len(points) - 1) / (FRONT - 1)
        points = [points[round(i * step)] for i in range(FRONT)]
    rows = [
        (s.label(), str(s.batch), s.kv_dtype, str(s.mtp), words.plain(f["tok_s_chip"]), words.plain(f["tok_s_user"]),
         format_seconds(f["ttft_s"]), format_seconds(f["tpot_s"]))
        for s, f in points
    ]  # fmt: skip
    columns = (
        text("Pareto front"), Column("batch"), text("KV"), Column("MTP"), Column("tok/s\nchip"), Column("tok/s\nuser"),
        Column("TTFT"), Column("TPOT"),
    )  # fmt: skip
    return Block("", columns, rows)


def nothing(a: Answer) -> str:
    """Why no strategy is left, and what would change that."""
    lines = ["NOTHING FEASIBLE"]
    miss = a.found.nearest_miss
    if miss is not None:
        lines.append(wrapped(f"Nearest: {miss.strategy.label()} ({words.choices(miss.strategy)})"))
        lines.append(wrapped(f"{miss.code} {miss.slug}: {miss.detail}", label="- "))
        if a.change:
            lines.append(wrapped(f"smallest change: {a.change}", label="- "))
    return "\n".join(lines)


def excluded(a: Answer) -> str:
    """Counts by rule."""
    return excluded_block(a).text() if a.found.rejected else ""


def excluded_block(a: Answer) -> Block:
    """Counts by rule."""
    reasons = rule_reasons()
    rows = [
        (f"{count:,}", name.split()[0], reasons.get(name.split()[0], name)) for name, count in a.found.rejected.items()
    ]
    return Block("", (Column("excluded"), text("rule"), text("reason")), rows, fold=2)


def rule_reasons() -> dict[str, str]:
    """Code -> one-line reason of every rule."""
    from mlaplan.rules import all_rules

    return {rule.code: rule.reason for rule in all_rules()}


def launch(one: Launch) -> str:
    """Commands ready to paste; long lines are theirs, not ours to fold."""
    if one.problem is not None:
        return wrapped(f"{one.engine} cannot launch the plan: {one.problem}")
    lines: list[str] = [f"Launch with {one.engine}:", ""]
    lines += [part for command in one.commands for part in (command, "")]
    if one.bench:
        lines += ["Measure it:", "", one.bench]
    return "\n".join(lines).rstrip()


def plan_rows(plans: Sequence[Explanation]) -> list[dict[str, object]]:
    """One flat row per plan for csv: SI, the unit in each key."""
    from mlaplan.report import plan_data

    out: list[dict[str, object]] = []
    for rank, e in enumerate(plans, 1):
        row: dict[str, object] = {"rank": rank, "label": e.strategy.label(), "devices": e.strategy.devices}
        row |= e.strategy.to_dict()
        for name, value in (plan_data.served(e.served) or {}).items():
            if isinstance(value, dict):
                row |= {name: value["value"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
            else:
                row[name] = value
        if e.decode is not None and e.prefill is not None:
            row |= {"decode_step_s": e.decode.step_s.value, "decode_comm_share": e.decode.comm_share}
            row |= {"prefill_step_s": e.prefill.step_s.value, "prefill_comm_share": e.prefill.comm_share}
        m = e.memory
        row |= {"weight_bytes": m.items["weight_bytes"], "total_bytes": m.total_bytes, "usable_bytes": m.usable_bytes}
        out.append(row | {"kv_tokens": m.kv_tokens})
    return out
