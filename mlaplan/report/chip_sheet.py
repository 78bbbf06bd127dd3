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
LINKS = ("scale_up", "scale_out")
FIGURE_HEADER = ("figure", "value", "range", "basis", "source")
COLLECTIVE_HEADER = ("collective", "ranks", "alpha", "bandwidth", "error", "basis", "source")
KERNEL_HEADER = ("kernel", "compute", "memory", "floor", "norm", "error", "basis", "source")
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
    if found["scale_out"] is not None:
        del found["scale_out"]["chips_per_host"]
        del found["scale_out"]["chips_per_node"]  # a property of scale_up alone
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


class Sources:
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
    """Every figure with value, range, basis and source; the first column is the path that `--set` takes."""
    sources = Sources()
    parts = ["\n".join(_head(chip))]
    if chip.notes:
        parts.append("\n".join(wrapped(note, label="- ") for note in chip.notes))
    parts.append(aligned(list(figure_rows(chip, "", sources)), header=FIGURE_HEADER))
    if collectives := [row for link in LINKS for row in collective_rows(chip, link, sources)]:
        title = "Collectives: time = alpha + volume / bandwidth\n"
        parts.append(title + aligned(collectives, header=COLLECTIVE_HEADER))
    title = "Kernels: share of the peak and of the memory bandwidth that is reached\n"
    parts.append(title + aligned(list(kernel_rows(chip, sources)), header=KERNEL_HEADER))
    parts.append("\n".join(["Sources", *sources.lines()]))
    return "\n\n".join(parts)


def _head(chip: Chip) -> Iterator[str]:
    """What is not a figure, one line each."""
    yield f"{chip.title} ({chip.name})"
    yield f"file: {chip.origin}"
    facts = {
        "vendor": f"{chip.vendor}; one chip is one {chip.unit}; efficiency class {chip.efficiency_class}",
        "also called": ", ".join(chip.names),
        "memory": chip.memory.type,
        "on chip": ", ".join(f"{level.name} (per {level.scope})" for level in chip.on_chip),
        "DMA": _dma(chip),
        "padding": ", ".join(f"{name} {size}" for name, size in chip.padding.model_dump().items()),
        "scale-up": _link(chip.scale_up, _node(chip.scale_up)),
        "scale-out": _link(chip.scale_out, "") if chip.scale_out else "none",
        "host link": chip.host_link.name if chip.host_link else "",
    }
    for label, fact in facts.items():
        if fact:
            yield wrapped(fact, label=f"{label}: ")


def _dma(chip: Chip) -> str:
    if chip.dma is None:
        return ""
    when = "beside compute" if chip.dma.beside_compute else "not beside compute"
    return f"{', '.join(chip.dma.engines)}; {when}"


def _node(link: Link) -> str:
    host = f", {link.host_chips} a host" if link.host_chips != link.chips_per_node else ""
    return f", {link.chips_per_node} chips a node{host}"


def _link(link: Link, size: str) -> str:
    words = f"{link.name}: {link.topology.replace('_', ' ')}{size}"
    if link.group:
        words += f", full mesh of {link.group}"
    if link.links:
        words += f", {link.links} links a chip"
    if link.chords:
        words += f", chords {' '.join(f'{a}-{b}' for a, b in link.chords)}"
    if link.unsupported:
        words += f"; no {', '.join(link.unsupported)}"
    return words + (f"; {link.note}" if link.note else "")


def figure_rows(value: Any, path: str, sources: Sources) -> Iterator[tuple[str, ...]]:
    """One row per figure below `path`."""
    if isinstance(value, Figure):
        yield _figure_row(value, path, sources)
    elif isinstance(value, Spec):
        for name in type(value).model_fields:
            if name != "collectives" and (path or name != "efficiency"):
                yield from figure_rows(getattr(value, name), f"{path}.{name}".lstrip("."), sources)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from figure_rows(item, f"{path}.{key}", sources)
    elif isinstance(value, tuple):
        for item in value:
            yield from figure_rows(item, f"{path}.{getattr(item, 'name', '')}", sources)


def _figure_row(figure: Figure[Any], path: str, sources: Sources) -> tuple[str, ...]:
    dimension = figure.dimension()
    low, value, high = figure.bounds
    spread = ""
    if low < high:
        ends = [units.format_quantity(end, dimension).split(" ") for end in (low, high)]
        same = ends[0][1:] == ends[1][1:]
        spread = f"{ends[0][0] if same else ' '.join(ends[0])}..{' '.join(ends[1])}"
    elif dimension == "bytes":
        spread = units.format_bytes(value, binary=True)
    mark = sources.mark(figure.source, figure.note)
    return path, units.format_quantity(value, dimension), spread, figure.confidence, mark


def collective_rows(chip: Chip, name: str, sources: Sources) -> Iterator[tuple[str, ...]]:
    link: Link | None = getattr(chip, name)
    for op, fit in link.collectives.items() if link else ():
        mark = sources.mark(fit.source, fit.note)
        for ranks, alpha, bandwidth in zip(fit.ranks, fit.alpha, fit.bandwidth, strict=True):
            label = op if name == "scale_up" else f"{name} {op}"
            cells = (str(ranks), units.format_seconds(alpha), units.format_bytes_per_s(bandwidth))
            yield label, *cells, units.format_percent(fit.residual), fit.confidence, mark


def kernel_rows(chip: Chip, sources: Sources) -> Iterator[tuple[str, ...]]:
    for op, fits in kernels(chip).items():
        for dtype, fit in fits.items():
            # one line for all defaults of a class that have the same source
            source = fit.source.replace(f" {op} {dtype};", ";") if fit.source.startswith("class ") else fit.source
            yield (f"{op} {dtype}", *_kernel_cells(fit), fit.confidence, sources.mark(source, fit.note))


def _kernel_cells(fit: KernelFit) -> tuple[str, ...]:
    norm = "hard" if math.isinf(fit.norm) else f"{fit.norm:g}"
    floor = units.format_seconds(fit.floor)
    return f"{fit.compute:.3g}", f"{fit.memory:.3g}", floor, norm, units.format_percent(fit.residual)
