"""The question and the answer: what was understood, the plan that wins, its figures, how it is launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlaplan.report import context, plan_text, words
from mlaplan.report.page.elements import Card, Cards, Code, Element, Facts, Section, Text
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    from mlaplan.explain import Explanation, Served
    from mlaplan.report.plan_text import Answer


def question(a: Answer, settings: Sequence[str], command: str) -> Section:
    """What was asked, as it was understood, and the command that asks it again."""
    rows: list[tuple[str, str]] = []
    for label, told in plan_text.asked_rows(a):
        if label:
            rows.append((label, words.file(told) if label in ("model", "chip") else told))
        else:  # more about the row before
            rows[-1] = (rows[-1][0], f"{rows[-1][1]}: {told}")
    if settings:
        rows.append(("changed", ", ".join(f"`{one}`" for one in settings)))
    return Section("question", "The question", [Facts(rows), Code("Asked with", command)])


def answer(a: Answer) -> Section:
    """The winning plan with its figures."""
    best = a.found.plans[0]
    s, served = best.strategy, best.served
    assert served is not None  # plans are served
    chips = words.chips(s, a.q.setting.chip.scale_up.chips_per_node)
    verdict = (
        f"{s.label()} on {chips}: {words.plain(served.tok_s_chip.value)} output tokens per second and chip, "
        f"{_whole(s.devices * served.tok_s_chip.value)} in all."
    )
    found: list[Element] = [Text(verdict, "verdict"), Cards(cards(served)), Facts(_choices(a, best))]
    if a.launch is None:
        found.append(Text(_how_to_launch(a)))
    elif a.launch.problem is not None:
        found.append(Text(f"{a.launch.engine} cannot launch the plan: {a.launch.problem}.", "warning"))
    else:
        many = len(a.launch.commands) > 1
        for number, command in enumerate(a.launch.commands, 1):
            node = f", command {number} of {len(a.launch.commands)}" if many else ""
            found.append(Code(f"Launch with {a.launch.engine}{node}", command))
        if a.launch.bench:
            found.append(Code("Measure it", a.launch.bench))
    return Section("answer", "The answer", found)


def _how_to_launch(a: Answer) -> str:
    """Which engines would give commands for this chip."""
    from mlaplan.engines import MODULES
    from mlaplan.engines.load import load_profile, spelled

    chip = a.q.setting.chip
    able = [name for name in MODULES if chip.efficiency_class in load_profile(name).runs_on]
    if not able:
        return f"No engine whose launch commands are known runs on {chip.name}."
    return f"Launch commands: the same question with {' or '.join(f'`--emit {spelled(name)}`' for name in able)}."


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def cards(s: Served) -> list[Card]:
    """The served figures with their bands."""
    spans = [("TTFT", s.ttft_s, format_seconds, "time to the first token")]
    if s.tpot_s is not None:
        spans.append(("TPOT", s.tpot_s, format_seconds, "time per output token"))
    spans.append(("tok/s/chip", s.tok_s_chip, words.plain, "output tokens"))
    if s.tok_s_user is not None:
        spans.append(("tok/s/user", s.tok_s_user, words.plain, "output tokens"))
    spans.append(("requests/s", s.requests_per_s, words.plain, f"{s.concurrency:,.0f} in flight"))
    if s.usd_per_mtok is not None:
        spans.append(("$/Mtok", s.usd_per_mtok, words.dollars, "output tokens"))
    out = []
    for name, known, shown, remark in spans:
        exact = shown(known.low) == shown(known.high)
        out.append(
            Card(name, shown(known.value), "" if exact else f"{shown(known.low)} to {shown(known.high)}", remark)
        )
    return out


def _choices(a: Answer, best: Explanation) -> list[tuple[str, str]]:
    s = best.strategy
    rows = [("strategy", words.choices(s))]
    if len(set(best.pp_layers)) > 1:
        rows.append(("stages", "layers " + ", ".join(map(str, best.pp_layers))))
    if (merged := context.told(a.q, s)) is not None:
        rows.append(("decode context parallelism", merged))
    assert best.served is not None
    rows.append(("prefill", f"takes {words.percent(best.served.prefill_share)} of the time of its chips"))
    if best.served.queue_s > 0.01 * best.served.ttft_s.value:
        rows.append(("queue", f"{format_seconds(best.served.queue_s)} of TTFT"))
    return rows


def nothing(a: Answer, fitting: Sequence[str]) -> Section:
    """That nothing is feasible, the nearest miss, and what would fit."""
    found: list[Element] = [
        Text(f"Nothing feasible: none of {a.found.considered:,} combinations can be used.", "verdict")
    ]
    miss = a.found.nearest_miss
    if miss is not None:
        found.append(
            Facts(
                [
                    ("nearest", f"{miss.strategy.label()} ({words.choices(miss.strategy)})"),
                    (f"{miss.code} {miss.slug}", miss.detail),
                    *(("what would fit", one) for one in fitting),
                ]
            )
        )
    return Section("answer", "The answer", found)
