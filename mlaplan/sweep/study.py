"""A study: the axes of a sweep, what is kept of each point, and what the user knows better, all checked at once.

From options or from a YAML file, whose keys are the options' names:

    kind: study
    model: deepseek-v3
    chips: [h100-sxm, h200-sxm]
    devices: 8,16,32
    isl: 1k:128k:log8
    concurrency: 1:4096:x2
    tpot: 60ms
    set: {scale_out.bandwidth: "x0.5,x1,x2"}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, NamedTuple

from mlaplan import __version__, units
from mlaplan.errors import MlaplanError, Problem, SpecError, did_you_mean
from mlaplan.specs import source
from mlaplan.sweep import grammar, rows, specs
from mlaplan.sweep.fields import FIELDS, ORDER, PINS, Field, count
from mlaplan.sweep.grammar import AxisError
from mlaplan.sweep.specs import Figure, Sources
from mlaplan.workload import Overrides

KIND = "study"
OBJECTIVES = ("throughput", "latency", "cost")
PLANS = ("best", "pareto", "all")
DEFAULTS = {"isl": 4096, "osl": 1024, "engine": "generic"}
OVERRIDES = {
    "memory_fraction": "fraction", "reserve": "bytes", "price": "usd/h", "imbalance": "count", "mtp_accept": "count",
}  # fmt: skip
WORDS = {"objective": OBJECTIVES, "plans": PLANS, "dcp_merge": ("ag_rs", "a2a")}
COUNTS = {"redundant_experts": 0, "dcp_interleave": 1, "shared_ranks": 0}  # the least of each
FLAGS = ("gather_only",)
KEYS = ("kind", *FIELDS, "set", *WORDS, *OVERRIDES, *COUNTS, *FLAGS)
MOST_POINTS = 100_000_000


class Asked(NamedTuple):
    """One thing that is given, and where: an option's name, or a place in a file."""

    value: Any
    place: Problem

    def problem(self, error: AxisError) -> Problem:
        return self.place._replace(message=error.problem, expected=error.expected, hint=error.hint)

    def told(self, message: str, expected: str | None = None, hint: str | None = None) -> Problem:
        return self.place._replace(message=message, expected=expected, hint=hint)


class Axis(NamedTuple):
    """One column of what is asked, with its values in order."""

    name: str
    kind: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Study:
    """Axes, slowest first; those with one value hold what is the same everywhere."""

    axes: tuple[Axis, ...]
    figures: tuple[Figure, ...]
    sources: Sources
    objective: str
    plans: str
    given: Overrides

    @property
    def size(self) -> int:
        """Points."""
        return prod(len(axis.values) for axis in self.axes)

    @property
    def loads(self) -> int:
        """Neighbouring points that differ only in limits and load."""
        return prod(len(axis.values) for axis in self.axes[-4:])

    def point(self, index: int) -> dict[str, Any]:
        """The values of one point by column; the last axis varies fastest."""
        out: dict[str, Any] = {}
        for axis in reversed(self.axes):
            index, i = divmod(index, len(axis.values))
            out[axis.name] = axis.values[i]
        return out

    def values(self, name: str) -> tuple[Any, ...]:
        """The values along an axis."""
        return next(axis.values for axis in self.axes if axis.name == name)

    def varying(self) -> list[Axis]:
        """Axes along which something changes."""
        return [axis for axis in self.axes if len(axis.values) > 1]

    @property
    def columns(self) -> tuple[rows.Column, ...]:
        """Columns of the rows."""
        known = {column.name for column in rows.IDENTITY}
        return rows.columns([rows.Column(a.name, a.kind) for a in self.axes if a.name not in known])

    def settings(self, point: Mapping[str, Any], owner: str) -> tuple[str, ...]:
        """Overrides of the chip or the model at a point."""
        return tuple(
            text
            for f in self.figures
            if f.owner == owner
            for text in f.settings(f.values.index(point[f.column]))
        )  # fmt: skip

    def digest(self) -> str:
        """One number for the whole question: what is asked, what is read, and what answers it."""
        import numpy as np

        told = {
            "axes": [[a.name, a.kind, list(a.values)] for a in self.axes],
            "figures": [[f.owner, list(f.paths), list(f.texts)] for f in self.figures],
            "objective": self.objective,
            "plans": self.plans,
            "given": repr(self.given),
            "files": self.sources.digests(),
            "versions": [__version__, np.__version__],
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


# ---- reading ----


def of_options(given: Mapping[str, Any], settings: Iterable[str] = ()) -> dict[str, Asked]:
    """What options ask for, by key; None is not given. settings: texts `path=values`."""
    out: dict[str, Asked] = {}
    for name, value in given.items():
        if value is not None:
            shown = name.upper() if name in ("model", "chips") else "--" + name.replace("_", "-")
            out[name] = Asked(value, Problem(shown, None, None, ""))
    for text in settings:
        path, equals, values = (part.strip() for part in text.partition("="))
        if not path or not equals or not values:
            raise MlaplanError(
                f"--set {text}: is not an assignment; expected path=values, such as memory.bandwidth=x0.9,x1"
            )
        out[f"set {path}"] = Asked(values, Problem(f"--set {text}", None, None, ""))
    return out


def of_file(path: str) -> dict[str, Asked]:
    """What a YAML file asks for, by key."""
    document = source.read(path)
    problems = [_unknown(document, key) for key in document.data if key not in KEYS]
    kind = document.data.get("kind")
    if kind != KIND:
        found = f"the kind is '{kind}'" if kind is not None else "missing key 'kind'"
        problems.insert(0, document.problem(("kind",) if kind is not None else (), found, expected=f"kind: {KIND}"))
    out: dict[str, Asked] = {}
    for key, value in document.data.items():
        if key == "set":
            if not isinstance(value, dict):
                problems.append(document.problem((key,), "set: no mapping of paths", expected="path: values"))
                continue
            for figure, values in value.items():
                out[f"set {figure}"] = _in(document, ("set", figure), values)
        elif key in KEYS and key != "kind":
            out[key] = _in(document, (key,), value)
    if problems:
        raise SpecError(problems)
    return out


def _in(document: source.Document, path: source.Path_, value: Any) -> Asked:
    return Asked(value, document.problem(path, ""))


def _unknown(document: source.Document, key: str) -> Problem:
    hint = did_you_mean(key, KEYS)
    expected = None if hint else f"one of {', '.join(KEYS)}"
    return document.problem((key,), f"unknown key '{key}'", expected=expected, hint=hint, at_key=True)


# ---- building ----


def build(asked: Mapping[str, Asked]) -> Study:
    """The study, or one SpecError with every mistake in what was asked."""
    problems: list[Problem] = []
    axes: dict[str, tuple[Any, ...]] = {}
    for name in ORDER:
        found = _values(FIELDS[name], asked.get(name), problems)
        if found is not None:
            axes[name] = found
    for name, wanted in (("model", "a MODEL"), ("chips", "at least one CHIP"), ("devices", "--devices")):
        if name not in asked:
            told = f"no {name} is given" if name != "chips" else "no chip is given"
            problems.append(Problem("sweep", None, None, told, f"{wanted}, or '{name}:' in a study"))
    if axes.get("rate", (None,)) != (None,) and axes.get("concurrency", (None,)) != (None,):
        problems.append(asked["rate"].told("rate and concurrency both fix the load", "one of them"))
    words = {key: _one_of(key, choices, asked.get(key), problems) for key, choices in WORDS.items()}
    given = _overrides(asked, words["dcp_merge"], problems)
    if problems:
        raise SpecError(problems)
    models, chips, engines = axes["model"], axes["chips"], axes["engine"]
    specs.refuse_swapped(models[0], chips)
    sources = _sources(asked, models, chips, engines)
    figures = _figures(asked, models, chips)
    study = Study(
        _ordered(axes, figures), figures, sources, words["objective"] or "throughput", words["plans"] or "best", given
    )
    _check_figures(study, asked)
    if study.size > MOST_POINTS:
        raise MlaplanError(f"{study.size:,} points are too many; expected at most {MOST_POINTS:,}")
    return study


def _values(field: Field, asked: Asked | None, problems: list[Problem]) -> tuple[Any, ...] | None:
    """Values of a field; where it is not given its default, or None for a pin."""
    if asked is None:
        if field in PINS:
            return None
        return (0 if field.name == "prefix" else DEFAULTS.get(field.name),)
    try:
        return tuple(grammar.values(asked.value, field.read, whole=field.whole, ranges=field.ranges))
    except AxisError as error:
        problems.append(asked.problem(error))
    return None


def _one_of(name: str, choices: tuple[str, ...], asked: Asked | None, problems: list[Problem]) -> str | None:
    if asked is None:
        return None
    if asked.value not in choices:
        hint = did_you_mean(asked.value, choices) if isinstance(asked.value, str) else None
        problems.append(asked.told(f"'{asked.value}' is no {name}", f"one of {', '.join(choices)}", hint))
    return str(asked.value)


def _overrides(asked: Mapping[str, Asked], merge: str | None, problems: list[Problem]) -> Overrides:
    """What the user knows better; one value each."""
    found: dict[str, Any] = {}
    for name, dimension in OVERRIDES.items():
        if name not in asked:
            continue
        try:
            value = units.parse(asked[name].value, dimension)
            if not isfinite(value) or (dimension == "count" and value > 1e6):
                raise units.UnitError(f"{asked[name].value} is too large to be real", units.expected(dimension))
            found[name] = value
        except units.UnitError as error:
            problems.append(asked[name].told(error.problem, error.expected, error.hint))
        except (TypeError, AttributeError):
            problems.append(asked[name].told(f"{name} takes one value", units.expected(dimension)))
    for name, least in COUNTS.items():
        if name in asked:
            try:
                found[name] = count(least)(str(asked[name].value))
            except AxisError as error:
                problems.append(asked[name].problem(error))
    for name in FLAGS:
        if name in asked and not isinstance(asked[name].value, bool):
            problems.append(asked[name].told(f"{name} is '{asked[name].value}'", "true or false"))
    try:
        return Overrides(
            found.get("memory_fraction"), found.get("reserve"), found.get("price"), found.get("imbalance"),
            found.get("mtp_accept"), found.get("redundant_experts", 0), merge,
            found.get("dcp_interleave"), found.get("shared_ranks", 0),
            "gather_only" in asked and asked["gather_only"].value is True,
        )  # fmt: skip
    except MlaplanError as error:
        place = next(
            (asked[name] for name in OVERRIDES if name in asked and name.replace("_", "-") in str(error)), None
        )
        text = str(error) if place is None else str(error).partition(": ")[2]
        problems.append(Problem("sweep", None, None, text) if place is None else place.told(text))
        return Overrides()


def _sources(
    asked: Mapping[str, Asked], models: tuple[str, ...], chips: tuple[str, ...], engines: tuple[str, ...]
) -> Sources:
    """The files of models, chips and engines; those of a name that is not known are told by their place."""
    problems: list[Problem] = []
    for key, names in (("engine", engines), ("model", models), ("chips", chips)):
        for name in names:
            try:
                _find(key, name)
            except SpecError as error:
                problems += error.problems
            except MlaplanError as error:  # of an unknown name with the nearest one first, then the long list
                problems.append(asked[key].told(str(error)))
    if problems:
        raise SpecError(problems)
    return specs.read(models, chips, engines)


def _find(key: str, name: str) -> None:
    from mlaplan.specs import lookup

    if key == "engine":
        specs.profile(name)
    elif key == "model":
        lookup.load_model(name)
    else:
        lookup.load_chip(name)


def _figures(asked: Mapping[str, Asked], models: tuple[str, ...], chips: tuple[str, ...]) -> tuple[Figure, ...]:
    out: dict[str, Figure] = {}
    problems: list[Problem] = []
    for key, one in asked.items():
        if not key.startswith("set "):
            continue
        try:
            found = specs.figure(key.removeprefix("set "), one.value, models[0], chips[0])
            if found.column in out:
                raise AxisError(f"{found.column} is given twice")
            out[found.column] = found
        except AxisError as error:
            problems.append(one.problem(error))
    if problems:
        raise SpecError(problems)
    return tuple(out.values())


def _check_figures(study: Study, asked: Mapping[str, Asked]) -> None:
    """Reads every chip and model with every value of every figure, one at a time, and tells what is refused."""
    problems: dict[str, Problem] = {}
    places = [one for key, one in asked.items() if key.startswith("set ")]
    for f, place in zip(study.figures, places, strict=True):
        for name in study.values(f.owner):
            for i in range(len(f.values)):
                try:
                    if f.owner == "chip":
                        study.sources.chip(name, f.settings(i), study.values("engine")[0])
                    else:
                        study.sources.model(name, f.settings(i))
                except SpecError as error:
                    for p in error.problems:
                        own = p.file.startswith("--set")
                        told = place.told(f"{p.message} ({name}, {f.texts[i]})", p.expected, p.hint) if own else p
                        problems.setdefault(told.text(), told)
    if problems:
        raise SpecError(list(problems.values()))


def _ordered(axes: Mapping[str, tuple[Any, ...]], figures: tuple[Figure, ...]) -> tuple[Axis, ...]:
    out: list[Axis] = []
    for name in ORDER:
        if name not in axes:
            continue
        field = FIELDS[name]
        out.append(Axis(field.column, field.kind, axes[name]))
        owner = {"model": "model", "chips": "chip"}.get(name)
        out += [Axis(f.column, f.kind, f.values) for f in figures if f.owner == owner]
    return tuple(out)
