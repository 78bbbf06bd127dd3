"""A client that did not warm the server up meets one compilation in its first burst; one that did meets none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlaplan.costs.band import whole_step
from mlaplan.validation.points import published
from mlaplan.validation.served import served_value


def test_one_compilation_reaches_a_tenth_of_the_requests() -> None:
    """Ten requests a client: those of the first burst, a tenth of all, come so much later."""
    point = next(p for p in published() if p.id == "infx-h200-r1-c8-ttft")
    cold = whole_step().cold_start_s
    found = {}
    for warmed in (True, False):
        found[warmed] = served_value(replace(point, given={**point.given, "warmed": warmed}))[0]
    assert found[False].value - found[True].value == pytest.approx(cold.value / 10, rel=0.05)
    # the band holds a cold server and a warm one in any case
    for one in found.values():
        assert one.low <= found[True].value and one.high >= found[True].value + cold.high / 10


def test_nothing_said_is_warm() -> None:
    point = next(p for p in published() if p.id == "infx-h200-r1-c8-ttft")
    silent = {name: value for name, value in point.given.items() if name != "warmed"}
    assert served_value(replace(point, given=silent))[0] == served_value(point)[0]
