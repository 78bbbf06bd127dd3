"""Dispatch and combine: copies, distinct destinations, the two tiers."""

import math

import numpy as np
import pytest
from scalar.cases import chip as shipped

from mlaplan.costs import expert_parallel as ep

from . import round as r


def test_a_token_on_the_wire():
    # 7168 fp8 numbers and 56 fp32 scales; 7168 bf16 numbers
    assert ep.copy_bytes(7168, True) == 7168 + 56 * 4 == 7392
    assert ep.copy_bytes(7168, False) == 14336


def test_distinct_destinations():
    # 2 places, 1 draw: 1. 2 places, 2 draws: 2 (1 - 1/4) = 1.5. One place is hit by any draw
    assert ep.distinct(2, 1) == 1.0
    assert ep.distinct(2, 2) == 1.5
    assert ep.distinct(1, 8) == 1.0
    assert ep.distinct(np.array([1, 2]), 2).tolist() == [1.0, 1.5]


def test_low_latency_in_a_node_leaves_out_what_stays_on_the_chip():
    # 10 tokens x 4 copies x 1000 B over 8 chips: 7/8 of 40 kB over 100 GB/s, after 10 us
    found = ep.low_latency_s(r.chip(), "dispatch", 10, 4, 1000, 8)
    assert found == pytest.approx(10e-6 + 35e3 / 100e9, rel=1e-14)
    assert ep.low_latency_s(r.chip(), "dispatch", 10, 4, 1000, 1) == 0.0


def test_low_latency_over_nodes_is_bound_by_the_slower_tier():
    # 2 nodes: half of 4 MB leaves over 10 GB/s: 10 us + 1 hop of 2 us + 200 us
    found = ep.low_latency_s(r.chip(), "dispatch", 1000, 4, 1000, 16)
    assert found == pytest.approx(10e-6 + 2e-6 + 200e-6, rel=1e-14)
    # a few bytes: both tiers cost their latency, and the network's is longer
    assert ep.low_latency_s(r.chip(), "dispatch", 1, 1, 1, 16) == pytest.approx(12e-6, rel=1e-4)


def test_a_measured_table_counts_every_copy():
    h200 = shipped("h200-sxm")
    fit = h200.scale_up.collectives["dispatch"]
    found = float(ep.low_latency_s(h200, "dispatch", 128, 8, 7392, 8))
    assert found == pytest.approx(fit.alpha[0] + 128 * 8 * 7392 / fit.bandwidth[0], rel=1e-14)
    wide = h200.scale_out.collectives["dispatch"]
    found = float(ep.low_latency_s(h200, "dispatch", 128, 8, 7392, 16))
    assert found == pytest.approx(wide.alpha[0] + 128 * 8 * 7392 / wide.bandwidth[0], rel=1e-14)


@pytest.mark.parametrize(("op", "each", "time_us", "gb_s"), [("dispatch", 7392, 77, 98), ("combine", 14336, 114, 127)])
def test_copies_are_counted_as_deepep_counts_them(op, each, time_us, gb_s):
    """DeepEP's README: 128 tokens, hidden 7168, top-8, EP8: 77 us at 98 GB/s out, 114 us at 127 GB/s back."""
    assert 128 * 8 * each / (gb_s * 1e9) == pytest.approx(time_us * 1e-6, rel=0.02), op


def test_normal_mode_sends_one_copy_per_destination():
    c = r.chip()
    # 8 chips in a node: 8 (1 - (7/8)^4) distinct, 7/8 of them elsewhere
    distinct = 8 * (1 - (7 / 8) ** 4) * 7 / 8
    found = ep.normal_s(c, "dispatch", 1000, 4, 1000, 8, 4)
    assert found == pytest.approx(10e-6 + 1000 * distinct * 1000 / 100e9, rel=1e-14)
    # 2 nodes: 1.875 distinct of 4 draws, half of them the other node: 0.9375 MB over 10 GB/s
    found = ep.normal_s(c, "dispatch", 1000, 4, 1000, 16, 4)
    assert found == pytest.approx(12e-6 + 937.5e3 / 10e9, rel=1e-14)
    # a router that stays in one node sends half a copy out on average
    limited = ep.normal_s(c, "dispatch", 1000, 4, 1000, 16, 1)
    assert limited == pytest.approx(12e-6 + 500e3 / 10e9, rel=1e-14)


def test_without_a_network_experts_stay_in_the_node():
    alone = r.chip().model_copy(update={"scale_out": None})
    assert ep.low_latency_s(alone, "dispatch", 1, 1, 1, 16) == math.inf
    assert ep.normal_s(alone, "dispatch", 1, 1, 1, 16, 1) == math.inf
    assert ep.low_latency_s(alone, "dispatch", 1, 1, 1, 8) < math.inf


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm", "b200-sxm", "mi300x", "ascend-910c-die", "gb200"])
def test_more_tokens_never_take_less_time(name):
    tokens = np.array([0.5, 1, 8, 64, 512, 4096])
    for ranks in (8, 16, 64):
        for op in ("dispatch", "combine"):
            low = ep.low_latency_s(shipped(name), op, tokens, 8, 7392, ranks)
            normal = ep.normal_s(shipped(name), op, tokens, 8, 7392, ranks, 4)
            assert np.all(np.diff(low) >= 0)
            assert np.all(np.diff(normal) >= 0)
