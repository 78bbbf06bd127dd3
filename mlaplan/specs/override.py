"""`--set path=value` and `--set path=x0.5`: figures of a chip that the user knows better, or wants to vary.

Applied to the data before validation, so that an override is held to the same rules as the file. A figure so
changed has the confidence `assumed` and a source that says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from mlaplan import units
from mlaplan.errors import Problem, SpecError, did_you_mean
from mlaplan.specs import source
from mlaplan.specs.places import Loc, dotted, field_type, figure_of, keys_at, quantity_of
from mlaplan.specs.spec import Spec

_FACTOR = re.compile(r"[x×*]\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)")
_FIT_KEYS = (
    "compute", "memory", "floor", "norm", "wave", "split", "ramp", "row", "active", "stored", "longest", "passes",
    "tile", "fill", "supply", "quantise", "store", "alpha", "bandwidth", "knee",
)  # fmt: skip
# what says which chip or model a file is: answers carry it, so it is no figure to vary
_IDENTITY = ("kind", "name", "names", "served_names", "title", "vendor", "unit", "source", "notes", "published")
_USAGE = "path=value or path=x0.5, such as memory.bandwidth='4 TB/s'"


def apply(document: source.Document, spec: type[Spec], overrides: Sequence[str]) -> None:
    """Changes the document's data in place; raises one SpecError with the mistakes of all overrides."""
    problems: list[Problem] = []
    for text in overrides:
        try:
            _Override(document, spec, text).apply()
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)


def place(document: source.Document, spec: type[Spec], path: str) -> Any:
    """The type that stands at a path, for what varies it; a SpecError where there is no such figure."""
    return field_type(spec, _Override(document, spec, f"{path}=_").path())


class _Override:
    def __init__(self, document: source.Document, spec: type[Spec], text: str) -> None:
        self.document = document
        self.spec = spec
        self.flag = f"--set {text}"
        path_text, equals, self.value_text = (part.strip() for part in text.partition("="))
        if not equals or not path_text or not self.value_text:
            raise self.error(f"'{text}' is not an assignment", _USAGE)
        self.steps = [step for step in re.split(r"[.\[\]]+", path_text) if step]
        if self.steps[:1] == [str(document.data.get("kind"))]:
            del self.steps[0]
        if not self.steps:
            raise self.error(f"'{path_text}' names no figure", _USAGE)

    def apply(self) -> None:
        path = self.path()
        if path[0] in _IDENTITY:
            kind = self.document.data.get("kind")
            raise self.error(
                f"{path[0]} says which {kind} this is, and is no figure", f"a figure; or a {kind} file of its own"
            )
        here = field_type(self.spec, path)
        if len(path) > 1 and path[-1] == "value" and figure_of(field_type(self.spec, path[:-1])):
            path = path[:-1]
            here = field_type(self.spec, path)
        self._fill_in_fit(path)
        factor = _FACTOR.fullmatch(self.value_text)
        if factor:
            self.scale(path, here, float(factor[1]))
        else:
            self.set(path, here)
        owner = path[:-1] if figure_of(field_type(self.spec, path[:-1])) else path
        self.document.overrides[owner] = self.flag
        self._note_fit(path)

    def path(self) -> Loc:
        """The steps as a path into the data; every key must be one that the spec knows."""
        path: Loc = ()
        for step in self.steps:
            around = self.document.get(path)
            if isinstance(around, list):
                path = (*path, self.index(path, around, step))
                continue
            known = keys_at(self.spec, path) or (list(around) if isinstance(around, dict) else [])
            if step not in known:
                known = known if path else [key for key in known if key not in _IDENTITY]
                inside = f" in {dotted(path)}" if path else ""
                message = f"no figure '{step}'{inside}" if known else f"{dotted(path)} holds no further figures"
                raise self.error(message, f"one of {', '.join(known)}" if known else None, did_you_mean(step, known))
            path = (*path, step)
        return path

    def index(self, path: Loc, items: list[Any], step: str) -> int:
        names = [str(item.get("name")) if isinstance(item, dict) else str(i) for i, item in enumerate(items)]
        if step in names:
            return names.index(step)
        if step.isdigit() and int(step) < len(items):
            return int(step)
        expected = f"one of {', '.join(names)}, or an index below {len(items)}"
        raise self.error(f"no entry '{step}' in {dotted(path)}", expected, did_you_mean(step, names))

    def set(self, path: Loc, here: Any) -> None:
        value = self.read()
        if figure_of(here) is not None and not isinstance(value, dict):
            value = {"value": value, "source": "set on the command line", "confidence": "assumed"}
        self.put(path, value)

    def scale(self, path: Loc, here: Any, factor: float) -> None:
        """Multiplies a figure with its bounds, a bare quantity, or a list of quantities."""
        if not math.isfinite(factor) or factor <= 0:
            raise self.error(f"the factor {factor:g} is not above zero", "a factor such as x0.5")
        old = self.document.get(path)
        if old is None:
            raise self.error(f"{dotted(path)} has no value to multiply", "a value with its unit")
        if figure_of(here) is not None and isinstance(old, dict):
            new = dict(old)
            for key in ("value", "low", "high"):
                if old.get(key) is not None:
                    new[key] = self.scaled((*path, key), old[key], factor)
            new["source"] = f"x{factor:g} on the command line, of: {old.get('source', 'no source')}"
            new["confidence"] = "assumed"
            self.put(path, new)
        elif isinstance(old, list):
            self.put(path, [self.scaled((*path, i), item, factor) for i, item in enumerate(old)])
        else:
            self.put(path, self.scaled(path, old, factor))

    def scaled(self, path: Loc, old: Any, factor: float) -> Any:
        quantity = quantity_of(field_type(self.spec, path))
        if quantity is None:
            raise self.error(f"{dotted(path)} is not a quantity that a factor could multiply", "a value")
        try:
            return quantity.text(units.parse(old, quantity.dimension) * factor)
        except (units.UnitError, TypeError):
            raise self.error(f"{dotted(path)} cannot be multiplied, its value is not readable") from None

    def read(self) -> Any:
        """The value text by the rules of the file's own syntax."""
        try:
            return source.parse(f"value: {self.value_text}", self.flag).data["value"]
        except SpecError:
            raise self.error(
                f"the value '{self.value_text}' cannot be read", "a value as it would stand in YAML"
            ) from None

    def put(self, path: Loc, value: Any) -> None:
        here = self.document.data
        for step in path[:-1]:
            if isinstance(here, dict) and here.get(step) is None:
                here[step] = {}
            here = here[step]
            if not isinstance(here, dict | list):
                raise self.error(f"{dotted(path[:-1])} is not a mapping in this file", "a mapping")
        here[path[-1]] = value

    def _fill_in_fit(self, path: Loc) -> None:
        """Changing one number of a fit the chip does not have starts from the default of its class."""
        if len(path) < 4 or path[0] != "efficiency" or self.document.get(path[:3]) is not None:
            return
        from mlaplan.specs.defaults import default_kernel

        fit = default_kernel(str(self.document.data.get("class")), str(path[1]), str(path[2]))
        self.put(path[:3], fit.model_dump(mode="json", exclude_none=True))

    def _note_fit(self, path: Loc) -> None:
        """A fit with one number changed is no longer what its source says."""
        fit = self.document.get(path[:-1])
        name = path[-1]
        if isinstance(fit, list):  # one entry of a column
            name, fit = path[-2], self.document.get(path[:-2])
        if name in _FIT_KEYS and isinstance(fit, dict) and "source" in fit and "residual" in fit:
            fit["source"] = f"{name} set on the command line; the rest: {fit['source']}"
            fit["confidence"] = "assumed"

    def error(self, message: str, expected: str | None = None, hint: str | None = None) -> SpecError:
        return SpecError([Problem(self.flag, None, None, message, expected, hint)])
