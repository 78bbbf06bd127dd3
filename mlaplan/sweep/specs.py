"""Models, chips and engines of a sweep, with figures changed: read once, each with its mistakes told at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan import units
from mlaplan.errors import MlaplanError, SpecError, did_you_mean
from mlaplan.specs import lookup, override, source
from mlaplan.specs.chip import Chip
from mlaplan.specs.model import Model
from mlaplan.specs.places import alternatives, child_type, figure_of, keys_at, quantity_of
from mlaplan.specs.shipped import is_shipped
from mlaplan.specs.spec import Spec
from mlaplan.sweep import grammar
from mlaplan.sweep.grammar import AxisError

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile

FACTOR = ".factor"
PARTS = ("attention", "ffn")  # of a model, whose kinds have names that differ between models


class Figure(NamedTuple):
    """A figure of chip or model that varies. `paths`: where it stands; `values`: what its column holds."""

    owner: str  # chip or model
    column: str
    kind: str
    paths: tuple[str, ...]
    values: tuple[Any, ...]
    texts: tuple[str, ...]  # as an override takes them

    def settings(self, i: int) -> tuple[str, ...]:
        """The overrides of the i-th value."""
        return tuple(f"{path}={self.texts[i]}" for path in self.paths)


def figure(path: str, given: Any, model: str, chip: str) -> Figure:
    """A figure by its path, `chip.scale_out.bandwidth` or `model.kv_lora_rank`; a bare path is looked for in both."""
    owner, paths, here = _place(path.strip(), model, chip)
    if not isinstance(given, list):
        given = [given]
    texts = [part.strip() for one in given for part in grammar.split(str(one))]
    bare = path.strip().removeprefix(f"{owner}.")
    factors = [text.lstrip().startswith(("x", "×", "*")) for text in texts]
    if any(factors):
        if not all(factors):
            raise AxisError(f"{path} has factors and values", "one or the other: x0.5,x1,x2")
        found = grammar.values(given, _factor)
        return Figure(owner, f"{owner}.{bare}{FACTOR}", "float", paths, tuple(found), tuple(f"x{x!r}" for x in found))
    quantity = quantity_of(here) or quantity_of(child_type(figure_of(here), "value"))
    if quantity is not None:
        dimension = quantity.dimension

        def read(text: str) -> float:
            try:
                return units.parse(text, dimension)
            except units.UnitError as error:
                raise AxisError(error.problem, error.expected, error.hint) from None

        found = grammar.values(given, read)
        return Figure(
            owner, f"{owner}.{bare}", "float", paths, tuple(found), tuple(str(quantity.text(x)) for x in found)
        )
    if any(part is int for part in alternatives(here)):
        found = grammar.values(given, _whole, whole=True)
        return Figure(owner, f"{owner}.{bare}", "int", paths, tuple(found), tuple(map(str, found)))
    found = grammar.values(given, lambda text: text, ranges=False)
    return Figure(owner, f"{owner}.{bare}", "text", paths, tuple(found), tuple(found))


def _factor(text: str) -> float:
    try:
        value = float(text.lstrip("x×* "))
    except ValueError:
        raise AxisError(f"'{text}' is not a factor", "a factor such as x0.5") from None
    if not 0 < value < 1e12:
        raise AxisError(f"'{text}' is no factor above zero", "a factor such as x0.5")
    return value


def _whole(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise AxisError(f"'{text}' is not a whole number", "a whole number")
    return int(text)


def _place(path: str, model: str, chip: str) -> tuple[str, tuple[str, ...], Any]:
    """(chip or model, the paths below it, the type that stands there)."""
    owner, dot, rest = path.partition(".")
    if dot and owner == "model":
        return "model", *_in_model(rest, model)
    if dot and owner == "chip":
        return "chip", *_in_chip(rest, chip)
    first = path.replace("[", ".").split(".")[0]
    if first in keys_at(Chip, ()):
        return "chip", *_in_chip(path, chip)
    leaves = _leaves(_document("model", model).data)
    if first in keys_at(Model, ()) or first in leaves:
        return "model", *_in_model(path, model)
    known = [*keys_at(Chip, ()), *keys_at(Model, ()), *leaves]
    raise AxisError(f"no figure '{path}'", "a path such as chip.memory.bandwidth or model.kv_lora_rank",
                    did_you_mean(first, known))  # fmt: skip


def _in_chip(path: str, chip: str) -> tuple[tuple[str, ...], Any]:
    return (path,), _type_at(_document("chip", chip), Chip, path)


def _in_model(path: str, model: str) -> tuple[tuple[str, ...], Any]:
    document = _document("model", model)
    if path in keys_at(Model, ()) or "." in path:
        return (path,), _type_at(document, Model, path)
    paths = _leaves(document.data).get(path)
    if not paths:
        known = list(_leaves(document.data))
        raise AxisError(f"no figure '{path}' in {model}", f"one of {', '.join(known)}", did_you_mean(path, known))
    return tuple(paths), _type_at(document, Model, paths[0])


def _type_at(document: source.Document, spec: type[Spec], path: str) -> Any:
    try:
        return override.place(document, spec, path)
    except SpecError as error:
        first = error.problems[0]
        raise AxisError(first.message, first.expected, first.hint) from None


def _leaves(data: dict[str, Any]) -> dict[str, list[str]]:
    """Figures of attention and feed-forward kinds by their own name: kv_lora_rank -> attention.mla.kv_lora_rank."""
    out: dict[str, list[str]] = {}
    for part in PARTS:
        for name, kind in (data.get(part) or {}).items():
            for leaf in kind if isinstance(kind, dict) else ():
                if leaf != "kind":
                    out.setdefault(leaf, []).append(f"{part}.{name}.{leaf}")
    return out


def _document(kind: str, name: str) -> source.Document:
    document = source.read(lookup.find(kind, name))
    return lookup.written(lookup.load_model(name)) if kind == "model" and lookup.is_config(document) else document


# ---- loading ----


@dataclass(frozen=True)
class Sources:
    """The text of every file of a sweep, so that another process or machine reads exactly the same.

    models, chips: (file, text) by name. overlays: calibrations by chip and engine, with its release as it is asked for.
    """

    models: dict[str, tuple[str, bytes]]
    chips: dict[str, tuple[str, bytes]]
    overlays: dict[tuple[str, str], tuple[str, bytes]]
    engines: tuple[str, ...]

    def chip(self, name: str, settings: Sequence[str], engine: str) -> Chip:
        """The chip with figures changed, and the engine's calibration of it."""
        overlay = self.overlays.get((name, engine))
        return lookup.chip_of(_parsed(self.chips[name]), settings, None if overlay is None else _parsed(overlay))

    def model(self, name: str, settings: Sequence[str]) -> Model:
        """The model with figures changed."""
        return lookup.model_of(_parsed(self.models[name]), settings)

    def digests(self) -> dict[str, str]:
        """What prices depend on besides the code: every file, the engines' profiles, and the data of the costs."""
        out = {f"model {name}": _digest(raw) for name, (_, raw) in self.models.items()}
        out |= {f"chip {name}": _digest(raw) for name, (_, raw) in self.chips.items()}
        out |= {f"calibration {' '.join(key)}": _digest(raw) for key, (_, raw) in self.overlays.items()}
        out |= {f"engine {name}": _digest(repr(profile(name)).encode()) for name in self.engines}
        data = sorted((lookup.PACKAGE / "costs").glob("*.yaml"))
        return out | {f"costs {file.name}": _digest(file.read_bytes()) for file in data}


def read(models: Sequence[str], chips: Sequence[str], engines: Sequence[str]) -> Sources:
    """The files of these names."""
    from mlaplan.engines.load import asked_release

    files = {name: lookup.find("chip", name) for name in chips}
    overlays = {
        (name, e): lookup.overlay_file(file, *asked_release(e)) for name, file in files.items() for e in engines
    }
    return Sources(
        {name: _file(lookup.find("model", name)) for name in models},
        {name: _file(file) for name, file in files.items()},
        {key: _file(file) for key, file in overlays.items() if file is not None},
        tuple(engines),
    )


def profile(engine: str) -> Profile:
    """The engine at its version."""
    from mlaplan.engines.load import load_profile

    return load_profile(engine)


def _file(path: str) -> tuple[str, bytes]:
    return path, source.read_bytes(path)


def _parsed(file: tuple[str, bytes]) -> source.Document:
    document = source.parse(file[1], file[0])
    document.shipped = is_shipped(*file)
    return document


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def refuse_swapped(model_name: str, chips: Sequence[str]) -> None:
    """Says so where the first word is a chip."""
    if model_name in dict(lookup.model_names()) or model_name not in dict(lookup.chip_names()):
        return
    second = next((c for c in chips if c in dict(lookup.model_names())), None)
    told = f"'{model_name}' is a chip" + (f" and '{second}' is a model" if second else "")
    raise MlaplanError(f"{told}; expected MODEL CHIP..., in this order")
