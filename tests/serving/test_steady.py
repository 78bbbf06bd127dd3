"""From steps to a served workload: the published formulas by hand, then what must hold."""

import math

import numpy as np
import pytest
from costs import round as r
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs.engine import exactly
from mlaplan.costs.table import Table
from mlaplan.serving import steady
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Workload


def served(work, decode_s=0.1, prefill_s=2.0, pass_s=None, tokens=1.0, step=None, engine=None, **degrees):
    table = Table(to_table([Strategy(**degrees)]))
    step = np.array([work.new_tokens if step is None else step])
    columns = steady.served(
        table, work, engine or r.engine(), np.array([tokens]), np.array([decode_s]), np.array([prefill_s]),
        np.array([prefill_s if pass_s is None else pass_s]), step,
    )  # fmt: skip
    return {name: float(np.ravel(column)[0]) for name, column in columns.items()}


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
    # 11 tokens out: 10 rounds of 0.1 s shared by 4; a prompt takes 2 s: a request occupies 2 + 10 x 0.1 / 4 s
    found = served(Workload(100, 11, concurrency=4), batch=4)
    assert found["requests_per_s"] == pytest.approx(1 / 2.25)
    assert found["tok_s_chip"] == pytest.approx(11 / 2.25)
    # a prefill is under way for 2 / 2.25 of the time: half of one is waited for, then one's own, after a round
    assert found["prefill_share"] == pytest.approx(2 / 2.25)
    assert found["queue_s"] == pytest.approx(2 / 2.25)
    assert found["ttft_s"] == pytest.approx(2 / 2.25 + 0.1 + 2.0)
    # 4 in flight for 9 s each; what is left after the first token is 10 rounds
    assert found["tpot_s"] == pytest.approx((4 * 2.25 - 2 / 2.25 - 2.1) / 10)
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
    assert found["queue_s"] == pytest.approx(inside["queue_s"] + 6 * 2.25)


def test_slots_above_the_requests_stay_empty():
    roomy, full = (served(Workload(100, 11, concurrency=4), batch=b) for b in (64, 4))
    assert roomy == full
    assert roomy["sequences"] == 4


def test_ranks_and_replicas_share_the_requests():
    # 3 replicas: 12 in flight are 4 each
    found = served(Workload(100, 11, concurrency=12), batch=4, replicas=3, tp=2, pp=2)
    assert found["requests_per_s"] == pytest.approx(3 / 2.25)
    assert found["tok_s_chip"] == pytest.approx(3 * 11 / 2.25 / 12)


def test_less_than_one_request_a_rank_leaves_it_idle():
    found = served(Workload(100, 11, concurrency=1), batch=4, dp=2)
    # alone: 2 s and 10 rounds; half of the time
    assert found["tpot_s"] == pytest.approx(0.1)
    assert found["requests_per_s"] == pytest.approx(1 / 3.0)
    assert found["queue_s"] == 0


def test_an_open_loop_completes_what_arrives():
    found = served(Workload(100, 11, rate=0.2), batch=4)
    assert found["capacity_per_s"] == pytest.approx(1 / 2.25)
    assert found["requests_per_s"] == 0.2
    assert found["tok_s_chip"] == pytest.approx(2.2)
    assert served(Workload(100, 11, rate=9.0), batch=4)["requests_per_s"] == pytest.approx(1 / 2.25)


def test_drafts_make_fewer_rounds():
    # 2 tokens a round: 5 rounds; a request occupies 2 + 5 x 0.1 / 4 s
    found = served(Workload(100, 11, concurrency=4), batch=4, tokens=2.0)
    assert found["requests_per_s"] == pytest.approx(1 / 2.125)
    # 4 in flight for 8.5 s each, a first token after half of a prefill at 2 / 2.125, a round and a prefill
    assert found["tpot_s"] == pytest.approx((8.5 - 2 / 2.125 - 2.1) / 10)


def test_chunks_and_pipelines_by_hand():
    # 3 chunks of 2 s in steady state, 5 s through all stages; one decode round before the first
    found = served(Workload(300, 11), batch=4, step=100, pass_s=5.0)
    t_p = 6.0
    assert found["requests_per_s"] == pytest.approx(1 / (t_p + 0.25))
    assert found["ttft_s"] - found["queue_s"] == pytest.approx(2 * 2.0 + 5.0 + 0.1)
    # with mixed steps each chunk comes with a round
    found = served(Workload(300, 11), batch=4, step=100, pass_s=5.0, engine=r.engine(mixed_prefill=True))
    assert found["ttft_s"] - found["queue_s"] == pytest.approx(2 * 2.0 + 5.0 + 0.3)
    # 4 prompts in one step of 2 s: each takes 0.5 s of it and waits for all of it, so 4 in flight are too few
    found = served(Workload(100, 11), batch=4, step=400)
    wait = 0.5 / 0.75 / 2 * 0.5
    assert found["requests_per_s"] == pytest.approx(4 / (wait + 2.1 + 1.0))


def test_an_open_loop_is_stretched_by_what_arrives():
    # 0.2 prompts a second take 0.4 of the time: rounds of 0.1 s every 0.1 / 0.6; capacity is another matter
    found = served(Workload(100, 11, rate=0.2), batch=4)
    assert found["tpot_s"] == pytest.approx(0.1 / 0.6)
    assert found["prefill_share"] == pytest.approx(0.4)
    # in flight from the first step on: the prompt after a round, then ten rounds
    assert found["sequences"] == pytest.approx(0.2 * (2.1 + 10 * 0.1 / 0.6))
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


def test_the_front_end_delays_the_first_token_only():
    plain = served(Workload(100, 11), batch=4)
    found = served(
        Workload(100, 11), batch=4,
        engine=r.engine(front_end_s=exactly(0.5), front_end_per_token_s=exactly(0.01)),
    )  # fmt: skip
    assert found["ttft_s"] == pytest.approx(plain["ttft_s"] + 0.5 + 1.0)
    assert found["tpot_s"] == plain["tpot_s"]


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
