"""From steps to a served workload: the published formulas by hand, then what must hold."""

import math

import numpy as np
import pytest
from costs import round as r
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs.engine import exactly
from mlaplan.costs.table import Table
from mlaplan.serving import steady, waiting
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Workload


def served(work, decode_s=0.1, prefill_s=2.0, pass_s=None, tokens=1.0, step=None, engine=None, **degrees):
    """Served figures of one row whose steps take these times at any batch; a chunk holds one prompt's step."""
    step = work.new_tokens if step is None else step
    table = Table(to_table([Strategy(**{"prefill_chunk": step, **degrees})])).having(cut=np.zeros(1, dtype=np.int64))
    pass_s = prefill_s if pass_s is None else pass_s
    times = {"decode_s": decode_s, "prefill_s": prefill_s, "prefill_pass_s": pass_s, "decode_gain_s": 0.0}

    def steps_of(rows, _):
        return {name: np.full(len(rows["batch"]), x) for name, x in times.items()}, np.full(len(rows["batch"]), step)

    columns = steady.served(
        table, work, engine or r.engine(), np.array([tokens]), np.array([decode_s]), np.array([prefill_s]),
        np.array([pass_s]), np.array([step]), steps_of=steps_of,
    )  # fmt: skip
    return {name: float(np.ravel(column)[0]) for name, column in columns.items()}


def slots(b, n, c=1):
    """(mu, mean slot) of one rank that computes prompts of c steps of 2 s first: mu (c + 1 + n / (1 - mu)) = c b."""
    half = c + 1 + n + c * b
    mu = (half - math.sqrt(half**2 - 4 * (c + 1) * c * b)) / (2 * (c + 1))
    return mu, (1 - mu) * 0.1 + mu * 2.0


# ---- drafts ----


def test_tokens_of_a_round_with_drafts():
    # p = 0.5: 1, 1.5, 1.75; never above 1 + k; at p = 1 all of them
    assert steady.tokens_per_step(0, 0.5) == 1
    assert steady.tokens_per_step(np.array([0, 1, 2]), 0.5).tolist() == [1.0, 1.5, 1.75]
    assert steady.tokens_per_step(3, 1.0) == 4
    # DeepSeek-V3: one draft accepted 85 to 90 % of the time makes 1.85 to 1.9 tokens (arXiv:2412.19437, sec. 5.4.3)
    assert steady.tokens_per_step(1, 0.85) == pytest.approx(1.85)


@given(st.floats(0.0, 0.999), st.integers(1, 6))
def test_acceptance_that_yields_so_many_tokens(p, depth):
    tokens = float(steady.tokens_per_step(depth, p))
    assert tokens == pytest.approx(sum(p**i for i in range(depth + 1)))
    assert steady.acceptance_from(tokens, depth) == pytest.approx(p, abs=1e-6)


# ---- steps ----


def steps(work, batch=1, chunk=2048, tokens=1.0):
    table = Table(to_table([Strategy(batch=batch, prefill_chunk=chunk)]))
    return int(steady.prefill_step_tokens(table, work, np.array([tokens]))[0])


def test_long_prompts_are_cut_into_equal_chunks():
    assert steps(Workload(5000, 10)) == 1667  # three of them
    assert steps(Workload(4096, 10)) == 2048
    assert steps(Workload(5000, 10, prefix_tokens=3000)) == 2000


def test_short_prompts_share_a_step_as_they_arrive():
    # 64 sequences of 32 tokens each: 2 end in a round; 4 fit the chunk
    assert steps(Workload(500, 32), batch=64) == 1000
    assert steps(Workload(500, 32), batch=640) == 2000
    # one at a time where fewer than one ends
    assert steps(Workload(500, 1000), batch=8) == 500
    # two tokens per round: twice as many end
    assert steps(Workload(500, 32), batch=64, tokens=2.0) == 2000
    # one draft accepted 80 % of the time makes 1.8 tokens, though (1 - 0.8^2) / 0.2 falls just short of it
    tokens = float(steady.tokens_per_step(1, 0.8))
    assert tokens < 1.8
    assert steps(Workload(1, 9), batch=25, tokens=tokens) == 5
    # never more than are there
    assert steps(Workload(1, 1), batch=25, tokens=tokens) == 25


@given(st.integers(1, 50_000), st.integers(1, 5000), st.integers(1, 3000), st.sampled_from([512, 2048, 16384]))
def test_every_step_is_one_that_is_announced(isl, osl, batch, chunk):
    work = Workload(isl, osl)
    found = steps(work, batch, chunk)
    assert 1 <= found <= max(chunk, 1)
    values = steady.step_token_values(work, [chunk])
    assert found in values
    assert -(-found // 2) in values


# ---- by hand ----


def test_a_closed_loop_by_hand():
    # 11 tokens out: 10 rounds of 0.1 s; in 0.258 of the slots there is a prompt of 2 s, so that one is 0.591 s long
    found = served(Workload(100, 11, concurrency=4), batch=4)
    mu, tau = slots(4, 10)
    assert (mu, tau) == (pytest.approx(0.2583, abs=1e-4), pytest.approx(0.5909, abs=1e-4))
    # a request is there for two slots, and as many more as it takes to decode in ten
    assert mu * (2 + 10 / (1 - mu)) == pytest.approx(4)
    assert found["requests_per_s"] == pytest.approx(mu / tau)
    assert found["tok_s_chip"] == pytest.approx(11 * mu / tau)
    assert found["prefill_share"] == pytest.approx(2 * mu / tau)
    # it waits for the step in which it is seen and half of another's prompt, then computes its own
    assert found["queue_s"] == pytest.approx(tau + mu / 2 * 2.0)
    assert found["ttft_s"] == pytest.approx(found["queue_s"] + 2.0)
    # 4 in flight for 9.1 s each; what is left after the first token is 10 rounds
    assert found["tpot_s"] == pytest.approx((4 * tau / mu - found["ttft_s"]) / 10)
    assert found["tok_s_user"] == pytest.approx(1 / found["tpot_s"])


@given(st.integers(1, 20_000), st.integers(2, 3000), st.integers(1, 500), st.floats(1.0, 3.0))
def test_littles_law_holds_for_those_in_flight(isl, osl, concurrency, tokens):
    found = served(Workload(isl, osl, concurrency=concurrency), batch=concurrency, tokens=tokens)
    stay = found["ttft_s"] + (osl - 1) * found["tpot_s"]
    assert found["requests_per_s"] * stay == pytest.approx(concurrency)
    # no round is faster than a round without prefills
    assert found["tpot_s"] >= 0.1 / tokens * (1 - 1e-9)


def test_alone_a_request_sees_its_own_prefill_and_plain_rounds():
    found = served(Workload(100, 11, concurrency=1), batch=4)
    assert found["tpot_s"] == pytest.approx(0.1)
    assert found["ttft_s"] == pytest.approx(2.0)
    assert found["requests_per_s"] == pytest.approx(1 / 3.0)


def test_requests_above_the_slots_wait():
    # 10 offered, 4 slots: 6 wait for as many completions
    found = served(Workload(100, 11, concurrency=10), batch=4)
    inside = served(Workload(100, 11, concurrency=4), batch=4)
    assert found["tpot_s"] == inside["tpot_s"]
    mu, tau = slots(4, 10)
    assert found["queue_s"] == pytest.approx(inside["queue_s"] + 6 * tau / mu)


def test_slots_above_the_requests_stay_empty():
    roomy, full = (served(Workload(100, 11, concurrency=4), batch=b) for b in (64, 4))
    assert roomy == full
    assert roomy["sequences"] == 4


def test_ranks_and_replicas_share_the_requests():
    # 3 replicas: 12 in flight are 4 each
    found = served(Workload(100, 11, concurrency=12), batch=4, replicas=3, tp=2, pp=2)
    mu, tau = slots(4, 10)
    assert found["requests_per_s"] == pytest.approx(3 * mu / tau)
    assert found["tok_s_chip"] == pytest.approx(3 * 11 * mu / tau / 12)


def test_less_than_one_request_a_rank_leaves_it_idle():
    found = served(Workload(100, 11, concurrency=1), batch=4, dp=2)
    # alone: 2 s and 10 rounds; half of the time
    assert found["tpot_s"] == pytest.approx(0.1)
    assert found["requests_per_s"] == pytest.approx(1 / 3.0)
    assert found["queue_s"] == 0


def test_an_open_loop_completes_what_arrives():
    found = served(Workload(100, 11, rate=0.2), batch=4)
    mu, tau = slots(4, 10)
    assert found["capacity_per_s"] == pytest.approx(mu / tau)
    assert found["requests_per_s"] == 0.2
    assert found["tok_s_chip"] == pytest.approx(2.2)
    assert served(Workload(100, 11, rate=9.0), batch=4)["requests_per_s"] == pytest.approx(mu / tau)


def test_drafts_make_fewer_rounds():
    # 2 tokens a round: 5 rounds
    found = served(Workload(100, 11, concurrency=4), batch=4, tokens=2.0)
    mu, tau = slots(4, 5)
    assert found["requests_per_s"] == pytest.approx(mu / tau)
    assert found["tpot_s"] == pytest.approx((4 * tau / mu - tau - mu / 2 * 2.0 - 2.0) / 10)


def test_chunks_and_pipelines_by_hand():
    # 3 chunks of 2 s in steady state, 5 s through all stages
    found = served(Workload(300, 11), batch=4, step=100, pass_s=5.0)
    mu, tau = slots(4, 10, 3)
    assert found["requests_per_s"] == pytest.approx(mu / (3 * tau))
    assert found["ttft_s"] - found["queue_s"] == pytest.approx(2 * 2.0 + 5.0)
    # in mixed steps 3 others leave 97 of 100 tokens: 3 steps of 97 and one of 9, linear from 0.1 s; the 4 that decode
    # add 4 tokens to each, and stages after the slowest have the last one to do
    found = served(Workload(300, 11), batch=4, step=100, pass_s=5.0, engine=r.engine(mixed_prefill=True))
    assert found["ttft_s"] - found["queue_s"] == pytest.approx(
        3 * (0.1 + 1.9 * 0.97) + (0.1 + 1.9 * 0.09) + 4 * 1.9 * 0.04 + 3.0 * (0.1 + 1.9 * 0.09) / 2.0
    )
    # 4 prompts in one step of 2 s, and more steps in a chunk: they get through faster than one by one
    found = served(Workload(100, 11), batch=4, step=400, prefill_chunk=1600)
    assert found["requests_per_s"] > 1.5 * mu / tau


def test_an_open_loop_is_stretched_by_what_arrives():
    found = served(Workload(100, 11, rate=0.2), batch=4)
    # 0.2 prompts a second in turn, each a step of 2 s: 0.4 of the time, the rest of which is rounds of 0.1 s
    each = 0.1 / 0.6
    tau = 1 / (0.2 + 0.6 / 0.1)
    some = 0.2 * tau
    assert tau == pytest.approx(some * 2.0 + (1 - some) * 0.1)
    assert found["tpot_s"] == pytest.approx(each)
    assert found["prefill_share"] == pytest.approx(some * 2.0 / tau)
    # in flight from the first step on: the prompt, then ten rounds
    assert found["sequences"] == pytest.approx(0.2 * (2.0 + 10 * each))
    # before that: prompts of 2 s at 0.4 of the time, and the steps under way where anyone is there
    meets = 1 - math.exp(-0.2 * (10 * each + tau))
    rest = (some * 2.0**2 + (1 - some) * 0.1**2) / (2 * tau)
    stay = 2.0 + 10 * each
    slot = waiting.mean_s(0.2 * stay / 4, 4, stay)
    assert found["queue_s"] == pytest.approx(0.4 / 1.2 * 2.0 + meets * (rest + tau) + float(slot))
    # two slots do not hold it: the rank is full, as in a closed loop
    full = served(Workload(100, 11, rate=0.45), batch=2)
    assert full["sequences"] == 2
    assert full["requests_per_s"] == full["capacity_per_s"] < 0.45


def test_a_last_chunk_that_attends_to_more_delays_the_first_token_only():
    work = Workload(300, 11, concurrency=1)
    table = Table(to_table([Strategy(batch=4, pp=4)]))
    args = (work, r.engine(), *(np.array([x]) for x in (1.0, 0.1, 2.0, 5.0)), np.array([100]))
    plain, late = (steady.served(table, *args, more) for more in (None, {"prefill_late_s": np.array([0.7])}))
    assert late["ttft_s"][0] == pytest.approx(plain["ttft_s"][0] + 0.7)
    assert late["tpot_s"][0] == pytest.approx(plain["tpot_s"][0])


def test_a_slow_front_end_hides_the_steps_that_pass_meanwhile():
    front = r.engine(front_end_s=exactly(0.5), front_end_per_token_s=exactly(0.01))
    found = served(Workload(100, 11), batch=4, engine=front)
    mu, tau = slots(4, 10)
    # 1.5 s: 15 steps, those with a prompt being longer; then it is seen, and computed
    steps = 1 + 14 * (1 - mu)
    assert found["ttft_s"] == pytest.approx(max(steps * tau, 1.5) + tau + mu / 2 * 2.0 + 2.0)
    # alone nothing is hidden
    alone = Workload(100, 11, concurrency=1)
    plain, late = served(alone, batch=4), served(alone, batch=4, engine=front)
    assert late["ttft_s"] == pytest.approx(plain["ttft_s"] + 1.5)
    assert late["tpot_s"] == plain["tpot_s"]


def test_a_single_output_token_has_no_time_per_token():
    found = served(Workload(100, 1, concurrency=4), batch=4)
    assert math.isnan(found["tpot_s"])
    assert found["requests_per_s"] == pytest.approx(0.5)
    assert found["tok_s_chip"] == pytest.approx(0.5)


# ---- what must hold ----

TIMES = st.floats(1e-4, 10.0)


@settings(max_examples=60)
@given(
    st.integers(1, 4000), st.integers(1, 2000), st.integers(1, 500), TIMES, TIMES, st.floats(1.0, 3.0),
    st.none() | st.integers(1, 3000), st.sampled_from([1, 2, 8]),
)  # fmt: skip
def test_bounds_of_a_served_workload(isl, osl, batch, decode_s, prefill_s, tokens, concurrency, dp):
    found = served(Workload(isl, osl, concurrency=concurrency), decode_s, prefill_s, tokens=tokens, batch=batch, dp=dp)
    in_flight = min(batch, concurrency / dp) if concurrency else batch
    # tok/s of a rank is at most its sequences' tokens of a round, over the round (trap: concurrency over step)
    assert found["requests_per_s"] / dp * (osl - 1) <= in_flight * tokens / decode_s * (1 + 1e-9)
    if osl > 1:
        assert found["tpot_s"] >= decode_s / tokens * (1 - 1e-12)
        assert found["tok_s_user"] == 1 / found["tpot_s"]
    assert 0 <= found["prefill_share"] <= 1
    assert found["ttft_s"] >= prefill_s
    assert found["queue_s"] >= 0


@settings(max_examples=40)
@given(st.integers(2, 500), st.integers(1, 400), st.integers(1, 400), TIMES, TIMES)
def test_more_requests_in_flight_never_lower_throughput_or_time_per_token(osl, few, more, decode_s, prefill_s):
    one, two = (served(Workload(100, osl, concurrency=c), decode_s, prefill_s, batch=1000) for c in (few, few + more))
    assert one["requests_per_s"] <= two["requests_per_s"] * (1 + 1e-12)
    assert one["tpot_s"] <= two["tpot_s"] * (1 + 1e-12)
    assert one["ttft_s"] <= two["ttft_s"] * (1 + 1e-9)


def test_rows_of_a_table_are_served_one_by_one():
    rows = [Strategy(batch=b, dp=d, replicas=n) for b, d, n in ((1, 1, 1), (64, 2, 1), (9, 1, 3))]
    table = Table(to_table(rows))
    work = Workload(100, 11, concurrency=50)
    args = (np.ones(3), np.full(3, 0.1), np.full(3, 2.0), np.full(3, 2.5), np.full(3, 100))
    found = steady.served(table, work, r.engine(), *args)
    for i, one in enumerate(rows):
        alone = steady.served(Table(to_table([one])), work, r.engine(), *(a[:1] for a in args))
        for name, column in found.items():
            assert float(column[i]) == float(np.ravel(alone[name])[0])
