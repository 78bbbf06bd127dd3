"""How sure the figures are: what their bands are made of, what is left out, what a reader must know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mlaplan.report import bands, words
from mlaplan.report.grid import Column, text
from mlaplan.report.page.elements import Element, Items, Section, Table, Text
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.fleet.split import Split
    from mlaplan.report.plan_text import Answer

FLAG = re.compile(r"(--[a-z][a-z-]+)")
SMALL = 0.002  # doubts below this share of the step are left out


def error_bands(a: Answer) -> Section:
    """The decode step's band by source of doubt."""
    best = a.found.plans[0]
    d = best.decode
    assert d is not None  # plans are served
    found: list[Element] = [
        Text(
            "A band holds the true value in four cases of five if the parts are known as well as their sources say. "
            "How far off predictions were against published measurements, kernels, steps and served figures apart, is "
            "in docs/accuracy.md and from `mlaplan validate`."
        )
    ]
    rows, columns = [], (text("doubt"), Column("time"), Column("down"), Column("up"), text("how it is known"))
    listed = [one for one in bands.doubts(a.q, best) if max(one.down_s, one.up_s) >= SMALL * d.step_s.value]
    if (experts := bands.routing(a.q, best)) is not None:
        listed.append(experts)
    for one in listed:
        rows.append(
            (one.of, format_seconds(one.time_s), format_seconds(one.down_s), format_seconds(one.up_s), one.known)
        )
    caption = (
        f"What the band of the decode step is made of: {words.span(d.step_s, format_seconds)}. Doubts of different "
        "rows are independent and add in squares, those of one fit add."
    )
    return Section("bands", "Error bands", [*found, Table(caption, columns, rows)])


def limits(a: Answer, split: Split | None = None) -> Section:
    """What is not modelled, and the notes on this answer; split: where the answer is one."""
    moe = any(f.kind == "moe" for f in a.q.setting.model.ffn.values())
    nodes = a.devices > a.q.setting.chip.scale_up.chips_per_node
    items = [
        "Lengths are means: distributions, bursts, queues that drain, warm-up and preemption are not in these figures; "
        "`mlaplan simulate` runs requests through a saved plan.",
        "Prefill and decode share the chips; on chips of their own they are priced by "
        "`mlaplan recommend --disagg auto`."
        if split is None
        else "The router between the pools, its own time and how evenly it spreads requests, and caches that must be "
        "rearranged on their way.",
        "A shared prefix is the number that was given; eviction is not modelled, and tiers behind the "
        "chips are priced by `mlaplan tiers`.",
    ]
    if moe:
        items.append(
            "Experts' loads follow one law for all models, tokens choose independently, and with a load balancer the "
            "busiest rank has one factor over the mean (`--imbalance`)."
        )
    items.append(
        f"{'Other traffic on the network, oversubscribed fabrics, c' if nodes else 'C'}locks under power limits, and "
        "failures."
    )
    items.append("The quality of the answers under quantised weights or caches.")
    found: list[Element] = [Items(items)]
    if a.notes:
        found += [Text("Notes on this answer:"), Items([FLAG.sub(r"`\1`", note) for note in a.notes])]
    return Section("limits", "What is not modelled", found)
