"""The reasons for a plan are its own figures, cut differently."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.engines.load import load_profile
from mlaplan.explain import explain
from mlaplan.plan import question
from mlaplan.report import why
from mlaplan.report.cache import bytes_per_token, sequence_tokens
from mlaplan.rules.rule import Question
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload

BASE = Strategy(tp=4, dp=2, ep=8, weight_dtype="fp8", batch=16, mtp=1)


@cache
def asked(model: str = "deepseek-v3", chip: str = "h200-sxm", rate: float | None = None) -> Question:
    work = Workload(2048, 512, None if rate else 64, rate)
    return question(load_chip(chip), load_model(model), load_profile("generic"), work, Overrides())


@settings(max_examples=25, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 8]), dp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]),
    ep=st.booleans(), mtp=st.integers(0, 3), batch=st.integers(1, 64), tbo=st.integers(0, 1),
)  # fmt: skip
def test_the_cost_of_a_token_is_the_inverse_of_the_throughput(
    tp: int, dp: int, pp: int, ep: bool, mtp: int, batch: int, tbo: int
) -> None:
    s = Strategy(tp=tp, dp=dp, pp=pp, ep=tp * dp if ep else 1, mtp=mtp, batch=batch, weight_dtype="fp8",
                 two_batch_overlap=tbo)  # fmt: skip
    e = explain(asked(), s)
    assert e.served is not None
    assert sum(why.token_cost(asked(), e).values()) == pytest.approx(1 / e.served.tok_s_chip.value, rel=1e-9)


def test_chips_that_wait_for_requests_are_idle() -> None:
    q = asked(rate=0.02)
    e = explain(q, BASE)
    cost = why.token_cost(q, e)
    assert e.served is not None and e.served.tok_s_chip.value == pytest.approx(0.02 * 512 / 8)
    assert cost[why.IDLE] > 0.1 * sum(cost.values())


def test_every_operator_has_a_group() -> None:
    e = explain(asked(), replace(BASE, pp=2))
    assert e.decode is not None
    groups = {op.name: why.group_of(op) for op in e.decode.ops}
    assert groups["attention_core"] == "attention core" and groups["o_proj"] == "attention weights"
    assert groups["routed_experts"] == "routed experts" and groups["mtp_routed_experts"] == "MTP drafts"
    assert groups["shared_expert_down"] == "dense and shared FFN" and groups["pipeline_send"] == "communication"
    assert groups["host_overhead"] == "host" and groups["router"] == "norms, router, head"


def test_layouts_hold_what_the_arithmetic_says() -> None:
    q = asked()
    e = explain(q, BASE)
    held = {(h.strategy.tp, h.strategy.kv_layout): h for h in why.why(q, [e], None).held}
    assert set(held) == {(4, "replicated"), (8, "replicated"), (8, "sequence_sharded"), (8, "latent_sharded"),
                         (1, "replicated")}  # fmt: skip
    plain, shared = held[8, "replicated"], held[8, "sequence_sharded"]
    assert plain.kv_bytes_per_token == 71424 and shared.kv_bytes_per_token == 71424 / 8
    assert held[8, "latent_sharded"].kv_bytes_per_token == 71424 * (512 / 8 + 64) / 576
    assert shared.rank_tokens == pytest.approx(8 * plain.rank_tokens, rel=1e-4)
    assert held[1, "replicated"].all_tokens == 8 * held[1, "replicated"].rank_tokens


def test_a_model_without_a_latent_has_no_latent_layout_and_no_sides() -> None:
    q = asked("llama-3-70b")
    found = why.why(q, [explain(q, Strategy(tp=8, batch=8))], None)
    assert {h.strategy.kv_layout for h in found.held} == {"replicated"}  # 8 KV heads: nothing is repeated under TP8
    assert found.sides is None and found.crossover is None


def test_one_chip_has_no_sides() -> None:
    q = asked("deepseek-v2-lite")
    found = why.why(q, [explain(q, Strategy(batch=8))], None)
    assert found.sides is None and len(found.held) == 1 and found.other is None


def test_both_sides_are_equal_at_the_break_even() -> None:
    q = asked()
    sides = why.why(q, [explain(q, BASE)], None).sides
    assert sides is not None and sides.group == 8 and sides.cached_tokens == 32 * 2 * (2048 + 256) / 2
    for one in sides.even:
        held = one.tokens * sides.row_bytes
        assert one.weight_bytes / 8 + held == pytest.approx(one.weight_bytes + held / 8)
        assert (one.fewer == "DP") == (sides.cached_tokens > one.tokens)


def test_a_pipeline_divides_the_mean_bytes_of_a_token_evenly() -> None:
    q = asked()
    whole, cut = bytes_per_token(q, replace(BASE, mtp=0)), bytes_per_token(q, replace(BASE, mtp=0, pp=2))
    assert whole == 61 * 1152 and cut == whole / 2
    assert bytes_per_token(q, replace(BASE, dcp=4, kv_layout="sequence_sharded")) == 62 * 1152 / 4


def test_a_sequence_takes_whole_blocks_on_every_rank() -> None:
    q = asked()
    assert sequence_tokens(q, BASE) == 2560
    assert sequence_tokens(q, replace(BASE, dcp=4, block_size=128)) == 2560
    assert sequence_tokens(q, replace(BASE, dcp=4, block_size=256)) == 3072
