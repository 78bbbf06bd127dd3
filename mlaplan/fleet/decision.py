"""Together or apart: both ways on the same chips, which serves more, and from which ISL:OSL on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlaplan.fleet.bands import Banded, banded
from mlaplan.fleet.crossover import Both, Point, crossings, points
from mlaplan.fleet.split import Ask, Split, split

if TYPE_CHECKING:
    from mlaplan.plan import Recommendation
    from mlaplan.workload import Overrides


@dataclass(frozen=True, slots=True)
class Decision:
    """mode: on or auto. wins: `apart`, `together`, or None where neither serves. usd: per hour of all chips apart."""

    mode: str
    wins: str | None
    ask: Ask
    together: Recommendation
    split: Split | None
    bands: Banded | None
    points: list[Point]
    crossings: list[float]
    usd_per_hour: float | None

    @property
    def usd_per_mtok(self) -> float | None:
        if self.split is None or self.usd_per_hour is None or not self.split.requests_per_s:
            return None
        return self.usd_per_hour / 3600.0 / (self.split.requests_per_s * self.split.decode.q.workload.osl) * 1e6


def decide(together: Recommendation, of: Both, given: Overrides, mode: str, *, curve: bool = True) -> Decision:
    """Searches both pools and compares with the plan that keeps prefill and decode together; curve: over ISL:OSL."""
    tokens, ask = of.tokens, of.ask
    found = split(of.prefill, of.decode, ask, of.split_pins, tokens)
    served = together.plans[0].served if together.plans else None
    wins = "together" if served is not None else None
    if found is not None and (mode == "on" or served is None or found.tok_s_chip > served.tok_s_chip.value):
        wins = "apart"
    along = points(of) if curve and (found or together.plans) else []
    return Decision(
        mode, wins, ask, together, found, banded(found, tokens) if found else None, along, crossings(along),
        _price(found, given) if found else None,
    )  # fmt: skip


def _price(s: Split, given: Overrides) -> float | None:
    if given.price_usd_per_hour is not None:
        return given.price_usd_per_hour * s.chips
    total = 0.0
    for side in (s.prefill, s.decode):
        price = side.q.setting.chip.price
        if price is None:
            return None
        total += float(price) * side.chips
    return total
