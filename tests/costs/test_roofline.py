"""One kernel: tiles, the smooth maximum, GEMM work."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs import roofline as roof

times = st.floats(0.0, 1.0) | st.floats(1e-9, 1e-3)
norms = st.sampled_from([1.0, 1.5, 2.0, 3.0, 6.0, 40.0, math.inf])


def test_ceil_div_is_exact_on_large_integers():
    assert roof.ceil_div(7, 8) == 1
    assert roof.ceil_div(16, 8) == 2
    assert roof.ceil_div(2**62 + 1, 2) == 2**61 + 1
    assert roof.ceil_div(np.array([0, 1, 8, 9]), 8).tolist() == [0, 1, 1, 2]


def test_pad_to_whole_tiles():
    assert roof.pad_to(1, 64) == 64
    assert roof.pad_to(64, 64) == 64
    assert roof.pad_to(65, 64) == 128
    assert roof.pad_to(16.5, 1) == 17
    assert roof.pad_to(np.array([1, 63, 64, 129]), 64).tolist() == [64, 64, 64, 192]


def test_a_rounding_error_above_whole_tiles_is_not_a_tile():
    # 0.1 x 3 / 0.3 is 1.0000000000000002
    assert 0.1 * 3 / 0.3 > 1
    assert roof.pad_to(0.1 * 3 / 0.3 * 64, 64) == 64
    assert roof.pad_to(32.0 * (1 + 1e-15), 16) == 32
    assert roof.pad_to(32.01, 16) == 48


def test_smooth_maximum_by_hand():
    assert roof.smooth_max(3.0, 4.0, 1.0) == 7.0
    assert roof.smooth_max(3.0, 4.0, 2.0) == 5.0
    assert roof.smooth_max(3.0, 4.0, math.inf) == 4.0
    # (3^3 + 4^3)^(1/3) = 91^(1/3)
    assert roof.smooth_max(3.0, 4.0, 3.0) == pytest.approx(4.497941445275415, rel=1e-14)
    # equal terms: 2^(1/n) of one
    assert roof.smooth_max(1.0, 1.0, 6.0) == pytest.approx(2 ** (1 / 6), rel=1e-14)
    assert roof.smooth_max(0.0, 0.0, 3.0) == 0.0
    assert roof.smooth_max(np.array([3.0, 4.0, 0.0]), np.array([4.0, 3.0, 1.0]), 2.0).tolist() == [5.0, 5.0, 1.0]


@given(times, times, norms)
def test_smooth_maximum_lies_between_the_maximum_and_the_sum(a, b, norm):
    found, high = float(roof.smooth_max(a, b, norm)), max(a, b)
    most = high if math.isinf(norm) else high * 2 ** (1 / norm)
    assert high * (1 - 1e-15) <= found <= most * (1 + 1e-15)
    assert found == roof.smooth_max(b, a, norm)


@settings(max_examples=50)
@given(st.lists(st.tuples(times, times, times), min_size=1, max_size=9), norms)
def test_smooth_maximum_of_arrays_is_that_of_each_and_rises(rows, norm):
    a, b, more = (np.array(column) for column in zip(*rows, strict=True))
    found = roof.smooth_max(a, b, norm)
    assert [float(roof.smooth_max(x, y, norm)) for x, y, _ in rows] == pytest.approx(found.tolist(), rel=1e-15)
    assert np.all(roof.smooth_max(a + more, b, norm) >= found * (1 - 1e-15))


def test_a_kernel_never_takes_less_than_its_floor():
    assert roof.kernel_s(0.0, 0.0, 2e-6, 3.0) == 2e-6
    assert roof.kernel_s(3e-6, 4e-6, 2e-6, 2.0) == pytest.approx(7e-6, rel=1e-15)


def test_gemm_work_by_hand():
    # [4, 10] x [10, 20]: 2 x 4 x 10 x 20 FLOP
    assert roof.gemm_flops(4, 10, 20) == 1600
    # fp8 weights 200 B, 40 numbers in and 80 out of 2 B
    assert roof.gemm_bytes(4, 10, 20, 1.0) == 200 + 80 + 160
    assert roof.gemm_bytes(4, 10, 20, 0.5, 1.0, 4.0) == 100 + 40 + 320
    assert roof.gemm_bytes(np.array([4, 8]), 10, 20, 1.0).tolist() == [440, 680]
