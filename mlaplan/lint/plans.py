"""Saved plans: every field judged at its place, and is the throughput that a plan claims possible at all?

tokens/s  <=  requests in flight x tokens of a step / time of a step

And does it meet the service level that it was made for, by the planner's own rules?
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mlaplan.errors import Problem, SpecError
from mlaplan.lint.finding import Finding, Found, finding
from mlaplan.lint.rules.consistency import CLAIMED, SERVICE
from mlaplan.lint.rules.reading import UNREADABLE
from mlaplan.lint.text import Source, Word
from mlaplan.specs.source import Document, parse

SLACK = 1.001  # rounding of the figures in the file
PLACE = ("prediction", "served", "tok_s_chip", "value")


def check_plan(source: Source) -> list[Finding]:
    """The findings in one plan file."""
    try:
        document = parse(source.text, source.name)
    except SpecError as error:
        return [_broken(p.file, p.line, p.col, p.message, p.expected) for p in error.problems]
    wrong = _fields(document)
    if wrong:
        return [_broken(p.file, p.line, p.col, p.message, p.expected, p.hint) for p in wrong]
    missing = [path for path in (PLACE, ("strategy", "devices"), ("strategy", "batch"), ("strategy", "dp"))
               if not _number(document, path)]  # fmt: skip
    if missing:
        line, col = document.mark(missing[0])
        return [_broken(source.name, line, col, f"no number at {'.'.join(map(str, missing[0]))}", "a saved plan")]
    return [*_claimed(document), *_service(document), *_pools(document)]


def _fields(document: Document) -> list[Problem]:
    """What is wrong with a plan file: another schema, or fields unknown, missing, out of range, contradictory."""
    from mlaplan.engines.saved_plan import Plan, other_schema
    from mlaplan.specs.validate import build

    if (other := other_schema(document.get(("schema",)))) is not None:
        message, expected = other
        return [document.problem(("schema",), message, expected=expected)]
    try:
        build(Plan, document)
    except SpecError as error:
        # an excerpt, as reviews and the examples of rules show, is judged by what it has
        excerpt = not {"model", "chip", "engine"} & document.data.keys()
        return [p for p in error.problems if not (excerpt and p.message.startswith("missing key"))]
    return []


def _claimed(document: Document) -> list[Finding]:
    step = _number(document, ("prediction", "decode", "step_s", "value"))
    if not step:
        return []
    least = _number(document, ("prediction", "decode", "step_s", "low")) or step
    s = {name: document.get(("strategy", name)) for name in ("batch", "dp", "replicas", "devices", "mtp")}
    devices = _number(document, ("strategy", "devices"))
    claimed = _number(document, PLACE) * devices
    in_flight = _number(document, ("prediction", "served", "concurrency"))
    in_flight = in_flight or s["batch"] * s["dp"] * (s["replicas"] or 1)
    tokens = _number(document, ("prediction", "served", "tokens_per_step", "value")) or 1.0
    expected = in_flight * tokens / step
    most = in_flight * (1 + (s["mtp"] if isinstance(s["mtp"], int) else 0)) / least
    if claimed <= expected * SLACK:
        return []
    sure = claimed > most * SLACK
    line, col = document.mark(PLACE)
    message = (f"{claimed:,.0f} tokens/s over {devices:,.0f} chips is claimed; {in_flight:,.0f} requests in flight at "
               f"{tokens:.3g} tokens a step of {1e3 * step:.1f} ms are {expected:,.0f} tokens/s")  # fmt: skip
    found = Found(Word("", document.file, line, col), message, "correct the throughput, the concurrency or the step",
                  None if sure else "warning", claimed, expected, "tokens/s")  # fmt: skip
    return [finding(CLAIMED.code, CLAIMED.slug, CLAIMED.severity, found)]


def _service(document: Document) -> list[Finding]:
    """What the plan's own prediction misses of the limits in its own workload."""
    asked = {name: _number(document, ("workload", key)) or None
             for name, key in (("ttft_s", "ttft_s"), ("tpot_s", "tpot_s"), ("rate", "rate_per_s"))}  # fmt: skip
    if not any(asked.values()):
        return []
    from mlaplan.rules.service import SERVICE as RULES

    paths = {"MLA301": ("ttft_s", "value"), "MLA302": ("tpot_s", "value"), "MLA303": ("requests_per_s", "value")}
    cells = {"MLA301": "ttft_s", "MLA302": "tpot_s", "MLA303": "capacity_per_s"}
    question: Any = SimpleNamespace(workload=SimpleNamespace(**asked))
    out = []
    for rule, own in zip(RULES, SERVICE, strict=True):
        path = ("prediction", "served", *paths[rule.code])
        row = {cells[rule.code]: _number(document, path)}
        if row[cells[rule.code]] and rule.violated(question, row):
            found = Found(Word("", document.file, *document.mark(path)), rule.detail(question, row), own.fix)
            out.append(finding(own.code, own.slug, own.severity, found))
    return out


def _pools(document: Document) -> list[Finding]:
    """Of a plan of two pools: do their instances and chips add up, do they hand over, do both serve what is claimed?"""
    if document.get(("pools",)) is None:
        return []
    out, chips = [], 0.0
    claimed = _number(document, ("prediction", "served", "requests_per_s", "value"))
    for role in ("prefill", "decode"):
        base = ("pools", role)
        s = {n: _number(document, (*base, "strategy", n)) for n in ("tp", "pp", "dp", "replicas")}
        instances, devices = (_number(document, (*base, n)) for n in ("instances", "devices"))
        chips += devices
        if not instances or instances != s["replicas"] or devices != s["tp"] * s["pp"] * s["dp"] * s["replicas"]:
            line, col = document.mark((*base, "devices"))
            expected = f"{s['replicas']:.0f} x tp {s['tp']:.0f} x dp {s['dp']:.0f} x pp {s['pp']:.0f}"
            out.append(_broken(document.file, line, col, f"{instances:.0f} instances of the {role} pool have "
                               f"{devices:.0f} devices", expected))  # fmt: skip
        most = instances * _number(document, (*base, "requests_per_s_of_one"))
        if claimed > most * SLACK:
            line, col = document.mark((*base, "requests_per_s_of_one"))
            found = Found(Word("", document.file, line, col), f"{claimed:.3g} requests/s are claimed; the {role} pool "
                          f"serves {most:.3g}", "correct the rates or the instances", None, claimed, most,
                          "requests/s")  # fmt: skip
            out.append(finding(CLAIMED.code, CLAIMED.slug, CLAIMED.severity, found))
    if chips != _number(document, ("devices",)):
        line, col = document.mark(("devices",))
        total = _number(document, ("devices",))
        out.append(_broken(document.file, line, col, f"the pools have {chips:.0f} devices, not {total:.0f}", None))
    if not _number(document, ("transfer", "time_s")):
        line, col = document.mark(("transfer", "time_s"))
        out.append(_broken(document.file, line, col, "no number at transfer.time_s", "what carries the cache"))
    return [*out, *_joined(document)]


def _joined(document: Document) -> list[Finding]:
    """Whether the connector that the plan names joins its pools."""
    from mlaplan.engines.connectors import connector, told
    from mlaplan.errors import MlaplanError

    named, engine = document.get(("transfer", "connector")), document.get(("engine",))
    if named is None or not isinstance(engine, dict):
        return []
    line, col = document.mark(("transfer", "connector"))
    try:
        pair = [SimpleNamespace(**document.get(("pools", role, "strategy"))) for role in ("prefill", "decode")]
        chip_class = str(document.get(("chip", "class")))
        c = connector(f"{engine.get('name')}@{engine.get('version')}", chip_class, str(named))
        problems = [] if c is None else told(c, pair[0], pair[1], None)
    except MlaplanError as error:
        problems = [str(error)]
    except (TypeError, AttributeError):
        return [_broken(document.file, line, col, "a pool has no whole strategy", "a saved plan")]
    return [_broken(document.file, line, col, problem, None) for problem in problems]


def _number(document: Document, path: tuple[str, ...]) -> float:
    """The positive number at a path, 0 where there is none."""
    value: Any = document.get(path)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e300
    return float(value) if good else 0.0


def _broken(
    file: str, line: int | None, col: int | None, message: str, expected: str | None, hint: str | None = None
) -> Finding:
    text = message + (f"; expected {expected}" if expected else "") + (f"; {hint}" if hint else "")
    return Finding(UNREADABLE.code, UNREADABLE.slug, "error", file, line, col, 1, text)
