"""The lower cliff of a gather in slices, and jitter by link: what nobody measured is an interval, and said to be."""

import pytest

from mlaplan.costs import overlap
from mlaplan.costs.study import Asked, study
from mlaplan.specs.lookup import load_chip, load_model

V3 = load_model("deepseek-v3").attention["mla"]


def studied(chip, *settings, **asked):
    return study(load_chip(chip, settings), V3, Asked(8, 32, 4096, **asked), "absorbed")


@pytest.mark.parametrize("chip", ["k3", "mi300x", "b200-sxm", "ascend-910b3"])
def test_both_ends_are_what_the_sweep_of_such_a_chip_gives(chip):
    cliff = studied(chip).cliff
    for i, (descriptor, switch) in enumerate(cliff.costs_s):
        at = studied(chip, f"dma.descriptor={descriptor} s", f"overheads.task_switch={switch} s").plan
        assert cliff.least_bytes[i] == min(c.slice_bytes for c in at.sweep if c.on_plateau)
        assert cliff.step_s[i] == pytest.approx(min(c.step_s for c in at.sweep))
        without = min(m.step_s for m in at.modes if not m.slice_bytes)
        assert cliff.pays[i] == (cliff.step_s[i] < without)
    assert cliff.least_bytes[0] <= cliff.least_bytes[1] and cliff.step_s[0] <= cliff.step_s[1]


@pytest.mark.parametrize("chip", ["h200-sxm", "a100-sxm-80g", "mi300x", "mi355x", "gb200", "ascend-910b1"])
def test_what_a_slice_costs_is_no_kernel_of_its_own(chip):
    """Between an instruction and a kernel: the middle is neither, and nobody measured it."""
    found, kernel = overlap.fixed_costs(load_chip(chip)), float(load_chip(chip).overheads.kernel)
    assert found.assumed == ("descriptor", "task switch")
    rates = overlap.rates(load_chip(chip), 8, "absorbed")
    for low, value, high in zip(found.low, (rates.descriptor_s, rates.switch_s), found.high, strict=True):
        assert 0 < low < value < high <= kernel
    assert not any("descriptor" in one or "switch" in one for one in rates.assumed)


def test_each_link_has_its_own_jitter_and_the_user_has_the_last_word():
    inside, network = studied("h200-sxm").tiers
    assert (inside.jitter, network.jitter) == (0.3, 1.0) and inside.assumed and network.assumed
    for tier in (inside, network):
        transfer = tier.slice_bytes / tier.link_bytes_per_s
        assert tier.jitter_s == pytest.approx(tier.jitter * (transfer + tier.latency_s), rel=0.01)
        assert tier.depth >= tier.depth_needed
        assert tier.stated_covers == (tier.stated_covered_s >= tier.jitter_s)
    for own in (0.0, 0.7):
        assert [(t.jitter, t.assumed) for t in studied("h200-sxm", jitter=own).tiers] == [(own, False)] * 2


def test_more_jitter_never_asks_for_less_staging():
    depths = [studied("h100-sxm", jitter=j).tiers[1].depth for j in (0.0, 0.3, 1.0, 3.0)]
    assert depths == sorted(depths) and depths[0] < depths[-1]
