"""From the texts of the shared options to what is asked: specs, engine, workload, overrides."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError, UnknownName
from mlaplan.pins import check_drafts as check_drafts

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile
    from mlaplan.rules.rule import Question
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model
    from mlaplan.workload import Overrides, Workload

MOST_TOKENS = 100_000_000  # far above any context, and products with bytes stay within 64 bits
MOST_TIMES = 1000  # the mean, or the tokens of a step
EXAMPLES = {"--ttft": "5s", "--tpot": "60ms", "--reserve": "6 GiB", "--memory-fraction": "0.92"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is planned for; `engine` is the name the user gave, `given_chip` and `given_model` likewise."""

    model: Model
    chip: Chip
    profile: Profile
    given_model: str
    given_chip: str
    engine: str | None
    settings: tuple[str, ...]


def subject(model: str, chip: str, engine: str | None, settings: Sequence[str] | None) -> Subject:
    """The specs and the engine by name; what is doubtful in the chip's figures goes to stderr."""
    from mlaplan.engines.load import ANY, asked_release, default_engine, load_profile
    from mlaplan.specs.lookup import load_chip, load_model

    try:
        loaded = load_model(model)
    except UnknownName:
        _refuse_swapped(model, chip)
        raise
    spec = load_chip(chip, settings or (), *asked_release(engine or ANY))
    named = engine or default_engine(spec)
    if engine is None and named != ANY:  # its own fits
        spec = load_chip(chip, settings or (), named)
    profile = load_profile(named)
    if spec.name in profile.not_on:
        raise MlaplanError(f"{profile.label} does not run on {spec.title}; --engine generic prices it")
    found = Subject(loaded, spec, profile, model, chip, engine, tuple(settings or ()))
    tell(warning.text() for warning in found.chip.warnings)
    return found


def _refuse_swapped(model: str, chip: str) -> None:
    from mlaplan.specs.lookup import chip_names, model_names

    if model in dict(chip_names()) and chip in dict(model_names()):
        raise MlaplanError(f"'{model}' is a chip and '{chip}' is a model; expected MODEL CHIP, in this order")


def tell(lines: Iterable[str]) -> None:
    """What is worth saying beside the result."""
    for line in lines:
        print(line, file=sys.stderr)


def quantity(flag: str, text: str, dimension: str) -> float:
    """SI value of an option's text; the complaint names the option and shows what it takes."""
    from mlaplan import units

    try:
        return units.parse(text, dimension)
    except units.UnitError as error:
        wanted = units.expected(dimension)
        if flag in EXAMPLES:
            wanted = f"{units.NAMES[dimension][0]} such as '{EXAMPLES[flag]}'"
        hint = error.hint
        if hint is None and dimension == "s" and error.problem.endswith("has no unit"):
            hint = f"did you mean '{text.strip()}ms' or '{text.strip()}s'?"
        parts = [f"{flag}: {error.problem}", f"expected {wanted}", *([hint] if hint else [])]
        raise MlaplanError("; ".join(parts)) from None


def optional(flag: str, text: str | None, dimension: str) -> float | None:
    """`quantity`, or None where the option is not given."""
    return None if text is None else quantity(flag, text, dimension)


def tokens(flag: str, text: str) -> int:
    """A number of tokens of an option: 4096 or 4k."""
    from mlaplan import units

    try:
        found = units.parse_tokens(text)
    except units.UnitError as error:
        raise MlaplanError(f"{flag}: {error}") from None
    if found > MOST_TOKENS:
        raise MlaplanError(f"{flag}: {text} is too many to be real; expected at most {MOST_TOKENS:,} tokens")
    return found


def workload(
    isl: int,
    osl: int,
    *,
    concurrency: int | None = None,
    rate: str | None = None,
    prefix: str | None = None,
    ttft: str | None = None,
    tpot: str | None = None,
    groups: int | None = None,
    routing: bool | None = None,
) -> Workload:
    """The traffic and the service level."""
    from mlaplan.workload import Workload

    if routing is not None and groups is None:
        raise MlaplanError("--prefix-routing goes with --prefix-groups: without groups no cache is better than another")
    return Workload(
        isl,
        osl,
        concurrency,
        optional("--rate", rate, "rate"),
        0 if prefix is None else prefix_tokens(prefix, isl),
        optional("--ttft", ttft, "s"),
        optional("--tpot", tpot, "s"),
        groups,
        True if routing is None else routing,
    )


def asked(s: Subject, work: Workload, given: Overrides, pins: Mapping[str, Any]) -> tuple[Question, list[str]]:
    """The question, with a shared prefix in whole blocks of the caches that it considers."""
    from mlaplan.plan import question
    from mlaplan.search import axes

    q = question(s.chip, s.model, s.profile, work, given)
    if work.prefix_groups is None:
        return q, []
    whole, said = in_blocks(work, max(axes(q, pins).block_size))
    return question(s.chip, s.model, s.profile, whole, given), said


def in_blocks(work: Workload, block: int) -> tuple[Workload, list[str]]:
    """The workload with a shared prefix in whole blocks of the cache, and what that changes."""
    from dataclasses import replace

    if work.prefix_groups is None or work.prefix_tokens % block == 0:
        return work, []
    whole = work.prefix_tokens // block * block
    if not whole:
        raise MlaplanError(
            f"--prefix {work.prefix_tokens}: is shorter than a block of {block} tokens, and reuse is in whole blocks"
        )
    said = f"a prefix is reused in whole blocks: {whole:,} of its {work.prefix_tokens:,} tokens, in blocks of {block}"
    return replace(work, prefix_tokens=whole), [said]


def prefix_tokens(text: str, isl: int) -> int:
    """Cached prompt tokens: a count (2048, 2k), or a share of the prompt (0.5, 50 %)."""
    if re.search(r"len\s*\(|char|byte|zeichen|字符|字节", text, re.IGNORECASE):
        raise MlaplanError(
            f"--prefix: '{text}' counts characters; a cache is reused by tokens, in whole blocks, and a tokenizer "
            "makes other numbers of them; expected tokens such as 3000 or 3k"
        )
    if text.rstrip().endswith("%") or ("." in text and text.strip()[-1:] not in "kKmM"):
        share = quantity("--prefix", text, "fraction")
        if share > 1:
            raise MlaplanError(f"--prefix: {text} is more than the whole prompt; expected a share below 1")
        return round(share * isl)
    return tokens("--prefix", text)


def overrides(
    *,
    memory_fraction: str | None,
    reserve: str | None,
    price: str | None,
    imbalance: float | None,
    mtp_accept: float | None,
    redundant_experts: int,
    dcp_merge: Any = None,
    dcp_interleave: int | None = None,
    shared_ranks: int = 0,
    gather_only: bool = False,
) -> Overrides:
    """What the user knows better."""
    from math import isfinite

    from mlaplan.workload import Overrides

    for flag, number in (("--imbalance", imbalance), ("--mtp-accept", mtp_accept)):
        if number is not None and not isfinite(number):
            raise MlaplanError(f"{flag}: {number} is not a finite number")
        if number is not None and number > MOST_TIMES:
            raise MlaplanError(f"{flag}: {number:g} is too large to be real; expected at most {MOST_TIMES:,}")
    return Overrides(
        optional("--memory-fraction", memory_fraction, "fraction"),
        optional("--reserve", reserve, "bytes"),
        optional("--price", price, "usd/h"),
        imbalance,
        mtp_accept,
        redundant_experts,
        None if dcp_merge is None else dcp_merge.value,
        dcp_interleave,
        shared_ranks,
        gather_only,
    )
