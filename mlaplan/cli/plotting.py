"""What `plot` does with its arguments: rows or a question to a figure, and what does not go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlaplan.cli.answers import OVERRIDES, PINS
from mlaplan.cli.questions import tell
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError, did_you_mean
from mlaplan.report.plots import KINDS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mlaplan.plan import Recommendation
    from mlaplan.rules.rule import Question
    from mlaplan.workload import Overrides

WIDTHS = {"column": 3.3, "full": 7.0}
ROWS = (".csv", ".jsonl", ".ndjson", ".parquet", ".pq")
OF_ROWS = ("x", "y", "by", "where")
SHARED = ("subjects", "kind", "width", "file")
MOST_COUNTS = 16


# ---- what goes together ----


def is_rows(names: Sequence[str]) -> bool:
    """Whether the arguments name the rows of a sweep; refuses what is neither that nor a question."""
    if len(names) == 1 and Path(names[0]).suffix.lower() in ROWS:
        return True
    if len(names) == 2:
        return False
    if len(names) == 1:
        raise MlaplanError(
            f"{names[0]}: expected rows of a sweep, a name that ends in {', '.join(ROWS)}, or MODEL CHIP"
        )
    raise MlaplanError("expected FILE, the rows of a sweep, or MODEL CHIP")


def known_kind(kind: str | None) -> str | None:
    """The kind by name."""
    if kind is not None and kind not in KINDS:
        parts = [f"--kind {kind}: expected one of {', '.join(KINDS)}", did_you_mean(kind, KINDS)]
        raise MlaplanError("; ".join(part for part in parts if part))
    return kind


def check_options(given: Mapping[str, Any], of_rows: bool) -> None:
    """Refuses options of rows with a question, and the other way round."""
    for name, value in given.items():
        if value is None or value == 0 or name in SHARED or (name in OF_ROWS) == of_rows:
            continue
        flag = "--set" if name == "settings" else f"--{name.replace('_', '-')}"
        other = "the rows of a sweep" if name in OF_ROWS else "a question, MODEL CHIP"
        raise MlaplanError(f"{flag} goes with {other}")


# ---- rows ----


def rows(path: str, where: Sequence[str]) -> pd.DataFrame:
    """The rows of a file that have the values asked for."""
    from mlaplan.report.plots import frames
    from mlaplan.sweep.rows import read

    frame = read(path)
    for text in where:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise MlaplanError(f"--where {text}: expected COLUMN=VALUE such as isl=4k")
        frame = frames.chosen(frame, name, value)
    return frame


def of_rows(
    path: str, kind: str, where: Sequence[str], axes: tuple[str | None, str | None, list[str] | None], width: float
) -> Figure:
    """One kind."""
    from mlaplan.report.plots import sweeps

    x, y, by = axes
    return sweeps.one(rows(path, where), kind, width, x, y, by)


def all_of_rows(path: str, where: Sequence[str], folder: str, width: float) -> int:
    """Every kind that the rows allow; stderr names the files and the reasons for what is missing."""
    from mlaplan.report.plots import draw_sweep

    if Path(folder).suffix:
        raise MlaplanError(f"-o {folder}: without --kind all kinds are drawn; expected a folder")
    drawn = draw_sweep(rows(path, where), folder, width=width)
    tell(str(one) for one in drawn)
    return EXIT_OK if any(one.path for one in drawn) else EXIT_FINDINGS


# ---- a question ----


def of_question(names: Sequence[str], kind: str, given: Mapping[str, Any], width: float) -> Figure | None:
    """The picture of the best plan; None, told, where nothing is feasible."""
    if kind == "heatmap":
        raise MlaplanError("heatmap: one question is one cell; sweep first: mlaplan sweep ... -o rows.csv")
    counts = _counts(given["devices"], kind)
    factor = given["factor"]
    if factor is not None and kind != "sensitivity":
        raise MlaplanError(f"--factor goes with --kind sensitivity, not {kind}")
    if factor is not None and not 1.0 < factor <= 100:
        raise MlaplanError(f"--factor {factor:g}: expected a number above 1 and up to 100")
    if kind == "pareto" and given["objective"] is not None:
        raise MlaplanError("--objective is not for a pareto, which shows what no plan beats in both")
    q, pins, own = _asked(names, given, counts)
    objective = "pareto" if kind == "pareto" else given["objective"].value if given["objective"] else "throughput"
    found = {n: _recommended(q, n, objective, pins, own) for n in counts}
    if not any(f.plans for f in found.values()):
        tell([_nothing(q, n, f) for n, f in found.items()])
        return None
    if kind == "scaling":
        from mlaplan.report.plots import scaling

        tell(_nothing(q, n, f) for n, f in found.items() if not f.plans)
        return scaling.figure(scaling.of_counts(q, {n: f.plans[0] for n, f in found.items() if f.plans}), width)
    return _of_plans(q, kind, counts[0], found[counts[0]], (objective, pins, own, factor), width)


def _counts(devices: str | None, kind: str) -> list[int]:
    """Numbers of chips: one, or for scaling several."""
    if devices is None:
        raise MlaplanError("a question needs --devices N, the chips to plan for")
    parts = [part.strip() for part in devices.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 1_000_000 for part in parts):
        raise MlaplanError(f"--devices {devices}: expected whole numbers such as 16, or 8,16,32")
    counts = sorted({int(part) for part in parts})
    if kind == "scaling" and not 2 <= len(counts) <= MOST_COUNTS:
        raise MlaplanError(
            f"--devices {devices}: scaling needs 2 to {MOST_COUNTS} numbers of chips, such as 8,16,32,64"
        )
    if kind != "scaling" and len(counts) > 1:
        raise MlaplanError(f"--devices {devices}: several numbers of chips are for --kind scaling")
    return counts


def _asked(
    names: Sequence[str], given: Mapping[str, Any], counts: Sequence[int]
) -> tuple[Question, dict[str, Any], Overrides]:
    """Question, pinned columns and the user's own values, as `recommend` takes them."""
    from mlaplan.cli import questions, strategies
    from mlaplan.cli.recommend import ISL, OSL
    from mlaplan.plan import question

    lengths = [questions.tokens(f"--{n}", given[n]) if given[n] else d for n, d in (("isl", ISL), ("osl", OSL))]
    load = {name: given[name] for name in ("concurrency", "rate", "prefix", "ttft", "tpot")}
    work = questions.workload(*lengths, **load)
    pins = strategies.given(**{name: given[name] for name in PINS})
    for n in counts:
        strategies.check_pins(pins, n)
    own = questions.overrides(**{name: given[name] for name in OVERRIDES})
    subject = questions.subject(names[0], names[1], given["engine"], given["settings"])
    questions.check_drafts(subject.model, given["mtp"], given["mtp_accept"])
    strategies.check_precision(subject, pins)
    strategies.check_merge(own, pins.get("dcp"))
    taken = [f"--{n} {v}" for n, v in zip(("isl", "osl"), lengths, strict=True) if given[n] is None]
    if taken:
        tell([f"not given and taken: {' '.join(taken)}"])
    return question(subject.chip, subject.model, subject.profile, work, own), pins, own


def _recommended(q: Question, devices: int, objective: str, pins: Mapping[str, Any], own: Overrides) -> Recommendation:
    from mlaplan.plan import recommend

    found = recommend(q, devices, objective=objective, fixed=pins, given=own)
    if found.considered == 0:
        pinned = ", ".join(f"{name} {value}" for name, value in pins.items())
        raise MlaplanError(f"no structure on {devices} chips has all that is pinned: {pinned}")
    return found


def _nothing(q: Question, devices: int, found: Recommendation) -> str:
    """Why there is no plan, in one line."""
    miss = found.nearest_miss
    said = f"nothing is feasible on {devices} x {q.setting.chip.name}"
    return f"{said}; nearest {miss.strategy.label()}: {miss.code} {miss.slug}: {miss.detail}" if miss else said


def _of_plans(
    q: Question, kind: str, devices: int, found: Recommendation, more: tuple[str, Any, Overrides, float | None],
    width: float,
) -> Figure:  # fmt: skip
    from mlaplan.report.plots import breakdown, memory, pareto, roofline, sensitivity, timeline

    objective, pins, own, factor = more
    best = found.plans[0]
    if kind == "pareto":
        return pareto.figure(pareto.of_answer(q, devices, found), width)
    if kind == "roofline":
        return roofline.figure(roofline.of_plan(q, best), width)
    if kind == "breakdown":
        return breakdown.figure(breakdown.of_plans(q, found.plans, devices), width)
    if kind == "timeline":
        return timeline.figure(timeline.of_plan(q, best), width)
    if kind == "memory":
        from mlaplan.report.why import why

        held = why(q, found.plans, own.tokens_per_step).held
        return memory.figure(memory.of_layouts(q, [h.strategy for h in held], devices=devices), width)
    factors = sensitivity.FACTORS if factor is None else (1.0 / factor, factor)
    data = sensitivity.of_plan(q, devices, best, objective=objective, pins=pins, given=own, factors=factors)
    return sensitivity.figure(data, width)
