"""Prefill and decode on chips of their own: the answer of a split, its pools, and where it is worth it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlaplan.report import explain_text, split_text, why_text, words
from mlaplan.report.page import asked, doubt, pictures
from mlaplan.report.page.elements import Card, Cards, Code, Element, Facts, Section, Table, Text, table
from mlaplan.report.plan_text import Launch
from mlaplan.serving.steady import front_end_s
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.fleet.decision import Decision
    from mlaplan.fleet.split import Side, Split
    from mlaplan.report.plan_text import Answer

SMALL = 0.01  # operators below this share of a step are one line


def answer(d: Decision, launch: Launch | None) -> Section:
    """Both pools, what they serve, and how they are launched."""
    s = d.split
    assert s is not None and d.bands is not None  # there is a split
    verdict = split_text.verdict(d).replace("PREFILL AND DECODE APART", "Prefill and decode apart")
    found: list[Element] = [Text(verdict, "verdict"), Cards(cards(d))]
    columns, rows = split_text.pools(s)
    found += [Table("The pools", columns, rows), Facts(facts(d))]
    if launch is None:
        found.append(Text("Launch commands: the same question with `--emit` and an engine."))
    elif launch.problem is not None:
        found.append(Text(f"{launch.engine} cannot launch the plan: {launch.problem}.", "warning"))
    else:
        for command in launch.commands:
            first, _, rest = command.partition("\n")
            heading = first.lstrip("# ")
            found.append(Code(f"{heading[0].upper()}{heading[1:]}", rest))
        if launch.bench:
            found.append(Code("Measure it", launch.bench))
    return Section("answer", "The answer", found)


def cards(d: Decision) -> list[Card]:
    """The served figures with their bands."""
    s, b = d.split, d.bands
    assert s is not None and b is not None
    spans = [("TTFT", b.ttft_s, format_seconds, "time to the first token")]
    if b.tpot_s is not None:
        spans.append(("TPOT", b.tpot_s, format_seconds, "time per output token"))
    spans.append(("tok/s/chip", b.tok_s_chip, words.plain, "output tokens"))
    out = [Card(n, shown(x.value), f"{shown(x.low)} to {shown(x.high)}", told) for n, x, shown, told in spans]
    out.append(Card("requests/s", words.plain(s.requests_per_s), "", f"{s.in_flight:,.0f} in flight"))
    if d.usd_per_mtok is not None:
        out.append(Card("$/Mtok", words.dollars(d.usd_per_mtok), "", "output tokens"))
    return out


def facts(d: Decision) -> list[tuple[str, str]]:
    """What TTFT is made of, what arrivals do to it, the chips' shares, the cache between the pools."""
    s = d.split
    assert s is not None
    idle = d.ask.devices - s.chips
    share = f"{s.prefill.chips}:{s.decode.chips} chips, {s.prefill.instances}:{s.decode.instances} instances"
    rows = [("TTFT", _ttft(s)), ("arrivals", split_text.random_arrivals(s))]
    rows.append(("P:D", share + (f", {words.times(idle, 'chip')} idle" if idle else "")))
    return [*rows, ("cache", split_text.carried(s))]


def _ttft(s: Split) -> str:
    parts = [("waiting", s.wait_s), ("prefill", s.prefill_s), ("room in the decode pool", s.slot_wait_s)]
    parts += [
        ("transfer", s.exposed_s),
        ("front end", float(front_end_s(s.prefill.q.setting.engine, s.decode.q.workload))),
    ]
    return ", ".join(f"{name} {format_seconds(value)}" for name, value in parts if value)


def pools(a: Answer, d: Decision) -> Section:
    """A step of each pool operator by operator, and what its memory holds."""
    s, b = d.split, d.bands
    assert s is not None and b is not None
    p, filled, step = b.prefill, b.decode, b.prefill.prefill
    assert step is not None  # both pools are priced
    title = (
        f"A prefill step takes {words.span(step.step_s, format_seconds)}, {words.percent(step.comm_share)} of it "
        "communication."
    )
    found: list[Element] = [Text(title)]
    rows = explain_text.operator_rows(step, SMALL)
    found.append(Table(_caption("prefill", s.prefill), explain_text.OPERATORS, rows))
    found += table(_caption("decode", s.decode), why_text.breakdown(s.decode.q, filled, SMALL))
    for role, side, e in (("prefilling", s.prefill, p), ("decoding", s.decode, filled)):
        block = explain_text.memory_block(side.q, e)
        last = frozenset({len(block.rows) - 2, len(block.rows) - 1})
        found += table(f"Memory of one {role} chip, of the fullest stage", block, marked=last)
    found.append(pictures.roofline(_alone(a, s.decode, filled)))
    return Section("pools", "The pools", found)


def _caption(role: str, side: Side) -> str:
    one = replace(side.strategy, replicas=1).label()
    return f"Operators of a {role} step by falling time: {one} on {side.q.setting.chip.name}"


def _alone(a: Answer, side: Side, e: Explanation) -> Answer:
    """The answer as if the pool were all that there is."""
    return replace(a, q=side.q, found=replace(a.found, plans=[e]))


def error_bands(a: Answer, d: Decision) -> Section:
    """The band of the decode pool's step by source of doubt."""
    assert d.split is not None and d.bands is not None
    return doubt.error_bands(_alone(a, d.split.decode, d.bands.decode))


def comparison(a: Answer, d: Decision) -> Section:
    """Together and apart at the same lengths, and over the ratio of prompt and output."""
    found: list[Element] = []
    served = a.found.plans[0].served if a.found.plans else None
    if served is None:
        found.append(Text("Together nothing serves this."))
    else:
        best = a.found.plans[0].strategy.label()
        found += [Text(f"Together the best plan is {best}:"), Cards(asked.cards(served))]
    if d.points:
        columns, rows = split_text.curve(d)
        found += [Text(split_text.crossover(d)), Table("Together and apart by ISL:OSL", columns, rows)]
    assert d.split is not None  # there is one to compare with
    found.append(Text(split_text.notes(d.split)))
    return Section("apart", "Together or apart", found)


def nothing(d: Decision) -> Section:
    """That there is no split, with the curve over ratios where there is one."""
    return Section("apart", "Together or apart", [Text(" ".join(split_text.nothing(d).split()))])
