"""Kernel terms by hand on round figures: peak 100 TFLOP/s, 1 TB/s, 100 cores."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from mlaplan.costs import kernels
from mlaplan.costs.kernels import Work
from mlaplan.specs.fit import KernelFit

PEAK, BANDWIDTH, CORES = 100e12, 1e12, 100.0


def fit(**values):
    plain = {"compute": 1.0, "memory": 1.0, "floor": 0.0, "norm": math.inf}
    optional = {n: f.default for n, f in KernelFit.model_fields.items() if not f.required}
    return SimpleNamespace(**{**optional, **plain, **values})


def time_s(work, **values):
    return kernels.timing(fit(**values), work, PEAK, BANDWIDTH, CORES).time_s


def product_s(m, k, n, nbytes=0.0, rows=1, operand=2.0, **values):
    return kernels.product_timing(fit(**values), m, k, n, nbytes, PEAK, BANDWIDTH, CORES, operand, rows).time_s


def test_without_floors_losses_padding_and_with_a_hard_maximum_the_roofline_is_exact():
    assert time_s(Work(1e9, 1e9, 5e6)) == 10e-6
    assert time_s(Work(1e9, 1e9, 50e6)) == 50e-6
    assert product_s(100, 1000, 5000, 1e6) == pytest.approx(2 * 100 * 1000 * 5000 / PEAK, rel=1e-15)


def test_at_infinite_rates_only_the_floors_remain():
    work = Work(1e9, 1e9, 5e6, blocks=300.0, units=600.0, rows=10.0, active=3.0, stored=4.0)
    f = fit(floor=2e-6, wave=1e-6, row=1e-7, active=1e-8, stored=1e-9)
    t = kernels.timing(f, work, 1e30, 1e30, CORES)
    assert t.time_s == pytest.approx(2e-6 + 2e-6 + 1e-6 + 3e-8 + 4e-9, rel=1e-9)


def test_every_further_wave_costs_its_start():
    work = Work(0.0, 0.0, 0.0, blocks=np.array([1.0, 100.0, 150.0, 300.0]))
    assert time_s(work, wave=2e-6).tolist() == pytest.approx([0.0, 0.0, 1e-6, 4e-6])


def test_a_split_costs_a_merge_while_cores_would_idle():
    work = Work(0.0, 0.0, 0.0, blocks=np.array([25.0, 25.0, 100.0]), units=np.array([50.0, 51.0, 1000.0]))
    # two tiles a block are not worth splitting; a full chip does not split
    assert time_s(work, split=4e-6).tolist() == pytest.approx([0.0, 3e-6, 0.0])


def test_a_ramp_takes_four_doublings():
    work = Work(0.0, 0.0, 0.0, units=np.array([10.0, 100.0, 400.0, 1600.0, 1e6]))
    assert time_s(work, ramp=1e-6).tolist() == pytest.approx([0.0, 0.0, 2e-6, 4e-6, 4e-6])


def test_the_longest_block_is_waited_for():
    # 1 GFLOP over all cores takes 10 us, 40 MFLOP on one of them 40 us
    assert time_s(Work(1e9, 1e9, 0.0, longest=40e6), longest=1.0) == pytest.approx(40e-6)
    assert time_s(Work(1e9, 1e9, 0.0, longest=40e6), longest=1.0, norm=1.0) == pytest.approx(50e-6)


def test_passes_are_of_queries_and_outputs():
    assert time_s(Work(0.0, 0.0, 5e6, io_bytes=1e6), passes=2.0) == pytest.approx(7e-6)


def test_products_in_tiles():
    # 200 x 256 in tiles of 64 x 128: 4 x 2 = 8 blocks of 100 cores, each 2 x 64 x 128 x 1000 FLOP at 1 TFLOP/s;
    # in tiles of 128 x 128 it is the same product of 2 x 2 blocks
    whole = 8 * 2 * 64 * 128 * 1000 / PEAK
    assert product_s(200, 1000, 256, tile=128) == pytest.approx(whole, rel=1e-12)
    # a last wave counted as full is all there is: the smaller tile's is the shorter one
    one = 2 * 64 * 128 * 1000 / (PEAK / CORES)
    assert product_s(200, 1000, 256, tile=128, fill=1.0) == pytest.approx(one, rel=1e-12)
    # feeding a tile: (64 + 128) x 1000 x 2 B of 8 blocks, or (128 + 128) of 4
    fed = min(8 * (64 + 128), 4 * (128 + 128)) * 1000 * 2 / 1e12
    assert product_s(200, 1000, 256, tile=128, supply=1e12) == pytest.approx(whole + fed, rel=1e-12)


def test_quantising_and_storing_are_passes_over_memory():
    assert product_s(100, 1000, 50, quantise=1.0) - product_s(100, 1000, 50) == pytest.approx(3e5 / BANDWIDTH)
    assert product_s(100, 1000, 50, store=2.0) - product_s(100, 1000, 50) == pytest.approx(2e4 / BANDWIDTH)


@pytest.mark.parametrize("fill", [0.0, 0.4, 1.0])
def test_a_product_never_gets_faster_with_more_rows(fill):
    m = np.arange(1, 3000)
    t = product_s(m, 7168, 2112, 2.0 * m * 9280, tile=128, fill=fill, supply=25e12, store=0.5, norm=2.0)
    assert (np.diff(t) >= -1e-18).all()
