"""What the band of a step is made of gives that band again."""

from __future__ import annotations

import math

import pytest

from mlaplan.explain import explain
from mlaplan.report import bands
from mlaplan.strategy import Strategy
from tests.report.test_why import asked


@pytest.mark.parametrize(
    "s",
    [
        Strategy(tp=4, dp=2, ep=8, weight_dtype="fp8", batch=16, mtp=1),
        Strategy(tp=8, pp=2, weight_dtype="fp8", batch=32),
        Strategy(dp=8, ep=8, weight_dtype="fp8", batch=4, kv_dtype="fp8"),
    ],
    ids=lambda s: s.label(),
)
def test_the_doubts_add_up_to_the_band(s: Strategy) -> None:
    q = asked()
    e = explain(q, s)
    assert e.decode is not None and e.served is not None and e.served.tpot_s is not None
    found = bands.doubts(q, e)
    step = e.decode.step_s
    assert math.hypot(*(d.up_s for d in found)) == pytest.approx(step.high - step.value, rel=1e-9)
    assert math.hypot(*(d.down_s for d in found)) == pytest.approx(step.value - step.low, rel=1e-9)
    routing = bands.routing(q, e)
    assert routing is not None and routing.up_s > 0 and routing.down_s >= 0


def test_a_dense_model_has_no_doubt_about_routing() -> None:
    q = asked("llama-3-70b")
    e = explain(q, Strategy(tp=8, batch=4))
    assert bands.routing(q, e) is None
