"""What would admit the nearest miss, in the numbers of the question."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlaplan.plan import Miss
    from mlaplan.rules.rule import Question


def smallest_change(q: Question, miss: Miss, tokens_given: float | None) -> str | None:
    """The limits that the nearest miss keeps, where it misses the service level; else what the search found."""
    from mlaplan.explain import explain

    if not miss.code.startswith("MLA3"):
        return miss.change
    served, w = explain(q, miss.strategy, tokens_given=tokens_given).served, q.workload
    if served is None:
        return miss.change
    flags = []
    if w.ttft_s is not None and served.ttft_s.value > w.ttft_s:
        flags.append(f"--ttft {_above(served.ttft_s.value)}")
    if w.tpot_s is not None and served.tpot_s is not None and served.tpot_s.value > w.tpot_s:
        flags.append(f"--tpot {_above(served.tpot_s.value)}")
    if w.rate is not None and served.requests_per_s.value < w.rate:
        flags.append(f"--rate {math.floor(served.requests_per_s.value * 100) / 100:g}")
    if not flags:
        return miss.change
    return f"{' and '.join(flags)} would admit it; or more chips, or fewer requests in flight"


def _above(seconds: float) -> str:
    """A time of two or three figures not below the given one, as an option takes it."""
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e-3)
    step = 10.0 ** (math.floor(math.log10(seconds / factor)) - 1)
    return f"{round(math.ceil(seconds / factor / step - 1e-9) * step, 6):g}{unit}"
