"""Limits are rounded so that they admit what they are derived from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.report.nearest import _above
from mlaplan.units import parse


@pytest.mark.parametrize(
    ("seconds", "limit"), [(0.0612, "62ms"), (1.26, "1.3s"), (0.0041, "4.1ms"), (27.3, "28s"), (0.0005, "0.5ms")]
)
def test_a_limit_has_two_figures(seconds: float, limit: str) -> None:
    assert _above(seconds) == limit


@given(st.floats(1e-6, 1e4))
def test_a_limit_is_never_below_and_at_most_a_tenth_above(seconds: float) -> None:
    assert seconds * (1 - 1e-9) <= parse(_above(seconds), "s") <= seconds * 1.11
