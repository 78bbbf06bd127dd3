"""Launches that run ahead of results, counted by hand: rounds of 20 ms, a device of 10 to 130 ms, a host of 100 ms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlaplan.serving.simulator.requests import Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.serving.simulator.server import Fleet, Pool, Server
from mlaplan.serving.simulator.tables import StepGrid


def grid() -> StepGrid:
    """A prompt of 100 tokens takes the device 10 ms, one of 1,100 tokens 130 ms."""
    step = np.array([[0.01], [0.13]])
    return StepGrid(
        [1.0, 100.0], [1.0, 1e5], np.full((2, 2), 0.02), [100.0, 1100.0], [64.0], step, step, host_s=0.1
    )  # fmt: skip


AHEAD = Server(grid(), mixed=False, chunk=2000, slots=64, kv_tokens=10**6, block_tokens=1, lag_steps=1)


def first_tokens(server: Server, *sent: tuple[float, int], output: int = 101) -> list[float]:
    """When the first tokens of requests are out. sent: (when, prompt)."""
    at, prompts = zip(*sent, strict=True)
    o = simulate(Requests(np.array(at), np.array(prompts), np.full(len(sent), output)), Fleet(Pool(server)))
    return [round(float(t), 9) for t in o.sent_s + o.ttft_s]


@pytest.mark.parametrize("mixed", [False, True], ids=["prompts first", "mixed"])
def test_a_prompt_beside_decode_waits_less_for_the_host(mixed: bool) -> None:
    """The first prompt finds an idle server. Of the second, at 0.205 s, the decision at 0.24 s knows; launches for it
    began with the round at 0.22 s."""
    server = replace(AHEAD, mixed=mixed)
    assert first_tokens(server, (0.0, 100), (0.205, 100)) == [0.1, 0.32]
    # without lag the decision at 0.22 s knows of it, and nothing is launched ahead
    assert first_tokens(replace(server, lag_steps=0), (0.0, 100), (0.205, 100)) == [0.1, 0.32]


def test_after_a_step_that_waited_for_the_host_nothing_is_spared() -> None:
    """The third request comes a round after the second, so its prompt is computed right after the other's."""
    assert first_tokens(AHEAD, (0.0, 100), (0.205, 100), (0.225, 100)) == [0.1, 0.32, 0.42]


def test_after_a_step_that_the_device_was_longer_at_the_rest_is_spared() -> None:
    """A prompt of 130 ms, of which the host has launched all after 100 ms: 30 ms for the next."""
    assert first_tokens(AHEAD, (0.0, 100), (0.205, 1100), (0.225, 100)) == [0.1, 0.37, 0.44]


def test_an_idle_server_is_not_ahead() -> None:
    """The first request is over after two rounds, at 0.14 s."""
    assert first_tokens(AHEAD, (0.0, 100), (0.5, 100), output=3) == [0.1, 0.6]


def test_a_band_scales_launches_with_prompts() -> None:
    assert grid().scaled(2.0, 3.0).host_s == pytest.approx(0.3)
