"""100,000 requests through the simulator on one core, at a mean batch of at least 256 sequences on the rank.

The load is drawn beforehand and step times are priced beforehand: what is measured is the run alone, in CPU seconds of
one thread. Conversations share prompts, so that the prefix cache works too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from mlaplan import plan, simulation
from mlaplan.engines.load import load_profile
from mlaplan.rules.rule import Question
from mlaplan.serving.simulator import load
from mlaplan.serving.simulator.outcome import Outcome
from mlaplan.serving.simulator.requests import Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload

REQUESTS = 100_000
BATCH = 256
BAR_S = 60.0


def question(engine: str) -> Question:
    work = Workload(isl=1024, osl=512, concurrency=512)
    return plan.question(load_chip("h200-sxm"), load_model("deepseek-v3"), load_profile(engine), work, Overrides())


def timed(name: str, run: Callable[[], Outcome], benchmark: Any, note: Callable[[str], None]) -> None:
    """One run against the bar: it is far away."""
    o = benchmark.pedantic(run)
    seconds = benchmark.stats.stats.data[0]
    note(
        f"simulate, {name}: {len(o.sent_s):,} requests at a mean batch of {o.serve.mean_batch:.0f} a rank in "
        f"{seconds:.1f} CPU s (bar {BAR_S:.0f}), {o.events:,} events, {o.output.sum() / seconds / 1e6:.1f} M tokens/s"
    )
    assert o.serve.mean_batch >= BATCH
    assert seconds < BAR_S


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_one_rank(engine: str, benchmark: Any, note: Callable[[str], None]) -> None:
    """Tensor parallelism: every request is an event of the one rank."""
    st = Strategy(tp=8, kv_dtype="fp8", weight_dtype="fp8", batch=512, prefill_chunk=8192)
    r = load.drawn(load.Lengths("lognormal", 1024, 0.6), load.Lengths("lognormal", 512, 0.6), REQUESTS)
    fleet = simulation.fleet_of(question(engine), st, simulation.Longest.of(r))
    timed(f"TP8, {engine}", lambda: simulate(r, fleet, concurrency=400), benchmark, note)


@pytest.mark.benchmark(timer=time.process_time)
def test_ranks_in_lockstep_that_reuse_prompts(benchmark: Any, note: Callable[[str], None]) -> None:
    """Eight attention-DP ranks, each with its own cache and a batch of its own."""
    st = Strategy(dp=8, ep=8, kv_dtype="fp8", weight_dtype="fp8", batch=512, prefill_chunk=8192)
    short = load.Chats(
        system=load.Lengths("value", 600), question=load.Lengths("lognormal", 200, 1.0),
        answer=load.Lengths("lognormal", 300, 0.8),
    )  # fmt: skip
    r: Requests = load.chats(REQUESTS, 100.0, seed=1, c=short)
    fleet = simulation.fleet_of(question("vllm"), st, simulation.Longest.of(r), routing="cache_aware")
    timed("DP8, shared prompts", lambda: simulate(r, fleet, concurrency=8 * 320), benchmark, note)
