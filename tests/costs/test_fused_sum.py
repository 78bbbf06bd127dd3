"""Sums over TP that take the residual and norm with them, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlaplan.costs.collectives import Group
from mlaplan.costs.engine import FusedSum, from_profile
from mlaplan.costs.machine import Machine
from mlaplan.engines.load import load_profile
from mlaplan.specs.lookup import load_chip, load_model

from . import round as r

D = 2  # bytes of a number
ROUND = r.model()


def test_a_norm_is_part_of_the_sum_up_to_so_many_tokens() -> None:
    m = r.machine(ROUND, fused_sum=FusedSum(100.0))
    alone = m.norm("n", 100, 1).time_s
    assert alone > 0 and m.norm("n", 100, 4).time_s == 0.0
    assert m.norm("n", 101, 4).time_s == pytest.approx(m.norm("n", 101, 1).time_s)


def test_a_kernel_for_one_node_is_not_used_over_several_nor_beside_attention_dp() -> None:
    m = r.machine(ROUND, fused_sum=FusedSum(math.inf, alone=True))
    wide = 2 * m.chip.scale_up.chips_per_node
    assert m.norm("n", 10, 2).time_s == 0.0
    assert np.all(m.norm("n", 10, np.array([2, wide]), np.array([2, 1])).time_s > 0.0)


@pytest.mark.parametrize(
    ("engine", "chip", "tokens", "alone"),
    [
        ("trtllm", "h200-sxm", math.inf, False),
        ("sglang", "h200-sxm", 2048.0, True),
        ("sglang@0.5.5", "h200-sxm", 0.0, False),  # on Hopper since 0.5.7
        ("sglang@0.5.5", "b200-sxm", 2048.0, True),
        ("sglang", "a100-sxm-80g", 0.0, False),
        ("vllm", "h200-sxm", 0.0, False),
    ],
)  # fmt: skip
def test_who_fuses(engine: str, chip: str, tokens: float, alone: bool) -> None:
    found = from_profile(load_profile(engine), load_chip(chip), "mla").fused_sum
    assert found == FusedSum(tokens, alone)


def test_the_sum_itself_takes_the_time_of_its_own_fit() -> None:
    """alpha + (V + sqrt(V K)) / B with V = 2 (n - 1) / n S, of the table that was measured."""
    chip = load_chip("h200-sxm", engine="sglang")
    e = from_profile(load_profile("sglang"), chip, "mla")
    model = load_model("deepseek-v3")
    m = Machine(chip, model, e, "fp8", "bf16")
    fit = chip.scale_up.collectives["all_reduce_fused"]
    tokens = 64
    volume = 2 * 7 / 8 * tokens * model.hidden_size * D
    by_hand = fit.alpha[-1] + (volume + math.sqrt(volume * fit.knee[-1])) / fit.bandwidth[-1]
    assert float(m.sum_over_tp("s", tokens, 8).time_s) == pytest.approx(float(by_hand))
    other = float(m.collective("s", "all_reduce", 4096 * model.hidden_size * D, Group(8)).time_s)
    assert float(m.sum_over_tp("s", 4096, 8).time_s) == pytest.approx(other)
    assert m.sum_over_tp("s", tokens, 8).residual == fit.residual
