"""Collectives: volumes, measured tables, topology, two tiers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar.cases import chip as shipped

from mlaplan.costs import collectives as net
from mlaplan.costs.collectives import Group
from mlaplan.report.notes import extrapolated
from mlaplan.specs.lookup import chip_names

from . import round as r

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SWITCHED = [n for n, _ in chip_names() if shipped(n).scale_up.topology == "switch"]


def test_volumes_that_one_chip_sends():
    assert net.volume_bytes("all_reduce", 8e6, 8) == 14e6
    assert [net.volume_bytes(op, 8e6, 8) for op in OPS[1:]] == [7e6] * 3
    assert net.volume_bytes("send", 8e6, 2) == 8e6
    assert [net.volume_bytes(op, 8e6, 1) for op in (*OPS, "send")] == [0.0] * 5
    assert net.volume_bytes("all_reduce", 8e6, np.array([1, 2, 4])).tolist() == [0.0, 8e6, 12e6]


def test_a_measured_collective_is_interpolated_over_log2_of_the_ranks():
    fit = r.chip().scale_up.collectives["all_reduce"]  # 2 and 8 ranks: 5 and 9 us, 100 and 200 GB/s
    # 2 ranks: 5 us + 1 MB / 100 GB/s
    assert net.fitted_s(fit, "all_reduce", 1e6, 2) == pytest.approx(15e-6, rel=1e-14)
    # 4 lies half way between 2 and 8: 7 us + 1.5 MB / 150 GB/s
    assert net.fitted_s(fit, "all_reduce", 1e6, 4) == pytest.approx(17e-6, rel=1e-14)
    # 8: 9 us + 1.75 MB / 200 GB/s
    assert net.fitted_s(fit, "all_reduce", 1e6, 8) == pytest.approx(17.75e-6, rel=1e-14)
    # 32 is two doublings further: alpha goes on by 2 us each, the bandwidth stays; V = 2 x 31/32 MB
    assert net.fitted_s(fit, "all_reduce", 1e6, 32) == pytest.approx(13e-6 + 1.9375e6 / 200e9, rel=1e-14)
    assert net.fitted_s(fit, "all_reduce", 1e6, 1) == 0.0
    assert net.fitted_s(fit, "all_reduce", 1e6, np.array([1, 2, 4])).tolist() == pytest.approx([0, 15e-6, 17e-6])


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
def test_a_long_column_of_ranks_has_the_times_of_each(op):
    """Constants read from a table of rank counts are those that each row finds alone, to the last bit."""
    fit = shipped("h100-sxm").scale_up.collectives[op]
    ranks, size = np.arange(1, 200) % 24 + 1, np.linspace(1e3, 1e9, 199)
    alone = [float(net.fitted_s(fit, op, one, n)) for one, n in zip(size, ranks, strict=True)]
    assert net.fitted_s(fit, op, size, ranks).tolist() == alone
    assert net.fitted_s(fit, op, size, ranks.astype(float)).tolist() == alone


def test_without_a_table_alpha_is_the_default_and_bandwidth_the_links():
    # 10 us + 7/8 x 1 MB / 100 GB/s
    assert net.collective_s(r.chip(), "all_gather", 1e6, Group(8)) == pytest.approx(18.75e-6, rel=1e-14)
    assert net.collective_s(r.chip(), "all_gather", 1e6, Group(1)) == 0.0


def test_between_nodes_each_chip_carries_its_shard_over_its_own_card():
    c = r.chip()
    # all-reduce of 8 MB over 2 nodes of 8: scatter and gather inside, each 10 us + 7 MB / 100 GB/s; between 10 us
    # + 2 hops of 2 us + 2 x 1/2 x 1 MB / 10 GB/s
    expected = 2 * (10e-6 + 70e-6) + (10e-6 + 4e-6 + 100e-6)
    assert net.collective_s(c, "all_reduce", 8e6, Group(16)) == pytest.approx(expected, rel=1e-14)
    # all-gather of 8 MB: inside 10 us + 7 MB / 100 GB/s; between 10 us + 1 hop + 1/2 x 8 MB / 8 / 10 GB/s
    expected = (10e-6 + 70e-6) + (10e-6 + 2e-6 + 50e-6)
    assert net.collective_s(c, "all_gather", 8e6, Group(16)) == pytest.approx(expected, rel=1e-14)


def test_a_group_of_one_chip_per_node_has_no_inner_tier():
    # 4 ranks, 8 apart: 4 nodes, log2(4) = 2 hops; 3/4 x 8 MB / 10 GB/s
    found = net.collective_s(r.chip(), "all_gather", 8e6, Group(4, 8))
    assert found == pytest.approx(10e-6 + 4e-6 + 600e-6, rel=1e-14)
    # 4 ranks, 4 apart: two of them in each of 2 nodes
    inside, between = 10e-6 + 4e6 / 100e9, 10e-6 + 2e-6 + 4e6 / 2 / 10e9
    assert net.collective_s(r.chip(), "all_gather", 8e6, Group(4, 4)) == pytest.approx(inside + between, rel=1e-14)


def test_without_a_network_nothing_crosses_nodes():
    alone = r.chip().model_copy(update={"scale_out": None})
    assert net.collective_s(alone, "all_reduce", 1.0, Group(16)) == math.inf
    assert net.collective_s(alone, "all_reduce", 1.0, Group(8)) < math.inf
    assert net.send_s(alone, 1.0, True) == math.inf


def test_topology_share():
    link = r.chip().scale_up
    mesh = link.model_copy(update={"topology": "full_mesh"})
    ring = link.model_copy(update={"topology": "ring"})
    chords = link.model_copy(update={"topology": "ring_chords", "links": 4})
    ranks = np.array([2, 4, 8])
    assert net.topology_share(link, ranks).tolist() == [1, 1, 1]
    assert net.topology_share(mesh, ranks).tolist() == pytest.approx([1 / 7, 3 / 7, 1])
    assert net.topology_share(ring, ranks).tolist() == [0.5, 0.5, 1.0]
    assert net.topology_share(chords, ranks).tolist() == [0.25, 0.25, 0.5]
    # two full meshes of four: three links, all used by four chips
    assert net.topology_share(mesh.model_copy(update={"group": 4}), ranks).tolist() == pytest.approx([1 / 3, 1, 1])


def test_an_unsupported_collective_is_an_all_reduce_of_the_whole_buffer():
    sc11 = shipped("sc11")
    assert "reduce_scatter" in sc11.scale_up.unsupported
    scatter, whole = (net.collective_s(sc11, op, 1e6, Group(8)) for op in ("reduce_scatter", "all_reduce"))
    assert scatter == whole
    # and an all-reduce is not the sum of two halves there
    assert whole != scatter + net.collective_s(sc11, "all_gather", 1e6, Group(8))


def test_send_goes_over_the_link_that_joins_the_stages():
    # 10 us + 1 MB / 100 GB/s; 10 us + 2 us + 1 MB / 10 GB/s
    assert net.send_s(r.chip(), 1e6, False) == pytest.approx(20e-6, rel=1e-14)
    assert net.send_s(r.chip(), 1e6, True) == pytest.approx(112e-6, rel=1e-14)
    assert net.send_s(r.chip(), 1e6, np.array([False, True])).tolist() == pytest.approx([20e-6, 112e-6], rel=1e-14)


def test_groups_of_a_column_each_have_their_own_tiers():
    ranks, stride = np.array([1, 2, 8, 16, 4]), np.array([1, 1, 1, 1, 8])
    found = net.collective_s(r.chip(), "all_gather", 1e6, Group(ranks, stride))
    expected = [
        float(net.collective_s(r.chip(), "all_gather", 1e6, Group(int(n), int(k))))
        for n, k in zip(ranks, stride, strict=True)
    ]
    assert found.tolist() == pytest.approx(expected, rel=1e-15)


# ---- what holds on every chip ----


@pytest.mark.parametrize("name", [n for n, _ in chip_names()])
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(OPS), st.floats(1.0, 1e9), st.floats(1.0, 10.0), st.sampled_from([2, 3, 4, 8]))
def test_a_larger_message_never_takes_less_time(name, op, size, more, ranks):
    one, two = (float(net.collective_s(shipped(name), op, x, Group(ranks))) for x in (size, size * more))
    assert one <= two
    assert one > 0


@pytest.mark.parametrize("name", SWITCHED)
@pytest.mark.parametrize("op", OPS)
def test_more_ranks_on_a_switch_never_take_less_time(name, op):
    c = shipped(name)
    sizes = np.array([1e3, 1e5, 1e6, 1e8])
    ranks = [2, 4, 8, 16, 32, 64] if c.scale_out is not None else [2, 4, 8]
    times = np.array([net.collective_s(c, op, sizes, Group(n)) for n in ranks])
    assert np.all(np.diff(times, axis=0) >= 0)


@pytest.mark.parametrize("name", [n for n, _ in chip_names()])
def test_a_message_over_nodes_never_beats_one_inside(name):
    c = shipped(name)
    n = c.scale_up.chips_per_node
    for op in OPS:
        for size in (1e3, 1e6, 1e8):
            inside = float(net.collective_s(c, op, size, Group(n)))
            assert inside < float(net.collective_s(c, op, size, Group(2 * n)))


def test_a_pair_in_a_mesh_is_slower_than_all_eight():
    # published bus bandwidth of MI300X: 47.7 GB/s of two, 312.9 of eight (stas00/ml-engineering)
    mi300x = shipped("mi300x")
    bus = [
        float(net.volume_bytes("all_reduce", 1e9, n) / net.collective_s(mi300x, "all_reduce", 1e9, Group(n)))
        for n in (2, 8)
    ]
    assert bus[0] == pytest.approx(47.7e9, rel=0.25)
    assert bus[1] == pytest.approx(312.9e9, rel=0.25)


def test_residual_of_a_group_that_spans_nodes_is_not_the_fits():
    c = r.chip()
    assert net.collective_residual(c, "all_reduce", False) == 0.1
    assert net.collective_residual(c, "all_reduce", True) == net.DEFAULT_RESIDUAL
    assert net.collective_residual(c, "all_gather", False) == net.DEFAULT_RESIDUAL


def test_more_ranks_than_were_measured_have_no_residual_of_a_fit():
    c = r.chip()
    most = c.scale_up.collectives["all_reduce"].ranks[-1]
    assert net.collective_residual(c, "all_reduce", False, most) == 0.1
    assert net.collective_residual(c, "all_reduce", False, most + 1) == net.DEFAULT_RESIDUAL
    assert extrapolated(c, most) == []


def test_a_plan_on_more_ranks_than_were_measured_says_so():
    gb200 = shipped("gb200")
    assert extrapolated(gb200, 4) == []
    assert extrapolated(gb200, 8) == [
        "Collectives on gb200 were measured on up to 4 chips; for 8 they are extrapolated."
    ]
    assert "for 72 they" in extrapolated(gb200, 144)[0], "beyond the rack another link begins"
    assert extrapolated(shipped("h200-sxm"), 16) == []
