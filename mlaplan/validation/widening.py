"""By how much the bands of steps must be widened, from points that gate nothing.

Kernel residuals do not hold what a scheduler or a host does. The factor is the least from 1 on at which the bands
hold 80 % of the published steps and served figures of recent software marked `context`. Held-out points have no
part in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlaplan.costs.band import whole_step
from mlaplan.validation.bars import modern
from mlaplan.validation.points import Point, published
from mlaplan.validation.score import Scored, score

SHARE = 0.8
STEP = 0.05  # the factor is told to this


def points() -> list[Point]:
    """Priced points of whole steps and served figures, of recent software, marked `context`."""
    return [
        p
        for p in published()
        if p.use == "context" and p.set in ("steps", "served") and modern(p) and p.grade in "AB" and not p.not_priced
    ]


def needed(s: Scored) -> float:
    """The factor at which the band of a point just holds what was measured."""
    value, low, high = s.prediction.value
    measured = s.point.value
    return (measured - value) / (high - value) if measured > value else (value - measured) / (value - low)


def factor(scored: Sequence[Scored]) -> float:
    """The least factor from 1 on, in steps of 0.05, whose bands hold 80 % of the points."""
    wants = sorted(needed(s) for s in scored)
    if not wants:
        return 1.0
    last = wants[-(-len(wants) * 4 // 5) - 1]
    return max(round(-(-last // STEP) * STEP, 2), 1.0)


def main() -> None:
    """Prints what band.yaml should hold, given what it holds."""
    found = score(points())
    now = whole_step().widening
    print(f"{len(found)} points, widening {round(now * factor(found), 2) if factor(found) > 1 else now}, now {now}")


if __name__ == "__main__":
    main()
