"""From the texts of the shared options to what is asked: specs, engine, workload, overrides."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError, UnknownName
from mlaplan.pins import check_drafts as check_drafts

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile
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
    from mlaplan.engines.load import load_profile
    from mlaplan.specs.lookup import load_chip, load_model

    try:
        loaded = load_model(model)
    except UnknownName:
        _refuse_swapped(model, chip)
        raise
    found = Subject(
        loaded,
        load_chip(chip, settings or (), engine or "generic"),
        load_profile(engine or "generic"),
        model,
        chip,
        engine,
        tuple(settings or ()),
    )
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
) -> Workload:
    """The traffic and the service level."""
    from mlaplan.workload import Workload

    return Workload(
        isl,
        osl,
        concurrency,
        optional("--rate", rate, "rate"),
        0 if prefix is None else prefix_tokens(prefix, isl),
        optional("--ttft", ttft, "s"),
        optional("--tpot", tpot, "s"),
    )


def prefix_tokens(text: str, isl: int) -> int:
    """Cached prompt tokens: a count (2048, 2k), or a share of the prompt (0.5, 50 %)."""
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
    )
