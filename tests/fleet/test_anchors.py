"""What must come out right for Llama-3-70B and Qwen2.5-72B on Ascend: by arithmetic, not by an article."""

from __future__ import annotations

import pytest

from mlaplan.costs import kv_transfer
from mlaplan.engines.load import load_profile
from mlaplan.explain import explain
from mlaplan.plan import question, recommend
from mlaplan.search import Found, axes, blocks
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload


def asked(model: str, chip: str, isl: int = 4096, osl: int = 512):  # type: ignore[no-untyped-def]
    return question(load_chip(chip), load_model(model), load_profile("generic"), Workload(isl, osl), Overrides())


@pytest.mark.parametrize("model", ["llama-3-70b", "qwen2.5-72b"])
def test_a_token_is_320_kib_and_a_card_of_tp4_pp2_holds_40(model: str) -> None:
    """80 layers x 8 key-value heads x 128 x keys and values x 2 B."""
    assert kv_transfer.chip_token_bytes(load_model(model), Strategy()) == 327_680
    assert kv_transfer.chip_token_bytes(load_model(model), Strategy(tp=4, pp=2)) == 40_960


def test_weights_of_a_card_of_eight() -> None:
    found = explain(asked("llama-3-70b", "ascend-910b3"), Strategy(tp=4, pp=2), served=False)
    assert found.memory.items["weight_bytes"] == pytest.approx(17.6e9, rel=5e-3)


def test_tensor_parallelism_beyond_the_heads_repeats_them() -> None:
    model = load_model("llama-3-70b")
    per_chip = [kv_transfer.chip_token_bytes(model, Strategy(tp=tp)) for tp in (4, 8, 16, 32)]
    assert per_chip == [81_920, 40_960, 40_960, 40_960]


def test_the_first_ascend_has_no_bf16_and_none_has_fp8() -> None:
    assert "bf16" not in load_chip("ascend-910a").peak
    for name in ("ascend-910b1", "ascend-910b2", "ascend-910b3", "ascend-910b4", "ascend-910c-die"):
        assert "fp8" not in load_chip(name).peak and "bf16" in load_chip(name).peak
    q = asked("deepseek-v3", "ascend-910c-die")
    from mlaplan.strategy import KV_DTYPES, WEIGHT_DTYPES

    searched = axes(q, {})
    assert "fp8" not in {WEIGHT_DTYPES[w] for w in searched.weight_dtype} | {KV_DTYPES[d] for d in searched.kv_dtype}


def test_sequence_parallel_prefill_of_long_prompts_is_priced_beside_the_rest() -> None:
    q = asked("llama-3.1-70b", "ascend-910b3", isl=32_768)
    degrees = {int(cp) for block in blocks(q, 8, {}, Found()) for cp in block["cp"]}
    assert degrees == {1, 2, 4, 8}
    plans = recommend(q, 8, top=1000).plans
    value = {e.strategy.cp > 1: e.served.tok_s_chip.value for e in reversed(plans) if e.served}
    assert set(value) == {False, True}
    assert plans[0].strategy.cp > 1 or value[False] >= value[True]
    short = {int(cp) for block in blocks(asked("llama-3-70b", "ascend-910b3"), 8, {}, Found()) for cp in block["cp"]}
    assert short == {1}
