"""The router of few tokens: a kernel for one shape, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mlaplan.costs.engine import SmallRouter, from_profile
from mlaplan.costs.machine import Machine
from mlaplan.engines.load import load_profile
from mlaplan.specs.lookup import load_chip, load_model

US = 1e-6


def machine(engine: str, chip: str = "h200-sxm", model: str = "deepseek-v3") -> Machine:
    c = load_chip(chip)
    return Machine(c, load_model(model), from_profile(load_profile(engine), c, "mla"), "fp8", "bf16")


@pytest.mark.parametrize(("tokens", "published"), [(1, 2.66), (4, 3.61), (8, 5.12), (13, 6.77)])
def test_the_published_times_come_out(tokens: int, published: float) -> None:
    """[T, 7168] x [7168, 256]: 2 T 7168 256 FLOP at the published rates (1.38, 4.07, 5.74 and 7.04 TFLOPS)."""
    assert float(machine("sglang").router("r", tokens, 256).time_s) == pytest.approx(published * US, rel=0.06)


def test_more_experts_take_more_time_for_a_token() -> None:
    """2.97 and 6.08 us were measured at 384 experts with 1 and 8 tokens."""
    m = machine("sglang", model="kimi-k2")
    assert float(m.router("r", 1, 384).time_s) == pytest.approx(2.97 * US, rel=0.1)
    assert float(m.router("r", 8, 384).time_s) == pytest.approx(6.08 * US, rel=0.1)


def test_more_tokens_and_other_shapes_are_products_like_others() -> None:
    m = machine("sglang")
    for tokens, choices in ((17, 256), (4, 128)):
        plain = m.gemm("r", "router", tokens, 7168, choices).time_s
        assert float(m.router("r", tokens, choices).time_s) == pytest.approx(float(plain))
    column = m.router("r", np.array([16, 17]), 256)
    assert column.time_s.tolist() == pytest.approx([float(m.router("r", n, 256).time_s) for n in (16, 17)])


@pytest.mark.parametrize(
    ("engine", "chip", "tokens"),
    [("trtllm", "b200-sxm", 16), ("vllm", "h100-sxm", 8), ("vllm@0.9.2", "h100-sxm", 0), ("sglang", "mi300x", 0),
     ("generic", "h200-sxm", 0)],
)  # fmt: skip
def test_who_has_one(engine: str, chip: str, tokens: int) -> None:
    found = from_profile(load_profile(engine), load_chip(chip), "mla").small_router
    assert found.tokens == tokens and (tokens > 0 or found == SmallRouter())
