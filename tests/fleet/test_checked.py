"""The formula beside the simulator for one instance, and the search for the fewest replicas.

The two speak of the same where there is no attention DP and no pipeline. The search is tested on fleets whose times
are known by hand.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.engines.load import load_profile
from mlaplan.fleet.checked import Judge, _grows, fewest
from mlaplan.fleet.offered import Offered
from mlaplan.fleet.operating import Curve, Point
from mlaplan.fleet.size import Instance, Sized, touched
from mlaplan.plan import question
from mlaplan.serving.simulator.load import Lengths
from mlaplan.serving.simulator.outcome import Limit
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload

TTFT, TPOT = Limit(95, 2.0), Limit(95, 0.05)
LOAD = Offered(Lengths("value", 3500), Lengths("value", 500), "")
Q = question(
    load_chip("h100-sxm"), load_model("llama-3-70b"), load_profile("generic"), Workload(3500, 500), Overrides()
)


@pytest.mark.parametrize("rate", [0.3, 0.8])
def test_one_instance_by_both(rate: float) -> None:
    q = question(
        load_chip("ascend-910b3"), load_model("llama-3-70b"), load_profile("generic"), Workload(3500, 500), Overrides()
    )
    s = Strategy(tp=8, kv_dtype="bf16", block_size=16, prefill_chunk=2048, batch=32)
    formula = Curve(q, s, None).at(rate, TTFT, TPOT)
    simulated = Judge(TTFT, TPOT, None, LOAD).point(Sized(Instance(q, s, rate), rate, 1))
    assert formula.tpot_s == pytest.approx(simulated.tpot_s, rel=0.12)
    assert formula.in_flight == pytest.approx(simulated.in_flight, rel=0.25)
    # the formula queues whole prompts, the engine mixes a next one into the steps of another
    assert simulated.ttft_s * 0.9 <= formula.ttft_s <= simulated.ttft_s * 1.8


class Whole(Judge):
    """Runs every replica."""

    def simulated(self, s: Sized) -> int:
        return s.replicas


@pytest.mark.parametrize("dp", [1, 4])
def test_a_few_replicas_are_no_better_than_all_of_them(dp: int) -> None:
    """8 replicas at a request a second and rank; of four ranks 2 are run, of one 4."""
    q = question(
        load_chip("h200-sxm"), load_model("llama-3-70b"), load_profile("generic"), Workload(2000, 200), Overrides()
    )
    s = Sized(Instance(q, Strategy(tp=2, dp=dp, prefill_chunk=2048, batch=64), 1.0), 8.0 * dp, 8)
    load = Offered(Lengths("value", 2000), Lengths("value", 200), "")
    few, whole = (judge(TTFT, TPOT, None, load).point(s) for judge in (Judge, Whole))
    assert 0.99 * whole.tpot_s <= few.tpot_s <= 1.08 * whole.tpot_s
    assert few.ttft_s == pytest.approx(whole.ttft_s, rel=0.12)
    assert few.prompt_share == pytest.approx(whole.prompt_share, rel=0.05)


@pytest.mark.parametrize("passing", [1, 2, 3, 40, 1000, 15_753_157])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999, 1.0])
def test_the_fewest_of_many_are_found_without_asking_all(passing: int, share: float) -> None:
    least, asked = max(round(share * passing), 1), []

    def meets(n: int) -> bool:
        asked.append(n)
        return n >= least

    assert fewest(passing, meets) == least
    assert all(0 < n < passing for n in asked)
    assert len(asked) == len(set(asked)) <= 60


# ---- fleets by hand: TTFT 1 / (most - load of a replica), so that a limit T is kept up to most - 1 / T ----

SIZES = {4: (Instance(Q, Strategy(tp=4, batch=32), 2.0), 3.0), 8: (Instance(Q, Strategy(tp=8, batch=64), 6.0), 8.0)}


class ByHand(Judge):
    """Each replica loses a tenth of its most where fewer than four share the queue."""

    def _point(self, s: Sized) -> Point:
        self.runs += 1
        most = SIZES[s.instance.chips][1] * (1.0 if s.replicas >= 4 else 0.9)
        left = most - s.rate / s.replicas
        return Point(s.rate, 1 / left if left > 0 else float("inf"), 0.0, 0.5, 1.0, 1.0, 32)


def answer(rate: float, limit: float, judge: Judge | None = None) -> Sized | None:
    found = judge or ByHand(Limit(95, limit), None, None, LOAD)
    options = [Sized(one, rate, max(ceil(rate / one.most_per_s), 1)) for one, _ in SIZES.values()]
    return found.fewest(options)


def by_hand(rate: float, limit: float) -> int:
    """The fewest chips, replica by replica."""
    best = []
    for chips, (_, most) in SIZES.items():
        for n in range(1, 2000):
            load = rate / n
            if load <= most * (1.0 if n >= 4 else 0.9) - 1 / limit:
                best.append(n * chips)
                break
    return min(best)


def test_the_fewest_chips_by_hand() -> None:
    """10 requests/s within 1 s: 8 chips keep 8 x 0.9 - 1 = 6.2/s, so two; 4 chips 2/s, so five; 16 chips are fewer."""
    found = answer(10.0, 1.0)
    assert found is not None and (found.chips, found.replicas) == (16, 2)


@given(st.floats(0.1, 300), st.floats(0.6, 10))
def test_it_is_what_trying_all_finds(rate: float, limit: float) -> None:
    found = answer(rate, limit)
    assert found is not None and found.chips == by_hand(rate, limit)


@given(st.floats(0.1, 100), st.floats(1, 4), st.floats(0.6, 5), st.floats(1, 3))
def test_more_load_needs_no_fewer_chips_and_a_looser_limit_no_more(
    rate: float, more: float, limit: float, looser: float
) -> None:
    one, judge = answer(rate, limit), ByHand(Limit(95, limit), None, None, LOAD)
    assert one is not None
    rates = [answer(rate * share, limit, judge) for share in (1.0, more, 2 * more)]
    chips = [x.chips for x in rates if x is not None]
    assert chips == sorted(chips) and chips[0] == one.chips
    loose = answer(rate, limit * looser)
    assert loose is not None and loose.chips <= one.chips


def test_what_is_known_of_a_load_is_not_run_again() -> None:
    judge = ByHand(Limit(95, 1.0), None, None, LOAD)
    first, runs = answer(40.0, 1.0, judge), judge.runs
    assert first is not None and first.replicas >= 4
    assert judge.meets(replace(first, rate=80.0, replicas=2 * first.replicas)) and judge.runs == runs


def test_a_limit_that_no_number_keeps_is_told_with_the_largest_fleet() -> None:
    judge = ByHand(Limit(95, 0.1), None, None, LOAD)
    assert answer(10.0, 0.1, judge) is None
    assert judge.missed is not None and judge.missed[1].ttft_s > 0.1


@pytest.mark.parametrize(
    ("instance", "server", "replicas"),
    [(8, 8, 1), (4, 8, 2), (1, 8, 8), (16, 8, 1), (32, 16, 1), (24, 16, 2), (3, 8, 4), (6, 4, 2), (12, 8, 2)],
)
def test_replicas_of_a_failed_server(instance: int, server: int, replicas: int) -> None:
    """24 chips on servers of 16: the second has chips of both first replicas; a replica of 32 goes as a whole."""
    assert touched(instance, server) == replicas
    whole = range(instance * server)
    brute = max(len({c // instance for c in whole if c // server == k}) for k in range(instance))
    assert brute == replicas


def test_a_queue_that_grows() -> None:
    """A request a second: served at 0.9 a second the n-th waits n / 9 s; at 1.1 a second none waits."""

    class Out:
        sent_s = np.arange(1000.0)
        ttft_s = np.arange(1000.0) / 9

    assert _grows(Out())  # type: ignore[arg-type]
    Out.ttft_s = np.full(1000, 5.0)
    assert not _grows(Out())  # type: ignore[arg-type]
