"""The closed-loop client on step times simple enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mlaplan.serving.client import SHORTEST, Client, Habits, run
from mlaplan.serving.step_tables import StepTables, grid


def flat(decode_s: float = 0.01, prefill_s: float = 0.1, per_token_s: float = 0.0) -> StepTables:
    """Decode takes `decode_s` whatever the batch; prefill takes `prefill_s` and `per_token_s` a token."""
    tokens = [1.0, 100_000.0]
    prefill = [prefill_s + per_token_s * t for t in tokens]
    return StepTables([1.0, 1000.0], [1.0, 100_000.0], [[decode_s, decode_s]] * 2, tokens, prefill)


FIRST = Habits(mixed=False, chunk=8192, slots=4096, kv_tokens=10**9, lag_steps=0)
MIXED = replace(FIRST, mixed=True)


def test_one_request_is_a_prefill_and_its_rounds() -> None:
    found = run(Client(100, 11, 1, requests=1, shortest=1.0), flat(), FIRST)
    assert found.ttft_s == pytest.approx(0.1)
    assert found.tpot_s == pytest.approx(0.01)
    assert found.makespan_s == pytest.approx(0.1 + 10 * 0.01)
    assert found.output_tok_s == pytest.approx(11 / 0.2)
    assert found.total_tok_s == pytest.approx(111 / 0.2)


def test_front_end_delays_every_request() -> None:
    habits = replace(FIRST, front_end_s=0.05, front_end_per_token_s=1e-4)
    found = run(Client(100, 11, 1, requests=3, shortest=1.0), flat(), habits)
    assert found.ttft_s == pytest.approx(0.1 + 0.05 + 0.01)
    assert found.tpot_s == pytest.approx(0.01)


def test_the_burst_at_the_start_counts() -> None:
    """Four prompts of a whole chunk each: they wait for 0, 1, 2 and 3 prefills; decode waits for all of them."""
    found = run(Client(8192, 2, 4, requests=4, shortest=1.0), flat(), FIRST)
    assert found.ttft_s == pytest.approx(0.1 * (1 + 2 + 3 + 4) / 4)
    # the first request waits for three prefills before its only round
    assert found.tpot_s == pytest.approx((3 + 2 + 1 + 0) / 4 * 0.1 + 0.01)


def test_small_prompts_share_a_step() -> None:
    found = run(Client(1024, 2, 8, requests=8, shortest=1.0), flat(), FIRST)
    assert found.ttft_s == pytest.approx(0.1)


def test_a_long_prompt_takes_several_steps() -> None:
    found = run(Client(3 * 8192, 2, 1, requests=1, shortest=1.0), flat(), FIRST)
    assert found.ttft_s == pytest.approx(0.3)


def test_mixed_steps_carry_decode_along() -> None:
    """With equal requests all prompts go first; later prompts stretch the rounds they share."""
    tables = flat(decode_s=0.01, prefill_s=0.0, per_token_s=1e-4)
    alone = run(Client(1000, 101, 1, requests=5, shortest=1.0), tables, MIXED)
    assert alone.ttft_s == pytest.approx(1000e-4)
    assert alone.tpot_s == pytest.approx(0.01)
    shared = run(Client(1000, 101, 4, shortest=0.5), tables, MIXED)
    assert shared.tpot_s > alone.tpot_s


def test_whole_prompts_wait_for_a_step_with_room() -> None:
    """Prompts of 600 tokens, 1000 a step: cut, two take 0.1 + 0.2 s; whole, one a step as well, but none is begun."""
    client, tables = Client(600, 2, 2, requests=2, shortest=1.0), flat(prefill_s=0.0, per_token_s=1e-3)
    cut = run(client, tables, replace(MIXED, chunk=1000))
    whole = run(client, tables, replace(MIXED, chunk=1000, whole_prompts=True))
    # cut: 600 and 400 tokens of both prompts in 1 s, then the 200 left and one decoding token in 0.201 s
    assert cut.ttft_s == pytest.approx((1.0 + 1.0 + 0.201) / 2)
    # whole: 600 tokens, then 600 and the first request's decoding token
    assert whole.ttft_s == pytest.approx((0.6 + 0.6 + 0.601) / 2)


def test_a_prompt_longer_than_any_step_is_cut_even_so() -> None:
    found = run(Client(2500, 2, 1, requests=1, shortest=1.0), flat(), replace(MIXED, chunk=1000, whole_prompts=True))
    assert found.ttft_s == pytest.approx(0.3)


@pytest.mark.parametrize("habits", [FIRST, MIXED])
def test_cold_kernels_hold_up_the_first_burst_alone(habits: Habits) -> None:
    client = Client(100, 11, 4, requests=40, shortest=1.0)
    warm, cold = run(client, flat(), habits), run(client, flat(), replace(habits, cold_s=2.0))
    assert cold.ttft_s - warm.ttft_s == pytest.approx(2.0 * 4 / 40)
    assert cold.makespan_s - warm.makespan_s == pytest.approx(2.0)


def test_decode_tokens_come_out_of_the_mixed_budget() -> None:
    """A chunk that decode fills all but one token of computes one prompt token a step."""
    tight = replace(MIXED, chunk=8, queries=7)
    found = run(Client(16, 40, 2, requests=2, shortest=1.0), flat(prefill_s=0.1), tight)
    assert found.ttft_s > run(Client(16, 40, 2, requests=2, shortest=1.0), flat(prefill_s=0.1), MIXED).ttft_s


def test_the_cache_admits_what_it_holds() -> None:
    client = Client(100, 11, 4, requests=12, shortest=1.0)
    one = run(client, flat(), replace(FIRST, kv_tokens=150))
    assert one.mean_batch == pytest.approx(1.0)
    assert one.makespan_s == pytest.approx(12 * 0.2)
    assert one.held_up_s > 0
    two = run(client, flat(), replace(FIRST, kv_tokens=230))
    assert two.mean_batch == pytest.approx(2.0, rel=0.3)
    assert two.ttft_s < one.ttft_s


def test_slots_limit_the_batch_too() -> None:
    found = run(Client(100, 11, 4, requests=12, shortest=1.0), flat(), replace(FIRST, slots=1))
    assert found.mean_batch == pytest.approx(1.0)


def test_a_request_larger_than_the_cache_still_runs_alone() -> None:
    found = run(Client(100, 11, 2, requests=4, shortest=1.0), flat(), replace(FIRST, kv_tokens=10))
    assert found.makespan_s == pytest.approx(4 * 0.2)


def test_overlapped_scheduling_costs_the_newcomer_a_step() -> None:
    client = Client(1000, 51, 4, shortest=0.5)
    now, later = run(client, flat(), FIRST), run(client, flat(), replace(FIRST, lag_steps=1))
    assert now.ttft_s < later.ttft_s <= now.ttft_s + 2.5 * 0.1


def test_several_tokens_a_round_shorten_the_output() -> None:
    found = run(Client(100, 11, 1, requests=2, shortest=1.0), flat(), replace(FIRST, tokens_per_round=2.0))
    assert found.tpot_s == pytest.approx(0.005)


def test_uneven_prefill_divides_its_rate() -> None:
    found = run(Client(100, 11, 1, requests=1, shortest=1.0), flat(), replace(FIRST, balance=0.5))
    assert found.ttft_s == pytest.approx(0.2)


def test_a_cached_prefix_is_not_computed() -> None:
    tables = flat(prefill_s=0.0, per_token_s=1e-4)
    found = run(Client(1000, 11, 1, requests=1, shortest=1.0, prefix_share=0.75), tables, FIRST)
    assert found.ttft_s == pytest.approx(0.025)


def test_one_output_token_has_no_tpot() -> None:
    found = run(Client(100, 1, 2, requests=4, shortest=1.0), flat(), FIRST)
    assert found.ttft_s > 0
    assert found.tpot_s != found.tpot_s


def test_lengths_are_spread_evenly_and_the_same_every_time() -> None:
    lengths = Client(1000, 500, 64).lengths()
    assert len(lengths) == 640
    prompts, outputs = zip(*lengths, strict=True)
    assert min(prompts) >= SHORTEST * 1000 and max(prompts) <= 1000
    assert sum(prompts) / 640 == pytest.approx(900, rel=0.01)
    assert sum(outputs) / 640 == pytest.approx(450, rel=0.01)
    assert lengths == Client(1000, 500, 64).lengths()
    # prompts and outputs are not drawn alike
    assert abs(sum((p - 900) * (o - 450) for p, o in lengths)) / 640 < 0.2 * 58 * 29


def test_no_more_than_the_concurrency_is_in_flight() -> None:
    found = run(Client(100, 200, 8), flat(), MIXED)
    assert 0 < found.mean_batch <= 8


@settings(max_examples=40, deadline=None)
@given(
    concurrency=some.integers(1, 12), isl=some.integers(1, 3000), osl=some.integers(2, 60), mixed=some.booleans(),
    lag=some.integers(0, 2), kv=some.integers(1, 20_000), factor=some.floats(1.0, 3.0),
)  # fmt: skip
def test_slower_steps_never_make_it_faster(
    concurrency: int, isl: int, osl: int, mixed: bool, lag: int, kv: int, factor: float
) -> None:
    """All requests end, and times grow in proportion when every time does."""
    client = Client(isl, osl, concurrency, requests=3 * concurrency)
    habits = replace(FIRST, mixed=mixed, lag_steps=lag, kv_tokens=kv, chunk=512)
    tables = flat(per_token_s=1e-5)
    one, slower = run(client, tables, habits), run(client, tables.scaled(factor, factor), habits)
    assert slower.makespan_s == pytest.approx(factor * one.makespan_s)
    assert slower.ttft_s == pytest.approx(factor * one.ttft_s)
    assert slower.tpot_s == pytest.approx(factor * one.tpot_s)
    assert one.output_tok_s * one.makespan_s == pytest.approx(sum(o for _, o in client.lengths()))


def test_tables_are_linear_between_nodes() -> None:
    tables = StepTables([1.0, 2.0, 4.0], [10.0, 20.0], [[1.0, 2.0], [2.0, 3.0], [4.0, 5.0]], [8.0, 16.0], [1.0, 2.0])
    assert tables.decode(1, 10) == 1.0
    assert tables.decode(3, 15) == pytest.approx((2.5 + 4.5) / 2)
    assert tables.decode(4, 30) == pytest.approx(6.0)  # on with the last slope
    assert tables.decode(100, 10) == 4.0 and tables.decode(0.5, 10) == 1.0
    assert (
        tables.prefill(4) == 1.0 and tables.prefill(12) == pytest.approx(1.5) and tables.prefill(24) == pytest.approx(3)
    )
    twice = tables.scaled(decode=2.0, prefill=3.0)
    assert twice.decode(1, 10) == 2.0 and twice.prefill(8) == 3.0


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 100])
def test_the_grid_ends_where_it_is_asked_to(most: int) -> None:
    found = grid(most)
    assert found[0] == 1 and found[-1] == most
    assert found == sorted(set(found))


def test_nodes_are_the_prices_of_explain() -> None:
    """Each context is priced by itself: the table holds what `explain` says of the same step."""
    from mlaplan.costs.capacity import Budget
    from mlaplan.engines.load import load_profile
    from mlaplan.explain import explain
    from mlaplan.plan import question
    from mlaplan.serving.step_tables import tables
    from mlaplan.specs.lookup import load_chip, load_model
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Overrides, Workload

    work = Workload(2000, 400)
    q = question(load_chip("h200-sxm"), load_model("deepseek-r1"), load_profile("sglang"), work, Overrides())
    st = Strategy(tp=8, kv_dtype="bf16", weight_dtype="fp8", prefill_chunk=8192)
    found, kv_tokens = tables(q.setting, st, work, Budget(2400, q.budget.memory_fraction), 16)
    for i, batch in enumerate(found.batches):
        for j in (0, 2, len(found.contexts) - 1):
            step = explain(q, replace(st, batch=int(batch)), decode_context=int(found.contexts[j]), served=False).decode
            assert step is not None
            assert found.decode_s[i][j] == pytest.approx(step.step_s.value)
    whole = explain(q, st, prefill_tokens=8192, served=False)
    assert whole.prefill is not None
    assert found.prefill(8192) == pytest.approx(whole.prefill.step_s.value)
    assert kv_tokens == pytest.approx(whole.memory.kv_tokens, rel=0.02)
