"""A cache on its way: who sends what, and what shows, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import kv_transfer as t
from mlaplan.costs.kv_transfer import Route
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy

LINK = Route("a link", 25e9, 10e-6)
LLAMA, V3 = load_model("llama-3-70b"), load_model("deepseek-v3")


def test_a_llama_prompt_from_tp4_pp2_to_tp8_by_hand() -> None:
    """327,680 B a token, an eighth on each chip either way: 4096 x 40,960 B at 25 GB/s."""
    per_chip = t.chip_token_bytes(LLAMA, Strategy(tp=8))
    assert per_chip == t.chip_token_bytes(LLAMA, Strategy(tp=4, pp=2)) == 40_960
    one = t.transfer(4096, per_chip, 8, 8, LINK)
    assert one.received_bytes == one.sent_bytes == 4096 * 40_960
    assert one.total_bytes == 4096 * 327_680
    assert one.time_s == pytest.approx(10e-6 + 4096 * 40_960 / 25e9)


def test_a_latent_goes_whole_to_every_tp_rank() -> None:
    """70,272 B a token to each of 4 ranks, from 16 chips that hold copies or parts of it."""
    per_chip = t.chip_token_bytes(V3, Strategy(tp=4))
    assert per_chip == 70_272
    one = t.transfer(1000, per_chip, 16, 4, LINK)
    assert (one.received_bytes, one.sent_bytes, one.total_bytes) == (70_272_000, 17_568_000, 281_088_000)
    assert t.transfer(1000, per_chip, 1, 4, LINK).time_s == pytest.approx(10e-6 + 281_088_000 / 25e9)


def test_context_parallel_ranks_take_a_shard_each() -> None:
    sharded = Strategy(tp=4, dcp=4, kv_layout="sequence_sharded")
    assert t.chip_token_bytes(V3, sharded) == pytest.approx(70_272 / 4)


def test_repeated_heads_are_sent_to_every_rank_that_holds_them() -> None:
    assert t.chip_token_bytes(LLAMA, Strategy(tp=16)) * 16 == 2 * 327_680


def test_what_shows_by_hand() -> None:
    """80 layers in 0.8 s, 10 ms each; a transfer of 0.4 s, 5 ms each, ends 5 ms after the last; one of 1.6 s lags."""
    assert t.exposed_s(0.4, 0.8, 80) == pytest.approx(0.005)
    assert t.exposed_s(1.6, 0.8, 80) == pytest.approx(1.6 - 0.8 + 0.01)
    assert t.exposed_s(0.4, 0.8, 1) == pytest.approx(0.4)


def test_pools_in_one_node_use_its_links_others_the_slower_network() -> None:
    h100, ascend = load_chip("h100-sxm"), load_chip("ascend-910b3")
    inside, between = t.route(h100, h100, True), t.route(h100, ascend, False)
    assert inside is not None and inside.name == h100.scale_up.name
    assert between is not None and between.name == ascend.scale_out.name  # type: ignore[union-attr]
    assert t.route(h100, load_chip("sc11"), False) is None


@given(st.floats(1e-4, 10), st.floats(1e-4, 10), st.integers(1, 500))
def test_between_nothing_and_all_of_a_transfer_shows(moved: float, prefill: float, items: int) -> None:
    shown = t.exposed_s(moved, prefill, items)
    assert moved / items * (1 - 1e-9) <= shown <= moved * (1 + 1e-9)
    assert shown == pytest.approx(max(moved / items, moved - prefill * (items - 1) / items), rel=1e-6, abs=1e-12)
