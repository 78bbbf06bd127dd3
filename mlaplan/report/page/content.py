"""The sections of a recommendation's page, in the order in which a reader asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.report import plan_text, split_data
from mlaplan.report.page import apart, asked, doubt, front, memory, numbers, pictures, reasons, sensitivity, sources
from mlaplan.report.page.elements import Page, Section, Text

if TYPE_CHECKING:
    from mlaplan.fleet.decision import Decision
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer, and how it was asked for: the user's own values, `--set` texts, the command.

    free: that of `front.front_of`. apart: with `--disagg`, both ways; its launch is that of the way that wins.
    """

    answer: Answer
    free: Answer
    given: Overrides
    settings: tuple[str, ...]
    command: str
    apart: Decision | None = None


def page(one: Asked) -> Page:
    """The whole page, also of an answer without a plan."""
    from mlaplan import __version__

    a, more, d = one.answer, dict[str, Any](), one.apart
    sections = [asked.question(a, one.settings, one.command)]
    if d is not None:
        more["disagg"] = split_data.document(d)
    if d is not None and d.wins == "apart":
        sections += [apart.answer(d, a.launch), apart.pools(a, d), apart.comparison(a, d)]
        if a.found.plans:
            both = (reasons.alternatives(a), reasons.excluded(a))
            sections += [one._replace(title=f"{one.title}, together") for one in both]
        sections.append(apart.error_bands(a, d))
    elif a.found.plans:
        varied = sensitivity.section(a, one.given)
        more["sensitivity"] = varied.numbers
        sections += [asked.answer(a), reasons.why(a), reasons.alternatives(a), reasons.excluded(a)]
        sections.append(front.section(a, one.free))
        sections += [memory.memory(a), _roofline(a), varied.section, doubt.error_bands(a)]
        if d is not None:
            sections.insert(2, apart.comparison(a, d) if d.split is not None else apart.nothing(d))
    else:
        from mlaplan.report.fitting import what_fits

        fitting = what_fits(a.q, a.found.nearest_miss, a.change)
        more["would_fit"] = fitting
        sections += [asked.nothing(a, fitting), reasons.excluded(a)]
        if one.free.found.front:
            sections.append(front.section(a, one.free))
    split = d.split if d is not None and d.wins == "apart" else None
    sections += [doubt.limits(a, split), sources.sources(a, split)]
    about = "What to deploy, why, what else there is, how sure the figures are and where they come from: a prediction."
    data = numbers.document(a, one.free, one.given, one.settings, more)
    return Page(plan_text.title(a), about, sections, data, f"mlaplan {__version__}")


def _roofline(a: Answer) -> Section:
    said = "An operator on a roof uses all of the memory's bandwidth or of the matrix peak; what is below has a cause."
    return Section("roofline", "Roofline", [pictures.roofline(a), Text(said)])
