"""bf16, fp16, fp8 and int8: bit patterns, scales, the 656-byte row, and what a rounded cache costs."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlaplan.kernel import block, core
from mlaplan.kernel.arithmetic import Arithmetic
from mlaplan.kernel.cache_formats import FORMATS, pack_fp8_ds_mla, store_as, unpack_fp8_ds_mla
from mlaplan.kernel.rounding import DTYPES, LARGEST, cast, dequantise, encode, quantise, round_inputs
from mlaplan.kernel.tolerance import difference

from .cases import assert_same, random_block, random_core, setting

FINITE = st.floats(-1e5, 1e5, width=32)


def e4m3_by_hand(x: np.ndarray) -> np.ndarray:
    """Round half to even to 3 mantissa bits, exponents from -6, largest 448."""
    x = np.clip(x, -448, 448)
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 2.0**-20))), -6)
    step = 2.0 ** (exponent - 3)
    return np.rint(x / step) * step


@given(hnp.arrays(np.float64, 40, elements=FINITE))
def test_fp8_rounds_half_to_even_and_saturates(x):
    x = x.astype(np.float32).astype(np.float64)
    assert np.array_equal(np.abs(cast(x, "fp8_e4m3")), np.abs(e4m3_by_hand(x)))


@given(hnp.arrays(np.float32, 40, elements=FINITE))
def test_bf16_is_the_upper_half_of_fp32_rounded_to_even(x):
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    assert np.array_equal(cast(x, "bf16"), rounded.view(np.float32))


def test_overflow_saturates_where_a_plain_cast_gives_nan():
    assert np.isnan(np.float32(500).astype(ml_dtypes.float8_e4m3fn))
    for name, largest in LARGEST.items():
        assert np.array_equal(cast(np.array([1e9, -1e9]), name), [largest, -largest])


@given(
    name=st.sampled_from(["fp8_e4m3", "int8"]),
    width=st.sampled_from([1, 32, 128, 200, 512]),
    group=st.sampled_from([32, 128]),
    power_of_two=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_group_is_off_by_at_most_half_a_step_of_its_own_largest(name, width, group, power_of_two, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5, width)) * np.exp(rng.standard_normal((5, 1)) * 4)
    x[2] = 0
    codes, scales = quantise(x, name, group, power_of_two)
    assert scales.shape == (5, -(-width // group))
    assert scales.dtype == np.float32
    back = dequantise(codes, scales, group)
    assert not back[2].any()
    if power_of_two:
        assert np.array_equal(np.log2(scales), np.rint(np.log2(scales)))
    for g in range(scales.shape[1]):
        part = slice(g * group, (g + 1) * group)
        largest = np.abs(x[:, part]).max(axis=1, keepdims=True)
        step = largest / 127 if name == "int8" else np.maximum(np.abs(x[:, part]) / 8, largest / 448 / 512)
        assert np.all(np.abs(back - x)[:, part] <= step * (2 if power_of_two else 1) * 0.5001)


def test_rounding_again_changes_nothing():
    x = np.random.default_rng(0).standard_normal((6, 256))
    for name in DTYPES:
        once = cast(x, name)
        assert np.array_equal(cast(once, name), once)
    for name in ("bf16", "fp16", "fp8_e4m3", "fp32"):
        once = FORMATS[name].store(x, 192)
        assert np.array_equal(FORMATS[name].store(once, 192), once)


def test_inputs_take_their_scales_along_the_summed_axis():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((4, 256)), rng.standard_normal((256, 3)) * np.array([1, 1e3, 1e-3])
    for name in ("int8", "fp8_e4m3"):
        rounded = round_inputs(b, name, axis=-2)
        assert difference(rounded[:, 2], b[:, 2]).relative < 0.05  # a column keeps its own scale
        product = Arithmetic(inputs=name).product("x", a, b)
        assert np.array_equal(product, round_inputs(a, name, -1) @ rounded)
    assert np.array_equal(round_inputs(a, "bf16", -1), cast(a, "bf16"))


def test_fp8_ds_mla_is_656_bytes_of_codes_scales_and_rope():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((7, 576))
    packed = pack_fp8_ds_mla(rows, 512)
    assert packed.dtype == np.uint8
    assert packed.shape == (7, 656)
    assert packed.shape[1] == FORMATS["fp8_ds_mla"].row_bytes(512, 64)
    back = unpack_fp8_ds_mla(packed, 512)
    assert np.array_equal(back, FORMATS["fp8_ds_mla"].store(rows, 512))
    # field by field, by hand
    tile = rows[3, 128:256]
    scale = np.float32(np.abs(tile).max() / 448)
    assert packed[3, 516:520].copy().view(np.float32)[0] == scale
    codes = packed[3, 128:256].copy().view(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(codes, encode(tile / np.float64(scale), "fp8_e4m3"))
    rope = packed[3, 528:].copy().view(ml_dtypes.bfloat16).astype(np.float64)
    assert np.array_equal(rope, cast(rows[3, 512:], "bf16"))


@pytest.mark.parametrize(
    ("name", "row_bytes"),
    [("bf16", 1152), ("fp8_e4m3", 576), ("fp8_ds_mla", 656), ("int8", 656), ("fp32", 2304)],
)
def test_bytes_of_a_v3_row(name, row_bytes):
    assert FORMATS[name].row_bytes(512, 64) == row_bytes


@pytest.mark.parametrize("name", FORMATS)
def test_every_variant_agrees_on_a_rounded_cache(name):
    """Quantise, dequantise, feed the same rows to both cores: what remains is not quantisation error."""
    x, caches, weights = random_block(2, (70, 3))
    store = store_as(name, 32)
    env = block.Setting(setting().scale, setting().rope, store=store)
    caches = [store(c) for c in caches]
    absorbed_u, after = block.step(x, caches, weights, env)
    assert_same(absorbed_u, block.step(x, caches, weights, env, expand=True)[0])
    if name in ("bf16", "fp16", "fp8_e4m3"):
        assert all(np.array_equal(store(c), c) for c in after)


def test_coarser_caches_cost_more_error_and_an_unrounded_rope_pays():
    """Observed ranges on Gaussian latents, T 1024, logit std 4; orders of magnitude, not tolerances."""
    q, cache, scale = random_core(0, 1, 16, 1024, d_c=512, rope=64)
    exact = core.absorbed(q, cache, 512, scale).out

    def error(rows: np.ndarray) -> float:
        return difference(core.absorbed(q, rows, 512, scale).out, exact).relative

    by_format = {name: error(FORMATS[name].store(cache, 512)) for name in FORMATS}
    assert by_format["fp32"] < 1e-5
    assert by_format["fp16"] < by_format["bf16"] < by_format["int8"] < by_format["fp8_ds_mla"]
    assert 1e-4 < by_format["bf16"] < 2e-2
    assert 1e-2 < by_format["fp8_ds_mla"] < 0.3
    cache[:, 512:514] *= 20  # rope outliers
    q[..., 512:514] /= 20
    exact = core.absorbed(q, cache, 512, scale).out
    assert error(FORMATS["fp8_e4m3"].store(cache, 512)) > 1.0 * error(FORMATS["fp8_ds_mla"].store(cache, 512))


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8_e4m3", "int8"])
def test_rounded_products_stay_near_exact_ones(name):
    x, caches, weights = random_block(5, (40,), logit_std=1.0)
    exact = block.step(x, caches, weights, setting())[0]
    env = setting(how=Arithmetic(inputs=name))
    rounded = block.step(x, caches, weights, env)[0]
    limit = {"bf16": 4e-2, "fp16": 5e-3, "fp8_e4m3": 0.5, "int8": 0.15}[name]
    assert 1e-5 < difference(rounded, exact).relative < limit
