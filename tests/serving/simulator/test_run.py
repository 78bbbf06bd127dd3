"""The simulator against its rules said plainly, and what must hold whatever the load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mlaplan.serving.simulator.outcome import Outcome
from mlaplan.serving.simulator.requests import Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.serving.simulator.sequence import drawn_rounds
from mlaplan.serving.simulator.server import Fleet, Pool, Server
from mlaplan.serving.simulator.tables import StepGrid
from tests.serving.simulator import naive


def steps(stages: int = 1, host_s: float = 0.0) -> StepGrid:
    """Rounds of 10 ms and more with batch and context; prompts at 0.1 ms a token and more with what they attend to."""
    batches, contexts = np.array([1.0, 4.0, 64.0]), np.array([64.0, 1000.0, 3000.0, 10_000.0])
    decode = 0.010 + 1e-5 * batches[:, None] + 2e-8 * batches[:, None] * contexts[None, :] ** 1.1
    tokens, reaches = np.array([16.0, 512.0, 8192.0]), np.array([64.0, 4096.0])
    prefill = 0.004 + 1e-4 * tokens[:, None] * (1.0 + reaches[None, :] / 20_000)
    experts = 1e-5 * batches + 1e-3, 2e-5 * tokens
    return StepGrid(batches, contexts, decode, tokens, reaches, prefill, stages * prefill, 1e-7, experts, host_s)


PLENTY = Server(steps(), mixed=False, chunk=2048, slots=64, kv_tokens=10**7, block_tokens=16)


def requests(rng: np.random.Generator, count: int, rate: float, longest: int, shared: bool) -> Requests:
    """Poisson arrivals; with `shared`, prompts begin with one of three prefixes."""
    arrival = np.cumsum(rng.exponential(1.0 / rate, count))
    prompt, output = rng.integers(1, longest, count), rng.integers(1, 60, count)
    ids = None
    if shared:
        ids = []
        for i, tokens in enumerate(prompt.tolist()):
            start = int(rng.integers(3)) * 1000
            own = int(rng.integers(0, 4))
            blocks = -(-tokens // 512)
            ids.append([start + k if k < own else 10_000 + 100 * i + k for k in range(blocks)])
    return Requests(arrival, prompt, output, ids)


def alike(r: Requests, server: Server, concurrency: int | None, seed: int = 0) -> Outcome:
    """The run, after checking it against the plain one."""
    found = simulate(r, Fleet(Pool(server)), concurrency=concurrency, seed=seed)
    rounds = drawn_rounds(r.output - 1, server.drafts, server.acceptance, np.random.default_rng(seed)).tolist()
    plain = naive.run(r, server, rounds, concurrency)
    np.testing.assert_allclose(found.end_s, plain["end"], rtol=1e-9)
    np.testing.assert_allclose(found.ttft_s, np.array(plain["first"]) - np.array(plain["sent"]), rtol=1e-7, atol=1e-9)
    assert found.preempted.tolist() == plain["preempted"]
    assert found.hit_tokens.tolist() == plain["hits"]
    assert found.serve.evictions == plain["evictions"][0]
    return found


CASES = {
    "prompts first": PLENTY,
    "mixed": replace(PLENTY, mixed=True),
    "a step of lag": replace(PLENTY, lag_steps=1),
    "mixed with lag": replace(PLENTY, mixed=True, lag_steps=1, front_end_s=0.02, front_end_per_token_s=1e-5),
    "few slots": replace(PLENTY, slots=3),
    "four stages": replace(PLENTY, steps=steps(4)),
    "four stages, mixed, lag": replace(PLENTY, steps=steps(4), mixed=True, lag_steps=1, chunk=300),
    "four stages, two ranks, small cache": replace(PLENTY, steps=steps(4), ranks=2, kv_tokens=6000),
    "four ranks, drafts": replace(PLENTY, ranks=4, drafts=2, acceptance=0.7),
    "four ranks, small cache": replace(PLENTY, ranks=4, kv_tokens=4000),
    "small chunks": replace(PLENTY, mixed=True, chunk=100),
    "four ranks": replace(PLENTY, ranks=4),
    "four ranks, mixed, lag": replace(PLENTY, ranks=4, mixed=True, lag_steps=1),
    "preemption": replace(PLENTY, kv_tokens=6000),
    "preemption, mixed": replace(PLENTY, kv_tokens=6000, mixed=True, chunk=512),
    "a watermark": replace(PLENTY, kv_tokens=6000, mixed=True, watermark=0.01),
    "room set aside": replace(PLENTY, kv_tokens=6000, set_aside=1.0),
    "some room set aside": replace(PLENTY, kv_tokens=6000, set_aside=0.3, mixed=True),
    "drafts": replace(PLENTY, drafts=2, acceptance=0.7),
    "drafts, small cache": replace(PLENTY, drafts=2, acceptance=0.7, kv_tokens=6000, mixed=True),
    "the host is slow": replace(PLENTY, steps=steps(host_s=0.12)),
    "launches are ahead": replace(PLENTY, steps=steps(host_s=0.12), lag_steps=1),
    "launches are ahead, mixed": replace(PLENTY, steps=steps(host_s=0.05), mixed=True, lag_steps=1, chunk=700),
    "launches are ahead, four ranks": replace(PLENTY, steps=steps(host_s=0.1), ranks=4, lag_steps=1, kv_tokens=4000),
    "launches are ahead, drafts": replace(PLENTY, steps=steps(host_s=0.1), drafts=2, acceptance=0.7, lag_steps=2),
    "two ranks, small cache, lag": replace(PLENTY, ranks=2, kv_tokens=5000, lag_steps=1, mixed=True, block_tokens=64),
}


@pytest.mark.parametrize("shared", [False, True], ids=["own prompts", "shared prompts"])
@pytest.mark.parametrize("name", CASES)
def test_skipping_steps_changes_nothing(name: str, shared: bool) -> None:
    server = CASES[name]
    preempted = 0
    for seed, rate, concurrency in ((1, 5.0, None), (2, 60.0, None), (3, 1.0, 12)):
        r = requests(np.random.default_rng(seed), 50, rate, 2500, shared)
        found = alike(r, server, concurrency, seed)
        assert not found.refused.any()
        preempted += int(found.preempted.sum())
    if name.startswith("preemption"):
        assert preempted > 0
    if server.set_aside == 1.0:
        assert preempted == 0


@settings(max_examples=15, deadline=None)
@given(
    seed=some.integers(0, 10**6), mixed=some.booleans(), lag=some.integers(0, 2), ranks=some.integers(1, 3),
    kv=some.sampled_from([3000, 4000, 8000, 10**6]), block=some.sampled_from([1, 16, 64, 128, 96]),
    chunk=some.sampled_from([60, 700, 4096]), rate=some.sampled_from([2.0, 30.0, 500.0]),
    set_aside=some.sampled_from([0.0, 0.1, 1.0]), drafts=some.integers(0, 3), shared=some.booleans(),
    concurrency=some.sampled_from([None, 1, 7]), slots=some.sampled_from([1, 5, 64]),
    stages=some.sampled_from([1, 1, 3]), host_s=some.sampled_from([0.0, 0.03, 0.1]),
)  # fmt: skip
def test_any_server_is_simulated_by_its_rules(
    seed: int, mixed: bool, lag: int, ranks: int, kv: int, block: int, chunk: int, rate: float, set_aside: float,
    drafts: int, shared: bool, concurrency: int | None, slots: int, stages: int, host_s: float,
) -> None:  # fmt: skip
    server = Server(
        steps(stages, host_s), mixed=mixed, chunk=chunk, slots=slots, kv_tokens=kv, block_tokens=block, ranks=ranks,
        lag_steps=lag, set_aside=set_aside, drafts=drafts, acceptance=0.6 if drafts else 0.0,
    )  # fmt: skip
    alike(requests(np.random.default_rng(seed), 40, rate, 2000, shared), server, concurrency, seed)
