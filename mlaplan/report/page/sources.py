"""Where every number comes from: chip, model, engine, and the model's own constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan import units
from mlaplan.engines.profile import attention_kind
from mlaplan.report import chip_sheet, engine_sheet, words
from mlaplan.report.chip_sheet import Sources
from mlaplan.report.grid import Column, text
from mlaplan.report.page.elements import Element, Facts, Items, Section, Table, Text

if TYPE_CHECKING:
    from mlaplan.fleet.split import Split
    from mlaplan.report.plan_text import Answer
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

BASIS = "datasheet, measured, derived from others, or assumed"


def sources(a: Answer, split: Split | None = None) -> Section:
    """Tables of figures with basis and source, and the numbered sources under them; split: where it is the answer."""
    s, known = a.q.setting, Sources()
    found: list[Element] = [Text(f"Numbers in brackets are the sources listed below; the basis is {BASIS}.")]
    chips = [s.chip] if split is None else [side.q.setting.chip for side in (split.decode, split.prefill)]
    for chip in {one.name: one for one in chips}.values():
        found += _chip(chip, known)
    found += _model(s.model)
    kind = attention_kind(s.model)
    columns = (text("figure"), text("value"), text("basis"), text("source"))
    rows = list(engine_sheet.rows(a.q.profile, s.chip.efficiency_class, kind, known))
    found.append(Table(f"Engine: {a.q.profile.label}", columns, rows))
    found.append(Table("Constants of the cost model itself", columns, _constants(known)))
    found += [Text("Sources:"), Items(list(known.numbers), numbered=True)]
    return Section("sources", "Sources", found)


def _chip(chip: Chip, known: Sources) -> list[Element]:
    figures = [text(title) for title in chip_sheet.FIGURE_HEADER]
    kernels = [Column(title, title not in ("compute", "memory", "norm")) for title in chip_sheet.KERNEL_HEADER]
    found: list[Element] = [
        Table(f"Chip: {chip.title} ({words.file(chip.origin)})", figures, list(chip_sheet.figure_rows(chip, "", known)))
    ]
    if chip.calibration:
        found.append(Text(f"Kernels and collectives calibrated to measured tables: {words.file(chip.calibration)}."))
    rows = [row for link in chip_sheet.LINKS for row in chip_sheet.collective_rows(chip, link, known)]
    if rows:
        head = [Column(title, title != "ranks") for title in chip_sheet.COLLECTIVE_HEADER]
        found.append(Table("Collectives: time = alpha + volume / bandwidth", head, rows))
    caption = "Kernels: share of the peak and of the memory bandwidth that is reached"
    found.append(Table(caption, kernels, list(chip_sheet.kernel_rows(chip, known))))
    if chip.notes:
        found.append(Items(chip.notes))
    return found


def _model(model: Model) -> list[Element]:
    rows = [("Model", f"{model.title}, {words.file(model.origin)}: {model.source}")]
    if model.published is not None:
        for name, figure in (("total", model.published.params_total), ("active", model.published.params_active)):
            if figure is not None:
                told = f"{units.format_count(float(figure))}, {figure.confidence}: {figure.source}"
                rows.append((f"{name} parameters as published", told))
    if model.mtp is not None:
        low, value, high = model.mtp.acceptance.bounds
        shown = f"{value:g} ({low:g} to {high:g})" if low < high else f"{value:g}"
        told = f"{shown} a position, {model.mtp.acceptance.confidence}: {model.mtp.acceptance.source}"
        rows.append(("acceptance of drafts", told))
    rows += [("note", note) for note in model.notes]
    return [Facts(rows)]


def _constants(known: Sources) -> list[tuple[str, ...]]:
    """Numbers that belong to no chip and no engine."""
    from mlaplan.costs import band, routing
    from mlaplan.specs.source import read

    out: list[tuple[str, ...]] = []
    for name, one in _entries(read(band.FILE).data) + _entries(read(routing.FILE).data):
        out.append((name, _value(one), str(one.get("confidence", "derived")), known.mark(str(one["source"]))))
    return out


def _value(one: dict[str, Any]) -> str:
    """`0.81 (0.63 to 0.98)`, or the number of each class of operators."""
    if "value" not in one:
        return ", ".join(f"{name} {number:g}" for name, number in one.items() if name != "source")
    said = f"{one['value']:g}" if isinstance(one["value"], int | float) else str(one["value"])
    return f"{said} ({one['low']:g} to {one['high']:g})" if "low" in one else said


def _entries(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name.replace("_", " "), one) for name, one in data.items()]
