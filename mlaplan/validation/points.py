"""The published points, each whole: what its series says and what is its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlaplan.errors import Problem, SpecError
from mlaplan.specs.source import read
from mlaplan.specs.validate import build
from mlaplan.validation.schema import METRICS, Comparisons, Measurements, Row, Series

if TYPE_CHECKING:
    from mlaplan.specs.source import Document

FOLDER = Path(__file__).resolve().parent / "points"
COMPARISONS = "comparisons.yaml"
PARTS = ("strategy", "workload", "given")  # of which a row changes single entries


@dataclass(frozen=True, slots=True)
class Point:
    """One measured number with all that is known of how it came about."""

    id: str
    set: str
    group: str
    value: float  # SI
    metric: str
    measure: str
    source: str
    grade: str
    use: str
    fitted: bool
    engine: str
    chip: str | None = None
    model: str | None = None
    operator: str | None = None
    software: str | None = None
    release: str | None = None  # of the engine, whose kernels ran
    era: str | None = None
    weights: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    unknown: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    series: str = ""
    not_priced: str | None = None
    note: str | None = None

    @property
    def more_is_better(self) -> bool:
        return METRICS[self.metric][1]


def load(path: str | Path) -> list[Point]:
    """The points of one file; SpecError with every mistake at its place."""
    document = read(path)
    found = build(Measurements, document)
    points = [
        whole(found.set, found.group, series, row) for series in found.series for row in series.points
    ]  # fmt: skip
    _refuse_doubles(document, found)
    return points


def whole(set_: str, group: str, series: Series, row: Row) -> Point:
    """A row together with what its series says."""
    shared, own = series.model_dump(exclude_none=True), row.model_dump(exclude_none=True)
    parts = {name: {**shared.get(name, {}), **own.get(name, {})} for name in PARTS}
    stated = {name for part in PARTS for name in own.get(part, {})}
    unknown = {k: v for k, v in series.unknown.items() if k not in stated} | dict(row.unknown)
    for part in parts.values():
        for name in row.unknown:
            part.pop(name, None)
    return Point(
        id=row.id, set=set_, group=group, value=row.value.si, metric=row.metric or series.metric,
        measure=series.measure, source=series.source, grade=row.grade or series.grade, use=row.use or series.use,
        fitted=series.fitted if row.fitted is None else row.fitted, engine=series.engine,
        chip=row.chip or series.chip, model=series.model, operator=row.operator or series.operator,
        software=series.software, release=series.release, era=series.era,
        weights=dict(series.weights), figures=dict(series.figures), unknown=unknown,
        claims=row.claims.model_dump(exclude_none=True), series=series.name,
        not_priced=series.not_priced, note=row.note or series.note, **parts,
    )  # fmt: skip


def _refuse_doubles(document: Document, found: Measurements) -> None:
    seen: set[str] = set()
    problems: list[Problem] = []
    for i, series in enumerate(found.series):
        for j, row in enumerate(series.points):
            if row.id in seen:
                at = ("series", i, "points", j, "id")
                problems.append(document.problem(at, f"the id '{row.id}' is taken", expected="each id once"))
            seen.add(row.id)
    if problems:
        raise SpecError(problems)


@lru_cache(maxsize=1)
def published() -> tuple[Point, ...]:
    """All committed points, in the order of the files."""
    files = sorted(path for path in FOLDER.glob("*.yaml") if path.name != COMPARISONS)
    return tuple(point for path in files for point in load(path))


@lru_cache(maxsize=1)
def comparisons() -> Comparisons:
    """The committed ratios and decisions; every id they name is a point."""
    document = read(FOLDER / COMPARISONS)
    found = build(Comparisons, document)
    known = {point.id for point in published()}
    problems = []
    named: list[tuple[tuple[str | int, ...], str]] = [
        (("ratios", i, side), getattr(r, side)) for i, r in enumerate(found.ratios) for side in ("of", "to")
    ]
    named += [
        (("decisions", i, "alternatives", j), name)
        for i, d in enumerate(found.decisions) for j, name in enumerate(d.alternatives)
    ]  # fmt: skip
    for at, name in named:
        if name not in known:
            problems.append(document.problem(at, f"no point has the id '{name}'", expected="the id of a point"))
    if problems:
        raise SpecError(problems)
    return found
