"""Fetch or recompute, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import tiers
from mlaplan.costs.tiers import Link
from mlaplan.specs.lookup import load_chip


def test_a_llama_prompt_over_pcie_by_hand() -> None:
    """8192 x 40,960 B at 48 GB/s and 10 us: 7.0 ms, against a prefill of 1.3 s; even at 258 MB/s."""
    link = Link("PCIe", 48e9, 10e-6)
    assert tiers.fetch_s(8192, 40_960, link) == pytest.approx(10e-6 + 8192 * 40_960 / 48e9)
    even = tiers.break_even_bytes_per_s(8192, 40_960, 1.3, 10e-6)
    assert even == pytest.approx(8192 * 40_960 / (1.3 - 10e-6))


def test_links_are_the_chips_own_or_as_given() -> None:
    ascend = load_chip("ascend-910b3")
    host, pool = tiers.host_link(ascend, None), tiers.pool_link(ascend, None)
    assert host is not None and host.bytes_per_s == pytest.approx(0.75 * 64e9)
    assert pool is not None and pool.bytes_per_s == pytest.approx(0.7 * 25e9)
    given_ = tiers.host_link(load_chip("sc11"), 5e9)
    assert given_ is not None and given_.bytes_per_s == 5e9
    assert tiers.pool_link(load_chip("sc11"), None) is None


@given(st.integers(1, 200_000), st.floats(100, 1e6), st.floats(1e-3, 100), st.floats(1e7, 1e12))
def test_a_link_above_break_even_is_faster_than_computing(n: int, row: float, compute: float, rate: float) -> None:
    even = float(tiers.break_even_bytes_per_s(n, row, compute, 1e-5))
    if abs(rate / even - 1) > 1e-6:
        assert (tiers.fetch_s(n, row, Link("x", rate, 1e-5)) < compute) is (rate > even)
