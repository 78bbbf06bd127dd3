"""Engines that go by a rule of their own when they dispatch tokens: by ranks, experts of a rank, tokens of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlaplan.costs import moe, placement
from mlaplan.costs.engine import from_profile
from mlaplan.costs.placement import DispatchRule
from mlaplan.costs.step import Setting
from mlaplan.engines.load import load_profile
from mlaplan.specs.lookup import load_chip, load_model

from . import round as r

ROUND = r.model(ffn=r.MOE)  # 20 experts


def block(tokens: Any, tp: Any, dp: Any, decode: bool = True, **rule: Any) -> list[Any]:
    m, ep = r.machine(ROUND), np.asarray(tp) * dp
    choice = moe.MoeChoice(rule=DispatchRule(**rule))
    return moe.ffn_ops(m, m.model.ffn["f"], moe.MoeShape(tokens, tp, dp, ep, 1, decode), choice)


def dispatched(**asked: Any) -> bool:
    return any(op.name == "moe_dispatch" and np.any(op.time_s) for op in block(**asked))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"tokens": 32, "tp": 2, "dp": 4}, True),
        # 7 of 8 ranks are too few
        ({"tokens": 32, "tp": 2, "dp": 4, "least_ranks": 9}, False),
        # 20 experts over 8 ranks: 2 whole ones each
        ({"tokens": 32, "tp": 2, "dp": 4, "most_experts": 2}, True),
        ({"tokens": 32, "tp": 2, "dp": 4, "most_experts": 1}, False),
        # tokens of a DP rank in decode; a prompt has no such limit
        ({"tokens": 32, "tp": 2, "dp": 4, "most_tokens": 32}, True),
        ({"tokens": 33, "tp": 2, "dp": 4, "most_tokens": 32}, False),
        ({"tokens": 33, "tp": 2, "dp": 4, "most_tokens": 32, "decode": False}, True),
        ({"tokens": 32, "tp": 2, "dp": 4, "prefill": False, "decode": False}, False),
        # a fixed rule asks for no attention DP
        ({"tokens": 32, "tp": 8, "dp": 1}, True),
    ],
)
def test_a_fixed_rule_decides_by_itself(asked: dict[str, Any], expected: bool) -> None:
    assert dispatched(**{"fixed": True, **asked}) is expected


def test_without_a_fixed_rule_the_faster_way_is_taken_and_only_between_dp_ranks() -> None:
    assert not dispatched(tokens=32, tp=8, dp=1)
    for tokens in (1, 32, 2000):
        fixed, free = (sum(float(op.time_s) for op in block(tokens, 2, 4, fixed=way)) for way in (True, False))
        assert free <= fixed


def test_rows_are_told_apart() -> None:
    columns = [np.array(x) for x in ([32, 32, 600], [2, 2, 2], [2, 4, 4])]
    many = r.named(block(*columns, fixed=True, least_ranks=8, most_tokens=512))
    assert (many["moe_dispatch"].time_s > 0).tolist() == [False, True, False]


# ---- vLLM-Ascend ----


def way(chip: str, tp: int, dp: int, tokens: int, decode: bool = True, engine: str = "vllm_ascend") -> str:
    """`dispatch`, or `gather` (a sum over TP alone with one DP rank)."""
    spec, model = load_chip(chip), load_model("deepseek-v3")
    s = Setting(spec, model, from_profile(load_profile(engine), spec, "mla"))
    shape = moe.MoeShape(tokens, tp, dp, tp * dp, 1, decode)
    f = next(f for f in model.ffn.values() if f.kind == "moe")
    found = {op.name for op in moe.ffn_ops(s.machine(0, 0), f, shape, s.moe) if np.any(op.time_s)}
    return "dispatch" if "moe_dispatch" in found else "gather"


@pytest.mark.parametrize(
    ("tp", "dp", "tokens", "decode", "expected"),
    [
        (8, 1, 64, True, "gather"),
        (1, 8, 64, True, "gather"),  # 8 ranks
        (1, 16, 64, True, "dispatch"),  # 16 experts a rank
        (16, 1, 64, True, "dispatch"),  # with tensor parallelism alone, too
        (2, 8, 512, True, "dispatch"),
        (2, 8, 513, True, "gather"),  # more tokens than graphs are captured for
        (1, 16, 4096, False, "gather"),  # prompts
    ],
)
def test_a_910b_dispatches_decode_steps_of_16_ranks_and_more(
    tp: int, dp: int, tokens: int, decode: bool, expected: str
) -> None:
    assert way("ascend-910b3", tp, dp, tokens, decode) == expected


def test_24_experts_a_rank_are_a_limit_of_the_910b_since_0_13() -> None:
    spec = load_chip("ascend-910b3")
    for version, most in (("0.11.0", 0), ("0.13.0", 24), ("0.23.0", 24)):
        rule = from_profile(load_profile(f"vllm_ascend@{version}"), spec, "mla").dispatch_rule
        assert rule == DispatchRule(True, False, 16, most, 512)


@pytest.mark.parametrize(("tp", "dp"), [(8, 1), (1, 8), (2, 16)])
@pytest.mark.parametrize("decode", [True, False])
def test_a_910c_dispatches_wherever_experts_are_divided(tp: int, dp: int, decode: bool) -> None:
    assert way("ascend-910c-die", tp, dp, 64, decode) == "dispatch"


def test_buffers_and_gathered_activations_follow_the_rule() -> None:
    e = from_profile(load_profile("vllm_ascend"), load_chip("ascend-910b3"), "mla")
    tp, dp = np.array([8, 1, 1, 16]), np.array([1, 8, 16, 1])
    assert placement.dispatches(e, tp, dp, tp * dp).tolist() == [False, False, True, True]
    # prompts gather on every DP rank, whatever decode does
    assert placement.gathers(e, tp, dp, tp * dp).tolist() == [False, True, True, False]
