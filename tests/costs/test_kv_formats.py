"""Cache formats with their scales, by hand."""

from __future__ import annotations

import pytest

from mlaplan.costs import kv_formats as f
from mlaplan.specs.lookup import load_chip, load_model

LLAMA, V3 = load_model("llama-3-70b"), load_model("deepseek-v3")


def of(model: object, name: str) -> float:
    return f.model_bytes(model, next(x for x in f.formats(model, "bf16") if x.name == name))  # type: ignore[arg-type]


def test_llama_3_70b_by_hand() -> None:
    """80 layers, 8 heads, 128 numbers, keys and values: 163,840 numbers, 1,280 groups of 128."""
    assert f.model_numbers(LLAMA, f.formats(LLAMA, "bf16")[-1]) == 163_840
    assert of(LLAMA, "bf16") == 327_680
    assert of(LLAMA, "int8 group-128") == 163_840 + 1280 * 2
    assert of(LLAMA, "fp8 tile-128") == 163_840 + 1280 * 4
    assert of(LLAMA, "int8 group-128") / 327_680 - 1 == pytest.approx(-0.4922, abs=5e-5)
    assert of(LLAMA, "fp8") == 163_840


def test_deepseek_v3_keeps_the_rotary_key_in_16_bit() -> None:
    assert of(V3, "bf16") == 61 * 1152
    assert of(V3, "fp8 tile-128") == 61 * 656


def test_widening_a_full_pool_takes_the_vector_units_that_long() -> None:
    """A million tokens of Llama on an Ascend 910B3, a tenth of 18 TFLOPS reached: 2 x 163,840e6 / 1.8e12."""
    int8 = f.formats(LLAMA, "bf16")[-1]
    assert f.widening_s(load_chip("ascend-910b3"), int8, 163_840e6) == pytest.approx(2 * 163_840e6 / 1.8e12)


def test_tiles_leave_the_rotary_key_as_it_is() -> None:
    _, plain, tiles = f.formats(V3, "bf16")
    assert (f.model_numbers(V3, plain), f.model_numbers(V3, tiles)) == (61 * 576, 61 * 512)


def test_a_chip_without_a_vector_rate_is_taken_to_have_a_16th_of_its_matrix_peak() -> None:
    h100 = load_chip("h100-sxm")
    assert f.vector_rate(h100) == 67e12
    assert f.vector_rate(h100.model_copy(update={"vector": {}})) == float(h100.peak["bf16"]) / 16
