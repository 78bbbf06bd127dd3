"""Bands of a split: those of the steps that it is made of.

TTFT goes with the prefill step, TPOT with the decode step, throughput with the slower pool. The network's own doubt is
small beside them where the transfer hides, and is not in the band.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlaplan.costs import band
from mlaplan.explain import explain
from mlaplan.fleet.instances import alone
from mlaplan.pricing import acceptance

if TYPE_CHECKING:
    from mlaplan.costs.engine import Interval
    from mlaplan.explain import Explanation
    from mlaplan.fleet.split import Side, Split
    from mlaplan.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Banded:
    """Both pools' instances with their steps, and the split's figures with their bands."""

    prefill: Explanation
    decode: Explanation
    ttft_s: Interval
    tpot_s: Interval | None
    tok_s_chip: Interval
    tokens_per_step: Interval


def banded(s: Split, tokens: float | None) -> Banded:
    """Prices one instance of each pool in detail."""
    p = explain(alone(s.prefill.q, osl=1), _instance(s.prefill), tokens_given=tokens)
    work = s.decode.q.workload
    # the step as the load fills it
    filled = replace(_instance(s.decode), batch=max(round(s.filled), 1))
    d = explain(s.decode.q, filled, decode_context=work.mean_context, served=False, tokens_given=tokens)
    assert p.prefill is not None and d.decode is not None  # both are priced
    of_prefill, of_decode = band.relative(p.prefill.step_s), band.relative(d.decode.step_s)
    ttft = band.scaled(of_prefill, s.ttft_s).around(s.ttft_s)
    tpot = None if s.tpot_s is None else band.scaled(of_decode, s.tpot_s).around(s.tpot_s)
    slower = of_prefill if s.prefill.utilisation >= s.decode.utilisation else of_decode
    drafted = acceptance(s.decode.q, s.decode.strategy.mtp, tokens)
    return Banded(p, d, ttft, tpot, band.inverse(s.tok_s_chip, slower.around(1.0)), drafted)


def _instance(side: Side) -> Strategy:
    return replace(side.strategy, replicas=1)
