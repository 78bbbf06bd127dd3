"""Throughput against speed: what the same chips could do with another number of requests in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlaplan.report import plan_text, words
from mlaplan.report.page import pictures
from mlaplan.report.page.elements import Element, Section, Text, table

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides


def front_of(a: Answer, given: Overrides) -> Answer:
    """The answer to the same question with the load left open and without limits, for its Pareto front."""
    from mlaplan.plan import recommend

    work = replace(a.q.workload, concurrency=None, rate=None, ttft_s=None, tpot_s=None)
    free, pins = replace(a.q, workload=work), {name: value for name, value in a.pins.items() if name != "batch"}
    found = recommend(free, a.devices, objective="pareto", fixed=pins, top=1, given=given)
    return replace(a, q=free, objective="pareto", pins=pins, found=found, why=None, notes=[], launch=None)


def section(a: Answer, free: Answer) -> Section:
    """The front, and where the answer stands."""
    if not free.found.front:
        return Section("pareto", "Throughput against speed", [Text("No plan fits at any load: there is no front.")])
    said = (
        f"The same lengths on the same {a.devices:,} chips with any number of requests in flight and without limits on "
        "TTFT and TPOT."
    )
    best = a.found.plans[0].served if a.found.plans else None
    if best is not None and best.tok_s_user is not None:
        at = f"{words.plain(best.tok_s_chip.value)} tok/s/chip and {words.plain(best.tok_s_user.value)} tok/s/user"
        said += f" The answer to the question above stands at {at}."
    found: list[Element] = [Text(said), pictures.pareto(free)]
    block = plan_text.front_block(free)
    shown, whole = len(block.rows), words.times(len(free.found.front), "point")
    found += table(
        f"{shown} of {whole} of the front" if shown < len(free.found.front) else f"The front, {whole}", block
    )
    return Section("pareto", "Throughput against speed", found)
