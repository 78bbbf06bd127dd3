"""Service levels of a distribution: `p95:2s`, or a time alone for the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.serving.simulator.outcome import Limit


def limit(flag: str, text: str | None) -> Limit | None:
    """The limit of an option's text; None where the option is not given."""
    from mlaplan.cli.questions import quantity
    from mlaplan.serving.simulator.outcome import Limit

    if text is None:
        return None
    head, colon, time = text.strip().rpartition(":")
    percentile = 0.0
    if colon:
        percentile = _percentile(flag, text, head)
    seconds = quantity(flag, time, "s")
    if not seconds > 0:
        raise MlaplanError(f"{flag}: '{text}' allows no time; expected a time above 0")
    return Limit(percentile, seconds)


def _percentile(flag: str, text: str, head: str) -> float:
    if head == "mean":
        return 0.0
    try:
        found = float(head.removeprefix("p"))
    except ValueError:
        found = -1.0
    if not head.startswith("p") or not 0 < found <= 100:
        raise MlaplanError(f"{flag}: '{text}': unknown '{head}'; expected such as p95:{text.rpartition(':')[2]}")
    return found
