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
    assert f.model_numbers(LLAMA) == 163_840
    assert of(LLAMA, "bf16") == 327_680
    assert of(LLAMA, "int8 group-128") == 163_840 + 1280 * 2
    assert of(LLAMA, "fp8 tile-128") == 163_840 + 1280 * 4
    assert of(LLAMA, "int8 group-128") / 327_680 - 1 == pytest.approx(-0.4922, abs=5e-5)
    assert of(LLAMA, "fp8") == 163_840


def test_deepseek_v3_keeps_the_rotary_key_in_16_bit() -> None:
    assert of(V3, "bf16") == 61 * 1152
    assert of(V3, "fp8 tile-128") == 61 * 656


def test_widening_a_full_pool_takes_the_vector_units_that_long() -> None:
    """A million tokens of Llama on an Ascend 910B3: 2 x 163,840e6 / 18e12."""
    assert f.widening_s(load_chip("ascend-910b3"), 163_840e6) == pytest.approx(2 * 163_840e6 / 18e12)
    assert f.widening_s(load_chip("k3"), 1.0) is None or load_chip("k3").vector
