"""What holds for every run: nothing is lost, nothing is there twice, more load is never better."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mlaplan.serving.simulator import load
from mlaplan.serving.simulator.outcome import Limit, Outcome
from mlaplan.serving.simulator.requests import HASH_TOKENS, Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.serving.simulator.sequence import drawn_rounds
from mlaplan.serving.simulator.server import ROUTINGS, Fleet, Pool, Server
from tests.serving.simulator.test_run import PLENTY, steps

CHAT = load.chats(400, 6.0, seed=3)


def finished(o: Outcome) -> None:
    """Every request ended once, after its first token, after it was sent."""
    assert not o.refused.any()
    assert (o.ttft_s > 0).all()
    assert (o.queue_s >= 0).all()
    assert (o.end_s >= o.sent_s + o.ttft_s - 1e-9).all()
    for pool in (o.serve, o.prefill):
        if pool:
            assert pool.peak_held <= 1.0
            assert ((pool.series.held + pool.series.cached) <= 1.0 + 1e-12).all()


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(
    "server",
    [PLENTY, replace(PLENTY, mixed=True, ranks=3), replace(PLENTY, kv_tokens=60_000)],
    ids=["one", "three", "small"],
)
def test_every_prompt_token_is_found_or_computed(server: Server, routing: str) -> None:
    o = simulate(CHAT, Fleet(Pool(server, 2, routing)), seed=1)  # type: ignore[arg-type]
    finished(o)
    again = o.serve.computed_tokens + o.serve.hit_tokens - int(CHAT.prompt.sum())
    assert o.serve.prompt_tokens == CHAT.prompt.sum()
    assert o.serve.hit_tokens == o.hit_tokens.sum()
    assert (o.hit_tokens < CHAT.prompt).all()
    assert (o.hit_tokens % HASH_TOKENS == 0).all()
    assert (again > 0) == (o.preempted.sum() > 0)  # a preempted one is computed again
    assert again >= 0
    # a gap between outputs for each token after the first, but for those that a preemption computes again
    assert o.itl_weight.sum() == pytest.approx((CHAT.output - 1).sum() - o.preempted.sum())


def test_a_cache_that_is_off_finds_nothing() -> None:
    o = simulate(CHAT, Fleet(Pool(replace(PLENTY, prefix_cache=False))))
    finished(o)
    assert o.serve.hit_tokens == 0
    with_it = simulate(CHAT, Fleet(Pool(PLENTY)))
    assert with_it.serve.hit_tokens > 0
    assert np.mean(with_it.ttft_s) < np.mean(o.ttft_s)


def test_routing_by_prompts_finds_more_than_routing_by_turns() -> None:
    server = replace(PLENTY, ranks=4)
    shares = {}
    for routing in ROUTINGS:
        o = simulate(CHAT, Fleet(Pool(server, 2, routing)))
        shares[routing] = o.serve.hit_tokens / o.serve.prompt_tokens
    assert shares["cache_aware"] > 1.2 * shares["round_robin"]


def test_equal_seeds_give_equal_runs_to_the_last_bit() -> None:
    fleet = Fleet(Pool(replace(PLENTY, drafts=2, acceptance=0.6, ranks=2, mixed=True, lag_steps=1), 2))
    one, other = (simulate(CHAT, fleet, seed=7) for _ in range(2))
    assert one.end_s.tobytes() == other.end_s.tobytes()
    assert one.events == other.events
    assert simulate(CHAT, fleet, seed=8).end_s.tobytes() != one.end_s.tobytes()


@pytest.mark.parametrize("server", [PLENTY, replace(PLENTY, mixed=True), replace(PLENTY, kv_tokens=80_000)],
                         ids=["prompts first", "mixed", "small cache"])  # fmt: skip
def test_more_load_is_never_faster(server: Server) -> None:
    """The same requests closer together: their waiting and their time per token do not fall on average."""
    r = load.drawn(load.Lengths("lognormal", 800, 0.8), load.Lengths("lognormal", 80, 0.8), 700, rate=1.0, seed=5)
    runs = [simulate(r.at_rate(rate), Fleet(Pool(server))) for rate in (0.5, 1.0, 2.0, 4.0, 8.0)]
    for name in ("ttft_s", "tpot_s", "queue_s"):
        means = [float(np.nanmean(getattr(o, name))) for o in runs]
        assert all(b >= a * 0.999 for a, b in pairwise(means)), (name, means)
    assert all(b.serve.mean_batch >= a.serve.mean_batch for a, b in pairwise(runs))


def test_requests_longer_than_the_cache_are_refused_and_the_rest_served() -> None:
    r = Requests(np.zeros(3), np.array([100, 5000, 100]), np.array([10, 10, 10**8]))
    o = simulate(r, Fleet(Pool(replace(PLENTY, kv_tokens=4096))))
    assert o.refused.tolist() == [False, True, True]
    assert not o.meets(Limit(95, 100.0), None)
    assert simulate(r, Fleet(Pool(replace(PLENTY, kv_tokens=4096))), concurrency=1).refused.tolist() == [
        False,
        True,
        True,
    ]


def test_one_request_alone_takes_its_steps() -> None:
    r = Requests(np.array([5.0]), np.array([3000]), np.array([21]))
    o = simulate(r, Fleet(Pool(replace(PLENTY, front_end_s=0.05, front_end_per_token_s=1e-5))))
    s = steps()
    first, second = s.prefill(2048, 2048 * 1024.0, 2048)[0], s.prefill(952, 952 * (2048 + 476.0), 3000)[0]
    assert o.ttft_s[0] == pytest.approx(0.05 + 0.03 + first + second)
    assert o.tpot_s[0] == pytest.approx(np.mean([s.decode(1, 3000.0 + k)[0] for k in range(20)]))


# ---- prompts and outputs apart ----


def test_a_split_fleet_hands_every_prompt_over_once() -> None:
    sent: list[int] = []

    def transfer_s(tokens: int) -> float:
        sent.append(tokens)
        return 0.01 + 1e-6 * tokens

    fleet = Fleet(Pool(replace(PLENTY, ranks=2), 2), Pool(replace(PLENTY, front_end_s=0.02), 3), transfer_s)
    o = simulate(CHAT, fleet)
    finished(o)
    assert o.prefill is not None
    assert len(sent) == len(CHAT)
    assert o.prefill.computed_tokens + o.prefill.hit_tokens == CHAT.prompt.sum()
    assert o.serve.computed_tokens == 0
    assert sum(sent) + o.serve.hit_tokens == CHAT.prompt.sum()
    assert o.itl_weight.sum() == pytest.approx((CHAT.output - 1).sum())


def test_a_lone_request_of_a_split_fleet_waits_for_its_transfer() -> None:
    r = Requests(np.array([0.0]), np.array([1000]), np.array([11]))
    fleet = Fleet(Pool(PLENTY), Pool(PLENTY), lambda tokens: 0.3 + tokens * 1e-4)
    o = simulate(r, fleet)
    s = steps()
    assert o.ttft_s[0] == pytest.approx(s.prefill(1000, 500_000.0, 1000)[0] + 0.3 + 0.1)
    assert o.tpot_s[0] == pytest.approx(np.mean([s.decode(1, 1000.0 + k)[0] for k in range(10)]))


def test_a_small_receiving_cache_delays_transfers_and_loses_nothing() -> None:
    fleet = Fleet(Pool(replace(PLENTY, kv_tokens=40_000)), Pool(replace(PLENTY, kv_tokens=60_000)), lambda _: 0.01)
    for concurrency in (None, 30):
        o = simulate(CHAT, fleet, concurrency=concurrency)
        finished(o)
        assert o.serve.preemptions > 0


# ---- drafts ----


@pytest.mark.parametrize(("drafts", "acceptance"), [(1, 0.8), (3, 0.6)])
def test_drafts_yield_their_expected_tokens(drafts: int, acceptance: float) -> None:
    tokens = np.full(400, 2000)
    rounds = drawn_rounds(tokens, drafts, acceptance, np.random.default_rng(0))
    expected = sum(acceptance**k for k in range(drafts + 1))
    assert (tokens / rounds).mean() == pytest.approx(expected, rel=0.005)
    assert rounds.std() > 5  # drawn, not the mean
    assert (drawn_rounds(tokens, drafts, 1.0, np.random.default_rng(0)) == -(-2000 // (1 + drafts))).all()
