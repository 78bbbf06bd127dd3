"""Numbers and strategies as a person would say them."""

from __future__ import annotations

import pytest

from mlaplan.costs.engine import Interval, exactly
from mlaplan.report import words
from mlaplan.specs.lookup import load_chip
from mlaplan.strategy import Strategy
from mlaplan.units import format_seconds
from mlaplan.workload import Workload


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12345.6, "12,346"), (688.6, "689"), (99.96, "100"), (21.46, "21.5"), (1.234, "1.23"), (0, "0.00")],
)
def test_numbers_have_some_three_digits(value: float, shown: str) -> None:
    assert words.plain(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"), [(0.416, "42 %"), (0.0999, "10 %"), (0.064, "6.4 %"), (0.0001, "0 %"), (-0.3, "-30 %")]
)
def test_shares_are_whole_percent_from_ten_on(share: float, shown: str) -> None:
    assert words.percent(share) == shown


def test_a_band_names_its_unit_once_where_it_is_one() -> None:
    assert words.span(Interval(0.0465, 0.0364, 0.07), format_seconds) == "46.5 ms (36.4 to 70.0 ms)"
    assert words.span(Interval(0.7, 0.5, 1.2), format_seconds) == "700 ms (500 ms to 1.20 s)"
    assert words.span(exactly(2.0)) == "2.00"


def test_counts_have_a_plural() -> None:
    assert [words.times(1, "chip"), words.times(1024, "chip"), words.times(2, "query")] == [
        "1 chip",
        "1,024 chips",
        "2 queries",
    ]


def test_nodes_are_counted_in_whole_ones() -> None:
    assert words.chips(Strategy(tp=8), 8) == "8 chips"
    assert words.chips(Strategy(tp=8, pp=3), 8) == "24 chips (3 nodes of 8)"
    assert words.chips(Strategy(tp=4, pp=3), 8) == "12 chips (2 nodes of 8)"


def test_a_workload_in_words() -> None:
    w = Workload(4096, 1024, rate=2.5, prefix_tokens=1000, ttft_s=5.0, tpot_s=0.06)
    said = (
        "4,096 tokens in, 1,024 out, 1,000 of the prompt cached, 2.50 requests/s, TTFT up to 5.00 s, TPOT up to 60.0 ms"
    )
    assert words.workload(w) == said
    assert words.workload(Workload(1, 1)).endswith("any number in flight")


def test_nothing_is_a_dash() -> None:
    assert words.size(0.0) == "-" and words.flops(0.0) == "-"
    assert words.size(1.5e9) == "1.50 GB" and words.flops(2e12) == "2.00 T"


def test_kernels_of_a_chip_without_a_calibration_are_told_as_its_classes() -> None:
    """AMD's chips have no fit but of products; H200 has its own, and with an engine that engine's."""
    assert words.kernels(load_chip("mi300x")) == [
        "not calibrated: defaults of class amd-cdna3 but for gemm, and bands as wide as theirs"
    ]
    assert words.kernels(load_chip("h200-sxm")) == []
    (file,) = words.kernels(load_chip("h200-sxm", engine="sglang"))
    assert file.endswith("h200-sxm.sglang.cal.yaml")
