"""The sections of a recommendation's page, in the order in which a reader asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.report import plan_text
from mlaplan.report.page import asked, doubt, memory, numbers, pictures, reasons, sensitivity, sources
from mlaplan.report.page.elements import Element, Page, Section, Text, table

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer, and how it was asked for: the user's own values, `--set` texts, the command."""

    answer: Answer
    given: Overrides
    settings: tuple[str, ...]
    command: str


def page(one: Asked) -> Page:
    """The whole page, also of an answer without a plan."""
    from mlaplan import __version__

    a, more = one.answer, dict[str, Any]()
    sections = [asked.question(a, one.settings, one.command)]
    if a.found.plans:
        varied = sensitivity.section(a, one.given)
        more["sensitivity"] = varied.numbers
        sections += [asked.answer(a), reasons.why(a), reasons.alternatives(a), _front(a), reasons.excluded(a)]
        sections += [memory.memory(a), _roofline(a), varied.section, doubt.error_bands(a)]
    else:
        from mlaplan.report.fitting import what_fits

        fitting = what_fits(a.q, a.found.nearest_miss, a.change)
        more["would_fit"] = fitting
        sections += [asked.nothing(a, fitting), reasons.excluded(a)]
    sections += [doubt.limits(a), sources.sources(a)]
    about = "What to deploy, why, what else there is, how sure the figures are and where they come from: a prediction."
    data = numbers.document(a, one.given, one.settings, more)
    return Page(plan_text.title(a), about, sections, data, f"mlaplan {__version__}")


def _front(a: Answer) -> Section:
    found: list[Element] = [pictures.pareto(a)]
    if a.found.front:
        block = plan_text.front_block(a)
        found.append(table(f"{len(block.rows)} of {len(a.found.front)} points of the front", block))
    return Section("pareto", "Throughput against speed", found)


def _roofline(a: Answer) -> Section:
    said = "An operator on a roof uses all of the memory's bandwidth or of the matrix peak; what is below has a cause."
    return Section("roofline", "Roofline", [pictures.roofline(a), Text(said)])
