"""The closed-loop client on step times simple enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlaplan.serving.client import SHORTEST, Client, run
from mlaplan.serving.simulator.server import Server
from mlaplan.serving.simulator.tables import StepGrid, grid


def flat(decode_s: float = 0.01, prefill_s: float = 0.1, per_token_s: float = 0.0) -> StepGrid:
    """Decode takes `decode_s` whatever the batch; prefill takes `prefill_s` and `per_token_s` a token."""
    tokens = np.array([1.0, 100_000.0])
    prefill = (prefill_s + per_token_s * tokens)[:, None]
    return StepGrid([1.0, 1000.0], [1.0, 100_000.0], np.full((2, 2), decode_s), tokens, [64.0], prefill, prefill)


FIRST = Server(flat(), mixed=False, chunk=8192, slots=4096, kv_tokens=10**9)
MIXED = replace(FIRST, mixed=True)


def test_one_request_is_a_prefill_and_its_rounds() -> None:
    found = run(Client(100, 11, 1, requests=1, shortest=1.0), FIRST)
    assert found.ttft_s == pytest.approx(0.1)
    assert found.tpot_s == pytest.approx(0.01)
    assert found.output_tok_s == pytest.approx(11 / 0.2)
    assert found.total_tok_s == pytest.approx(111 / 0.2)
    assert found.mean_batch == pytest.approx(1.0)


def test_front_end_delays_every_request() -> None:
    server = replace(FIRST, front_end_s=0.05, front_end_per_token_s=1e-4)
    found = run(Client(100, 11, 1, requests=3, shortest=1.0), server)
    assert found.ttft_s == pytest.approx(0.1 + 0.05 + 0.01)
    assert found.tpot_s == pytest.approx(0.01)


def test_the_burst_at_the_start_counts() -> None:
    """Four prompts of a whole chunk each: they wait for 0, 1, 2 and 3 prefills; decode waits for all of them."""
    found = run(Client(8192, 2, 4, requests=4, shortest=1.0), FIRST)
    assert found.ttft_s == pytest.approx(0.1 * (1 + 2 + 3 + 4) / 4)
    # the first request waits for three prefills before its only round
    assert found.tpot_s == pytest.approx((3 + 2 + 1 + 0) / 4 * 0.1 + 0.01)


def test_small_prompts_share_a_step() -> None:
    found = run(Client(1024, 2, 8, requests=8, shortest=1.0), FIRST)
    assert found.ttft_s == pytest.approx(0.1)


def test_mixed_steps_carry_decode_along() -> None:
    """With equal requests all prompts go first; later prompts stretch the rounds they share."""
    server = replace(MIXED, steps=flat(decode_s=0.01, prefill_s=0.0, per_token_s=1e-4))
    alone = run(Client(1000, 101, 1, requests=5, shortest=1.0), server)
    assert alone.ttft_s == pytest.approx(1000e-4)
    assert alone.tpot_s == pytest.approx(0.01)
    shared = run(Client(1000, 101, 4, shortest=0.5), server)
    assert shared.tpot_s > alone.tpot_s


def test_whole_prompts_wait_for_a_step_with_room() -> None:
    """Prompts of 600 tokens, 1000 a step: cut, two take 0.1 + 0.2 s; whole, one a step as well, but none is begun."""
    client, server = (
        Client(600, 2, 2, requests=2, shortest=1.0),
        replace(MIXED, steps=flat(0.01, 0.0, 1e-3), chunk=1000),
    )
    cut, whole = run(client, server), run(client, replace(server, whole_prompts=True))
    # cut: 600 and 400 tokens of both prompts in 1 s, then the 200 left and one decoding token in 0.201 s
    assert cut.ttft_s == pytest.approx((1.0 + 1.0 + 0.201) / 2)
    # whole: 600 tokens, then 600 and the first request's decoding token
    assert whole.ttft_s == pytest.approx((0.6 + 0.6 + 0.601) / 2)


def test_a_prompt_longer_than_any_step_is_cut_even_so() -> None:
    found = run(Client(2500, 2, 1, requests=1, shortest=1.0), replace(MIXED, chunk=1000, whole_prompts=True))
    assert found.ttft_s == pytest.approx(0.3)


@pytest.mark.parametrize("server", [FIRST, MIXED], ids=["prompts first", "mixed"])
def test_cold_kernels_hold_up_the_first_burst_alone(server: Server) -> None:
    client = Client(100, 11, 4, requests=40, shortest=1.0)
    warm, cold = run(client, server), run(client, replace(server, cold_s=2.0))
    assert cold.ttft_s - warm.ttft_s == pytest.approx(2.0 * 4 / 40)
    assert 440 / cold.output_tok_s - 440 / warm.output_tok_s == pytest.approx(2.0)


def test_a_cached_prefix_is_not_computed() -> None:
    client = Client(1000, 11, 1, requests=1, shortest=1.0, prefix_share=0.75)
    found = run(client, replace(FIRST, steps=flat(prefill_s=0.0, per_token_s=1e-4)))
    assert found.ttft_s == pytest.approx(0.025)


def test_one_output_token_has_no_tpot() -> None:
    found = run(Client(100, 1, 2, requests=4, shortest=1.0), FIRST)
    assert found.ttft_s > 0
    assert found.tpot_s != found.tpot_s


def test_lengths_are_spread_evenly_and_the_same_every_time() -> None:
    sent = Client(1000, 500, 64).sends()
    assert len(sent) == 640
    assert sent.prompt.min() >= SHORTEST * 1000
    assert sent.prompt.max() <= 1000
    assert sent.prompt.mean() == pytest.approx(900, rel=0.01)
    assert sent.output.mean() == pytest.approx(450, rel=0.01)
    assert sent.prompt.tolist() == Client(1000, 500, 64).sends().prompt.tolist()
    # prompts and outputs are not drawn alike
    assert abs(np.mean((sent.prompt - 900) * (sent.output - 450))) < 0.2 * 58 * 29


def test_no_more_than_the_concurrency_is_in_flight() -> None:
    found = run(Client(100, 200, 8), MIXED)
    assert 0 < found.mean_batch <= 8


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 100])
def test_the_grid_ends_where_it_is_asked_to(most: int) -> None:
    found = grid(most)
    assert found[0] == 1
    assert found[-1] == most
    assert found == sorted(set(found))


def test_nodes_are_the_prices_of_explain() -> None:
    """Each context is priced by itself: the grid holds what `explain` says of the same step."""
    from mlaplan.costs.capacity import Budget
    from mlaplan.engines.load import load_profile
    from mlaplan.explain import explain
    from mlaplan.plan import question
    from mlaplan.serving.simulator.tables import priced
    from mlaplan.specs.lookup import load_chip, load_model
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Overrides, Workload

    work = Workload(2000, 400)
    q = question(load_chip("h200-sxm"), load_model("deepseek-r1"), load_profile("sglang"), work, Overrides())
    st = Strategy(tp=8, kv_dtype="bf16", weight_dtype="fp8", prefill_chunk=8192, batch=16)
    found, kv_tokens = priced(
        q.setting, st, Budget(2400, q.budget.memory_fraction), most_prompt=2000, most_context=2400
    )
    for batch in (1, 6, 16):
        for context in (int(found.contexts[i]) for i in (0, 2, len(found.contexts) - 1)):
            step = explain(q, replace(st, batch=batch), decode_context=context, served=False).decode
            assert step is not None
            assert found.decode(batch, context)[0] == pytest.approx(step.step_s.value)
    whole = explain(q, st, prefill_tokens=8192, served=False)
    assert whole.prefill is not None
    # prompts of 2000 tokens: each token attends to 1000 on average, every key is new
    assert found.prefill(8192, 8192 * 1000, 8192)[0] == pytest.approx(whole.prefill.step_s.value, rel=0.002)
    assert kv_tokens == pytest.approx(whole.memory.kv_tokens, rel=0.02)
