"""Ticks that people read, and axes that carry units."""

from __future__ import annotations

import pytest

from mlaplan.report.plots import scale
from mlaplan.sweep.rows import columns


@pytest.mark.parametrize(
    ("value", "text"),
    [(1024, "1k"), (4096, "4k"), (131072, "128k"), (1048576, "1m"), (4000, "4,000"), (1536, "1,536"), (512, "512")],
)
def test_tokens(value: float, text: str) -> None:
    assert scale.tokens(value) == text


@pytest.mark.parametrize(("value", "text"), [(1500, "1,500"), (2e6, "2M"), (0.05, "0.05"), (3e12, "3T"), (12, "12")])
def test_numbers_have_no_k_which_counts_1024_tokens(value: float, text: str) -> None:
    assert scale.number(value) == text


@pytest.mark.parametrize(("low", "high", "most"), [(1, 1000, 7), (20, 1300, 7), (1e-3, 1e9, 7), (8, 70, 5), (3, 4, 7)])
def test_steps_are_few_round_and_within(low: float, high: float, most: int) -> None:
    found = scale.steps(low, high, most)
    assert len(found) <= most
    assert all(low * (1 - 1e-6) <= x <= high * (1 + 1e-6) for x in found)


def test_every_figure_of_a_plan_has_its_unit_on_the_axis() -> None:
    for column in columns():
        if column.kind != "float":
            continue
        name = scale.axis_label(column.name)
        units = (", s", "second", "USD", "bytes", "%", "share", "tokens", "requests", "loads", "step")
        assert any(unit in name for unit in units), (column.name, name)
