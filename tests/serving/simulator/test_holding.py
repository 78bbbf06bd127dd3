"""Prompts held back until all ranks have one: counted by hand, and round by round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlaplan.serving.simulator import holding
from mlaplan.serving.simulator.requests import Requests
from mlaplan.serving.simulator.run import simulate
from mlaplan.serving.simulator.server import Fleet, Pool, Server
from mlaplan.serving.simulator.tables import StepGrid
from tests.serving.simulator.test_run import PLENTY, requests


def flat() -> StepGrid:
    """Every round takes 10 ms, a step with prompts 110 ms."""
    step = np.full((2, 1), 0.11)
    return StepGrid([1.0, 100.0], [1.0, 1e5], np.full((2, 2), 0.01), [1.0, 1e5], [64.0], step, step)


TWO = Server(flat(), mixed=True, chunk=1000, slots=64, kv_tokens=10**6, block_tokens=1, ranks=2)


def sent(*times: float, output: int = 101) -> Requests:
    return Requests(np.array(times), np.full(len(times), 100), np.full(len(times), output))


def first_tokens(r: Requests, server: Server) -> list[float]:
    o = simulate(r, Fleet(Pool(server)))
    return [round(float(t), 9) for t in o.sent_s + o.ttft_s]


def test_a_lone_prompt_waits_for_its_rounds() -> None:
    """Both ranks begin at 0 and decode from 0.11 s on. A third request comes at 0.155 s, in the fifth round."""
    r = sent(0.0, 0.0, 0.155)
    assert first_tokens(r, TWO) == [0.11, 0.11, 0.27]  # 0.16 and a step of 0.11
    # decisions at 0.11, 0.12... count 1, 2...; that at 0.16 is the sixth, so the tenth, at 0.20, lets go
    assert first_tokens(r, replace(TWO, hold_rounds=10)) == [0.11, 0.11, 0.31]


def test_prompts_of_all_ranks_go_at_once() -> None:
    """The fourth request, on the other rank, comes at 0.185 s: the decision at 0.19 sees a prompt on each rank."""
    found = first_tokens(sent(0.0, 0.0, 0.155, 0.185), replace(TWO, hold_rounds=10))
    assert found == [0.11, 0.11, 0.30, 0.30]


def test_nothing_waits_where_a_rank_has_nothing_to_decode() -> None:
    """Outputs of one token: nobody decodes when the second request comes."""
    found = first_tokens(sent(0.0, 0.5, output=1), replace(TWO, hold_rounds=10))
    assert found == [0.11, 0.61]


def test_the_count_goes_on_where_there_is_nothing_to_hold() -> None:
    """At 0.255 s two rounds of ten counts are over at 0.30: decisions at 0.20 and 0.30 are the tenth ones."""
    assert first_tokens(sent(0.0, 0.0, 0.255), replace(TWO, hold_rounds=10)) == [0.11, 0.11, 0.41]


@pytest.mark.parametrize("hold", [1, 7, 60])
@pytest.mark.parametrize("mixed", [False, True], ids=["prompts first", "mixed"])
def test_skipping_rounds_changes_nothing(hold: int, mixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    server = replace(PLENTY, ranks=3, mixed=mixed, hold_rounds=hold, lag_steps=1)
    for seed, concurrency in ((1, None), (2, 12)):
        r = requests(np.random.default_rng(seed), 60, 20.0, 2500, False)
        skipped = simulate(r, Fleet(Pool(server)), concurrency=concurrency)
        with monkeypatch.context() as patch:
            patch.setattr(holding.Holding, "left", property(lambda _: 1, lambda _, __: None), raising=False)
            each = simulate(r, Fleet(Pool(server)), concurrency=concurrency)
        assert each.events > skipped.events
        np.testing.assert_allclose(skipped.end_s, each.end_s, rtol=1e-9)
        np.testing.assert_allclose(skipped.ttft_s, each.ttft_s, rtol=1e-7)


def test_one_round_holds_nothing() -> None:
    r = requests(np.random.default_rng(3), 60, 20.0, 2500, False)
    plain, held = (simulate(r, Fleet(Pool(replace(PLENTY, ranks=3, hold_rounds=n)))) for n in (0, 1))
    assert plain.end_s.tolist() == held.end_s.tolist()
