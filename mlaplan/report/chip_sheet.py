"""Everything known about a chip, for people (80 columns) and as data (SI, the unit in each key)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mlaplan import units
from mlaplan.report.tables import aligned, wrapped
from mlaplan.specs.chip import Chip, KernelFit, Link
from mlaplan.specs.defaults import kernels
from mlaplan.specs.figure import Figure, Spec
from mlaplan.specs.places import child_type, figure_of, quantity_of

SCHEMA = "mlaplan.chip/1"
FIGURE_HEADER = ("figure", "value", "range", "confidence", "source")
COLLECTIVE_HEADER = ("collective", "ranks", "alpha", "bandwidth", "error", "confidence", "source")
KERNEL_HEADER = ("kernel", "compute", "memory", "floor", "norm", "error", "confidence", "source")
KEY_SUFFIX = {
    "bytes": "_bytes",
    "bytes/s": "_bytes_per_s",
    "flop/s": "_flop_per_s",
    "s": "_s",
    "hz": "_hz",
    "w": "_w",
    "usd/h": "_usd_per_h",
}


def data(chip: Chip) -> dict[str, Any]:
    """Every figure as {value, low, high, source, confidence}; without a range all three are equal."""
    found = {"schema": SCHEMA, "file": chip.origin, **_plain(chip)}
    found["efficiency"] = {
        op: {dtype: _plain(fit) for dtype, fit in fits.items()} for op, fits in kernels(chip).items()
    }
    return found


def _plain(spec: Spec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in type(spec).model_fields.items():
        key = field.alias or name
        found[key + _suffix(child_type(type(spec), key))] = _value(getattr(spec, name))
    return found


def _suffix(here: Any) -> str:
    """The unit of the quantities at a place, whether it is one figure, a list or a mapping of them."""
    for inner in (here, child_type(here, 0), child_type(here, "any")):
        if (figure := figure_of(inner)) is not None:
            return KEY_SUFFIX.get(figure.dimension(), "")
        if (quantity := quantity_of(inner)) is not None:
            return KEY_SUFFIX.get(quantity.dimension, "")
    return ""


def _value(value: Any) -> Any:
    if isinstance(value, Figure):
        low, middle, high = value.bounds
        shown = {
            "value": middle,
            "low": low,
            "high": high,
            "source": value.source,
            "confidence": value.confidence,
        }
        return shown | ({"note": value.note} if value.note else {})
    if isinstance(value, Spec):
        return _plain(value)
    if isinstance(value, dict):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return "hard" if isinstance(value, float) and math.isinf(value) else value


class _Sources:
    """Numbers the sources, so that one which many figures share is written once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def mark(self, source: str, note: str | None = None) -> str:
        text = f"{source} ({note})" if note else source
        return f"[{self.numbers.setdefault(text, len(self.numbers) + 1)}]"

    def lines(self) -> Iterator[str]:
        for text, number in self.numbers.items():
            yield wrapped(text, label=f"[{number}] ".rjust(5))


def text(chip: Chip) -> str:
    """Every figure with value, range, confidence and source; the first column is the path `--set` takes."""
    sources = _Sources()
    head = [
        f"{chip.title} ({chip.name})",
        f"{chip.vendor}; one chip is one {chip.unit}; efficiency class {chip.efficiency_class}",
        f"file: {chip.origin}",
    ]
    if chip.names:
        head.append(wrapped(", ".join(chip.names), label="also: "))
    head += ["", *(wrapped(note, label="- ") for note in chip.notes)]
    parts = ["\n".join(head).rstrip()]
    parts.append(aligned(list(_rows(chip, "", sources)), header=FIGURE_HEADER))
    if collectives := [
        row for link in ("scale_up", "scale_out") for row in _collectives(chip, link, sources)
    ]:
        title = "Collectives: time = alpha + volume / bandwidth\n"
        parts.append(title + aligned(collectives, header=COLLECTIVE_HEADER))
    parts.append(
        "Kernels: share of the peak and of the memory bandwidth that is reached\n"
        + aligned(list(_kernels(chip, sources)), header=KERNEL_HEADER)
    )
    parts.append("\n".join(["Sources", *sources.lines()]))
    return "\n\n".join(parts)


def _rows(value: Any, path: str, sources: _Sources) -> Iterator[tuple[str, ...]]:
    """One row per figure or plain fact below `path`."""
    if isinstance(value, Figure):
        yield _figure_row(value, path, sources)
    elif isinstance(value, Link):
        for name in type(value).model_fields:
            if name not in ("collectives", "note"):
                yield from _rows(getattr(value, name), f"{path}.{name}", sources)
    elif isinstance(value, Spec):
        for name in type(value).model_fields:
            if path or name not in _IN_HEAD:
                yield from _rows(getattr(value, name), f"{path}.{name}".lstrip("."), sources)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _rows(item, f"{path}.{key}", sources)
    elif isinstance(value, tuple) and value and isinstance(value[0], Spec):
        for item in value:
            yield from _rows(item, f"{path}.{getattr(item, 'name', '')}", sources)
    elif value is not None and value != () and not path.endswith(".name"):
        yield path, _fact(value), "", "", ""


_IN_HEAD = ("kind", "name", "title", "vendor", "unit", "efficiency_class", "notes", "names", "efficiency")


def _figure_row(figure: Figure[Any], path: str, sources: _Sources) -> tuple[str, ...]:
    dimension = figure.dimension()
    low, value, high = figure.bounds
    spread = ""
    if low < high:
        spread = f"{units.format_quantity(low, dimension)} .. {units.format_quantity(high, dimension)}"
    elif dimension == "bytes":
        spread = units.format_bytes(value, binary=True)
    mark = sources.mark(figure.source, figure.note)
    return path, units.format_quantity(value, dimension), spread, figure.confidence, mark


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join("-".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


def _collectives(chip: Chip, name: str, sources: _Sources) -> Iterator[tuple[str, ...]]:
    link: Link | None = getattr(chip, name)
    for op, fit in link.collectives.items() if link else ():
        mark = sources.mark(fit.source, fit.note)
        for ranks, alpha, bandwidth in zip(fit.ranks, fit.alpha, fit.bandwidth, strict=True):
            label = op if name == "scale_up" else f"{name} {op}"
            cells = (str(ranks), units.format_seconds(alpha), units.format_bytes_per_s(bandwidth))
            yield label, *cells, units.format_percent(fit.residual), fit.confidence, mark


def _kernels(chip: Chip, sources: _Sources) -> Iterator[tuple[str, ...]]:
    for op, fits in kernels(chip).items():
        for dtype, fit in fits.items():
            yield (f"{op} {dtype}", *_kernel_cells(fit), fit.confidence, sources.mark(fit.source, fit.note))


def _kernel_cells(fit: KernelFit) -> tuple[str, ...]:
    norm = "hard" if math.isinf(fit.norm) else f"{fit.norm:g}"
    floor = units.format_seconds(fit.floor)
    return f"{fit.compute:.3g}", f"{fit.memory:.3g}", floor, norm, units.format_percent(fit.residual)
