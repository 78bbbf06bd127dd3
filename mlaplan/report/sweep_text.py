"""A sweep in eighty columns: what was asked, the best of it, and where the best strategy changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlaplan import units
from mlaplan.report import borders, tables
from mlaplan.report.borders import Border, Driver

if TYPE_CHECKING:
    import pandas as pd

    from mlaplan.sweep.run import Outcome
    from mlaplan.sweep.study import Study

MOST_BORDERS = 5
MOST_ROWS = 12
TIMES = ("ttft_limit_s", "tpot_limit_s")
NAMES = {"ttft_limit_s": "TTFT limit", "tpot_limit_s": "TPOT limit"}


def summary(study: Study, outcome: Outcome, file: str) -> str:
    """The whole summary; of all plans or fronts only the counts."""
    blocks = [_head(study, outcome)]
    if study.plans == "best":
        from mlaplan.sweep.rows import read

        frame = read(file)
        blocks += [_best(study, frame), explained(study, frame)]
    return "\n\n".join(block for block in blocks if block)


def _head(study: Study, outcome: Outcome) -> str:
    varying = study.varying()
    steps = ", ".join(f"{_axis_name(a.name)} {_span(a.name, a.values)}" for a in varying) or "nothing varies"
    what = {"best": "the best plan of each", "pareto": "the Pareto front of each", "all": "all plans of each"}
    lines = [
        tables.wrapped(f"{outcome.points:,} points, {what[study.plans]} by {study.objective}", label="sweep    "),
        tables.wrapped(steps, label="axes     "),
        tables.wrapped(_priced(outcome), label="priced   "),
    ]
    return "\n".join(lines)


def _priced(outcome: Outcome) -> str:
    text = f"{outcome.priced:,} strategies"
    return text + (f"; {outcome.kept:,} points were there already" if outcome.kept else "")


def _span(name: str, values: Sequence[Any]) -> str:
    if len(values) <= 3 or isinstance(values[0], str):
        return ", ".join(_value(name, value) for value in values)
    return f"{_value(name, values[0])} to {_value(name, values[-1])} in {len(values)} steps"


def _axis_name(name: str) -> str:
    return NAMES.get(name, name)


def _value(name: str, value: Any) -> str:
    if value is None:
        return "any"
    if name in TIMES:
        return units.format_seconds(value)
    if isinstance(value, float):
        return f"x{value:g}" if name.endswith(".factor") else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---- the best of it ----


def _best(study: Study, frame: pd.DataFrame) -> str:
    """For each model and chip, with its figures, the best point and how many have a plan."""
    by = [a.name for a in study.varying() if a.name in ("model", "chip", "engine") or "." in a.name] or ["chip"]
    header = [*by, "points", "with plan", "tok/s/chip", "TPOT", "best plan", "at"]
    rows = []
    others = [a.name for a in study.varying() if a.name not in by]
    for values, group in frame.groupby(by, sort=False):
        good = group[group["feasible"]]
        line = [*(_value(n, _python(v)) for n, v in zip(by, values, strict=True)), f"{len(group):,}", f"{len(good):,}"]
        if len(good):
            row = good.iloc[int(_score(study, good).to_numpy().argmax())]
            at = ", ".join(f"{_axis_name(n)} {_value(n, _python(row[n]))}" for n in others)
            tpot = "-" if row["tpot_s"] != row["tpot_s"] else units.format_seconds(float(row["tpot_s"]))
            line += [f"{row['tok_s_chip']:,.0f}", tpot, str(row["label"]), at]
        else:
            line += ["-", "-", "none", "-"]
        rows.append(line)
    shown = rows[:MOST_ROWS]
    text = tables.aligned([line[:-1] for line in shown], header=header[:-1])
    for one in shown:
        if one[-1] not in ("", "-"):
            text += "\n" + tables.wrapped(f"{' '.join(one[: len(by)])}: at {one[-1]}")
    return text + (f"\n{len(rows) - MOST_ROWS} more in the file" if len(rows) > MOST_ROWS else "")


def _score(study: Study, frame: pd.DataFrame) -> pd.Series[float]:
    if study.objective == "latency":
        return -(frame["ttft_s"] + (frame["osl"].astype(float) - 1) * frame["tpot_s"].fillna(0.0))
    return frame["tok_s_chip"]


def _python(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


# ---- where the best strategy changes ----


def explained(study: Study, frame: pd.DataFrame) -> str:
    """How often the best structure changes along each axis, the most frequent borders, and what drives them."""
    from mlaplan.sweep.points import Points

    moved = borders.moved(study, frame)
    if not moved or not frame["feasible"].any():
        return ""
    table = tables.aligned(
        [[_axis_name(m.axis), f"{m.neighbours:,}", f"{m.changes:,}", _percent(m.changes, m.neighbours)] for m in moved],
        header=["along", "neighbours", "another is best", "share"],
    )
    blocks = [f"WHERE THE BEST STRATEGY CHANGES\n{table}"]
    points, found = Points(study), borders.borders(study, frame)
    for border in found[:MOST_BORDERS]:
        blocks.append(tables.wrapped(words(border, borders.driver(points, frame, border)), label="- ").rstrip())
    if len(found) > MOST_BORDERS:
        blocks.append(f"and {len(found) - MOST_BORDERS} more borders")
    return "\n".join(blocks)


def words(border: Border, driver: Driver | None) -> str:
    """One border in words: where, what gives way to what, and what drives it."""
    name = _axis_name(border.axis)
    times = "once" if border.times == 1 else f"{border.times} times"
    text = (
        f"{border.before} gives way to {border.after} {times} along {name}, as between "
        f"{_value(border.axis, border.below)} and {_value(border.axis, border.above)}"
    )
    if driver is None:
        return text + "."
    if driver.gaps is None:
        return f"{text}. Driver: {driver.what}."
    below, above = (f"{100 * abs(gap):.2g} % {'more' if gap > 0 else 'less'}" for gap in driver.gaps)
    return (
        f"{text}. Driver: {driver.what}, on which the first spends {below} below and {above} above, "
        "in parts of the other's whole cost."
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"
