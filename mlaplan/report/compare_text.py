"""A comparison for people: in 80 columns, as markdown, and as rows for csv."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.report import comparison, plan_text, words
from mlaplan.report.block import Block
from mlaplan.report.comparison import LARGE, Ratio, Side
from mlaplan.report.grid import Column, text
from mlaplan.report.tables import as_markdown, wrapped
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlaplan.costs.engine import Interval

SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "tok_s_chip": ("tok/s\nchip", words.plain),
    "tok_s_user": ("tok/s\nuser", words.plain),
    "tpot_s": ("TPOT", format_seconds),
    "ttft_s": ("TTFT", format_seconds),
    "usd_per_mtok": ("$/\nMtok", words.dollars),
}


def report(sides: list[Side]) -> str:
    """The whole text."""
    parts = [title(sides)]
    differs = asked_differently(sides)
    parts += [differs.text()] if differs is not None else []
    parts.append(figures(sides).text())
    parts += [own.text() for side in sides if (own := bands(side, sides[0])).rows]
    for other in sides[1:]:
        said = [wrapped(comparison.verdict(sides[0], other))]
        found = costs(sides[0], other)
        parts.append("\n".join([*said, wrapped(comparison.drivers(sides[0], other))] if found else said))
        parts += [found.text()] if found else []
    told = comparison.notes(sides)
    if told:
        parts.append("\n".join(["Notes", *(wrapped(note, label="- ") for note in told)]))
    return "\n\n".join(parts)


def markdown(sides: list[Side]) -> str:
    """Headings and tables of the same."""
    lines = [f"# {title(sides)}"]
    differs = asked_differently(sides)
    lines += ["", "## Asked differently", "", _table(differs)] if differs is not None else []
    lines += ["", "## Figures", "", _table(figures(sides))]
    if (own := bands(sides[0], sides[0])).rows:
        lines += ["", f"Bands of {sides[0].name}:", "", _table(own)]
    for other in sides[1:]:
        lines += ["", f"## {other.name} against {sides[0].name}", "", comparison.verdict(sides[0], other)]
        if (own := bands(other, sides[0])).rows:
            lines += ["", _table(own)]
        found = costs(sides[0], other)
        if found is not None:
            lines += ["", comparison.drivers(sides[0], other), "", _table(found)]
    told = comparison.notes(sides)
    lines += ["", "## Notes", "", *(f"- {note}" for note in told)] if told else []
    return "\n".join(lines)


def _table(block: Block) -> str:
    heads = [column.title.replace("/\n", "/").replace("\n", " ") for column in block.columns]
    return "\n\n".join([as_markdown(heads, block.rows), *block.notes])


def title(sides: list[Side]) -> str:
    """What is compared, and what all sides share."""
    first = comparison.asked(sides[0])
    shared = {name: told for name, told in first.items() if all(comparison.asked(s)[name] == told for s in sides)}
    subject = shared.get("model", "plans")
    chips = f" on {shared['devices']} x {shared['chip']}" if {"devices", "chip"} <= set(shared) else ""
    load = [f"{shared[name]} {way}" for name, way in (("prompt", "in"), ("output", "out")) if name in shared]
    load += [shared.get("load", ""), shared.get("engine", "")]
    said = f"{subject}{chips}: {', '.join(part for part in load if part)}"
    return said[0].upper() + said[1:]


def asked_differently(sides: list[Side]) -> Block | None:
    """What the questions do not share."""
    rows = [(name, *told) for name, told in comparison.differences(sides)]
    if not rows:
        return None
    work = [name for name in comparison.WORK if any(row[0] == name for row in rows)]
    notes = (f"The sides were asked for different work ({', '.join(work)}): ratios compare answers, not plans.",)
    return Block("", [text("asked differently"), *(text(side.name) for side in sides)], rows, notes if work else ())


def figures(sides: list[Side]) -> Block:
    """One line for each side."""
    kept = [name for name in SHOWN if any(side.figure(name) is not None for side in sides)]
    columns = [text(""), text("plan"), Column("chips"), *(Column(SHOWN[name][0]) for name in kept)]
    columns.append(Column("tok/s\nin all"))
    rows = []
    for side in sides:
        if side.e is None:
            rows.append([side.name, "nothing feasible", f"{side.devices:,}", *["-"] * len(kept), "-"])
            continue
        used = side.e.strategy.devices
        all_s = side.figure("tok_s_chip")
        cells = [_shown(side.figure(name), SHOWN[name][1]) for name in kept]
        whole = "-" if all_s is None else f"{all_s.value * used:,.0f}"
        rows.append([side.name, side.e.strategy.label(), f"{used:,}", *cells, whole])
    problems = tuple(f"{side.name}: {side.problem}" for side in sides if side.problem)
    return Block("", columns, rows, problems, fold=1)


def _shown(value: Interval | None, how: Callable[[float], str]) -> str:
    return "-" if value is None else how(value.value)


def bands(side: Side, first: Side) -> Block:
    """Each figure of a side with its band, and its ratio to the first side's."""
    columns = [text("figure"), Column("value"), text("80 % band")]
    if side is not first:
        columns += [Column("ratio"), text("range"), text("bands")]
    rows = []
    for name, (head, how) in SHOWN.items():
        if (value := side.figure(name)) is None:
            continue
        cells = [
            head.replace("/\n", "/").replace("\n", "/"),
            how(value.value),
            f"{how(value.low)} to {how(value.high)}",
        ]
        if side is not first:
            cells += _ratio(comparison.ratio(first.figure(name), value))
        rows.append(cells)
    return Block(f"{side.name}:" if side is first else f"{side.name} against {first.name}:", columns, rows)


def _ratio(found: Ratio | None) -> list[str]:
    if found is None:
        return ["-", "", ""]
    together = "overlap" if found.overlap else "apart"
    return [f"{_short(found.value)}x", f"{_short(found.low)} to {_short(found.high)}", together]


def _short(ratio: float) -> str:
    """Three digits, and all those before the point."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def costs(first: Side, other: Side) -> Block | None:
    """What an output token costs on both sides, by group of operators."""
    found = comparison.parts(first, other)
    if not found:
        return None
    whole = sum(p.first_s for p in found)
    large = [p for p in found if max(p.first_s, p.other_s) > LARGE * whole]
    rest = [p for p in found if p not in large]
    rows = [[p.name, *map(_us, (p.first_s, p.other_s)), f"{1e6 * p.more_s:+,.1f}"] for p in large]
    for name, group in ((f"{len(rest)} smaller", rest), ("all", found)):
        if group:
            a, b = sum(p.first_s for p in group), sum(p.other_s for p in group)
            rows.append([name, _us(a), _us(b), f"{1e6 * (b - a):+,.1f}"])
    columns = [text("chip-us per output token"), Column(first.name), Column(other.name), Column("difference")]
    return Block("", columns, rows)


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f}"


def rows(sides: list[Side]) -> list[dict[str, Any]]:
    """One flat row for each side: the columns of `recommend --format csv`, and ratios to the first."""
    out: list[dict[str, Any]] = []
    plans = {id(side): plan_text.plan_rows([side.e])[0] for side in sides if side.e is not None}
    # a figure that one side does not know has no columns for its band there
    keys = dict.fromkeys(key for plan in plans.values() for key in plan if key != "rank")
    for side in sides:
        row: dict[str, Any] = {"name": side.name, "model": side.q.setting.model.name, "chip": side.q.setting.chip.name}
        row |= {"feasible": side.e is not None, "reason": side.problem}
        row |= {key: plans.get(id(side), {}).get(key) for key in keys}
        for name in SHOWN:
            found = comparison.ratio(sides[0].figure(name), side.figure(name))
            row[f"{name}_ratio"] = None if found is None else found.value
        out.append(row)
    return out
