"""The question that `recommend` asks, for every verb that asks it: its options written once, and its answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.cli.questions import Subject
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides

WORK = ("isl", "osl", "concurrency", "rate", "prefix", "ttft", "tpot")
PINS = (
    "tp", "pp", "dp", "ep", "dcp", "cp", "replicas", "kv_layout", "kv_dtype", "weight_dtype", "block_size", "mtp",
    "batch", "prefill_chunk", "two_batch_overlap",
)  # fmt: skip
OVERRIDES = (
    "memory_fraction", "reserve", "price", "imbalance", "mtp_accept", "redundant_experts", "dcp_merge",
    "dcp_interleave", "shared_ranks", "gather_only",
)  # fmt: skip
APART = ("disagg", "prefill_chip", "decode_chip", "kv_link", "kv_overlap", "kv_connector")
QUESTION = (
    "model", "chip", "devices", *WORK, "objective", "engine", "top", "emit", *PINS, *OVERRIDES, "settings",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer with what it was asked of. `said`: what was taken for options that were not given."""

    subject: Subject
    given: Overrides
    answer: Answer
    said: list[str]


def with_question(*own: str, also: tuple[str, ...] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Gives a verb the options of `recommend` in place of its `**question`, except those it has itself.

    own: options of `recommend` that this verb does not take. also: others that it takes.
    """

    def decorate(verb: Callable[..., int]) -> Callable[..., int]:
        from mlaplan.cli.recommend import recommend

        mine = dict(inspect.signature(verb, eval_str=True).parameters)
        rest = next(n for n, p in mine.items() if p.kind is p.VAR_KEYWORD)
        del mine[rest]
        asked = inspect.signature(recommend, eval_str=True).parameters
        taken = [asked[n] for n in asked if n in (*QUESTION, *also) and n not in (*own, *mine)]
        parameters = sorted([*taken, *mine.values()], key=lambda p: p.default is not p.empty)
        verb.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        return verb

    return decorate


def answered(o: Mapping[str, Any]) -> Answered:
    """The answer to the options of `recommend`, by name; what is worth saying beside it goes to stderr."""
    from mlaplan.cli import launching, questions, strategies
    from mlaplan.cli.recommend import ISL, OSL, _completed, _tokens
    from mlaplan.plan import question
    from mlaplan.plan import recommend as run
    from mlaplan.report.plan_text import Answer

    emit, devices, objective = o["emit"], o["devices"], o["objective"].value
    work = questions.workload(
        _tokens("--isl", o["isl"], ISL), _tokens("--osl", o["osl"], OSL),
        concurrency=o["concurrency"], rate=o["rate"], prefix=o["prefix"], ttft=o["ttft"], tpot=o["tpot"],
    )  # fmt: skip
    pins = strategies.given(**{name: o[name] for name in PINS})
    strategies.check_pins(pins, devices)
    given = questions.overrides(**{name: o[name] for name in OVERRIDES})
    subject = questions.subject(o["model"], o["chip"], o["engine"] or emit, o["settings"])
    if emit is not None:
        launching.check(emit)
    questions.check_drafts(subject.model, o["mtp"], o["mtp_accept"])
    strategies.check_precision(subject, pins)
    strategies.check_merge(given, pins.get("dcp"))
    q = question(subject.chip, subject.model, subject.profile, work, given)
    found = run(q, devices, objective=objective, fixed=pins, top=o["top"], given=given)
    if found.considered == 0:
        pinned = ", ".join(f"{name} {value}" for name, value in pins.items())
        raise MlaplanError(f"no structure on {devices} chips has all that is pinned: {pinned}")
    taken = [f"--{n} {v}" for n, t, v in (("isl", o["isl"], work.isl), ("osl", o["osl"], work.osl)) if t is None]
    said = [f"not given and taken: {' '.join(taken)}"] if taken else []
    answer = _completed(Answer(q, devices, objective, pins, found, None, []), given, emit)
    return Answered(subject, given, answer, said)


def command_line(name: str, verb: Callable[..., int], asked: Mapping[str, Any]) -> str:
    """The command that asks the same again: arguments, and options that are not at their defaults."""
    import shlex

    from typer.models import ArgumentInfo

    words = ["mlaplan", name]
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.name not in asked:
            continue
        value = asked[parameter.name]
        (option,) = parameter.annotation.__metadata__
        if isinstance(option, ArgumentInfo):
            words.append(str(value))
        elif value is not None and value != parameter.default:
            words += _flag(option.default if isinstance(option.default, str) else option.param_decls[0], value)
    return shlex.join(words)


def _flag(flag: str, value: Any) -> list[str]:
    """An option with its value as it is typed."""
    if isinstance(value, bool):
        on, off = flag.split("/")
        return [on if value else off]
    if isinstance(value, list):
        return [word for one in value for word in _flag(flag, one)]
    return [flag, str(value.value if hasattr(value, "value") else value)]
