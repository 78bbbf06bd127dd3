"""From steps to a served workload: steady state of chunked prefill mixed into decode.

Each attention-DP rank, one or many, has b sequences in flight. A request computes its prompt once and takes part in
n = (OSL - 1) / a decode rounds, a tokens per round and sequence; prompts make some steps longer for all ranks
(`lockstep`), of which follow the time a request takes of its rank and the waits (`load`). It is in flight for W + S
before its first token and n rounds after it:

    X    = min( mu / (c' tau),  b / (W + S + n t_d) )      requests per second and rank
    TPOT = (b / X - W - S) / (n a)      Little's law: rounds stretched by the prefills of the others, at least t_d / a
    TTFT = W + Q + S + F                F: the front end, outside the engine's slots

with tau a mean step, mu of its units of prompts, c' units of a prompt. S is one prefill: its chunks, each together with
a decode round where the engine mixes them. Over pipeline stages chunks follow each other, and the last one, which
attends to all before it, sets the end.

Closed loop: b is what is offered, at most the slots; requests above wait Q = (C - b) / X. Where there are fewer
requests than ranks, a round is shorter by what experts are spared, linear in their number.
Request rate l of a rank: TPOT and S are those of the sequences that are there (`at_rate`), as long as what is in
flight, l (S + n a TPOT), fits the slots; else the rank is full, as in a closed loop. W is spent before a slot, and Q is
the wait for one of a replica's, as in front of D b servers that each take a request's stay (`waiting`).

Lengths are the mean ones. A burst at the start, queues that drain, length distributions and preemption belong to the
simulator, not here. Source: chunked prefill, SARATHI, arXiv:2308.16369.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.factor import Memo
from mlaplan.costs.roofline import ROUNDING, Numeric, ceil_div
from mlaplan.costs.table import Columns, Table, distinct, size, through
from mlaplan.serving import at_rate, lockstep, waiting
from mlaplan.serving.load import FULL, Load, closed_loop, either, open_loop
from mlaplan.serving.lockstep import Meeting, Ranks
from mlaplan.serving.remainder import with_remainder
from mlaplan.strategy import NAMES

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.workload import Workload


# columns of `costs.phases` beside decode_s, prefill_s and prefill_pass_s
MORE = ("prefill_late_s", "prefill_even_s", "prefill_lone_s", "prefill_host_s", "decode_core_s", "decode_gain_s")
# what a rank is like whatever its slots: a strategy but for its batch, and where the pipeline is cut
SLOTLESS = (*(name for name in NAMES if name != "batch"), "cut")
# (rows, tokens per round) -> (the columns of their steps, new tokens of a prefill step)
StepsOf = Callable[[Table, NDArray[np.float64]], tuple[Columns, NDArray[np.int64]]]
MEETING = ("dp", "prefill_chunk", "mtp", "batch")  # what decides how prompts meet, beside the requests offered


def tokens_per_step(depth: Numeric, acceptance: float) -> Numeric:
    """Tokens that a round yields per sequence with `depth` drafts accepted one after the other.

    a = 1 + p + p^2 + ... + p^k = (1 - p^(k+1)) / (1 - p)
    Source: Leviathan et al., arXiv:2211.17192, eq. 1.
    """
    k = np.asarray(depth, dtype=np.float64)
    if acceptance >= 1.0:
        return 1.0 + k
    return (1.0 - acceptance ** (k + 1.0)) / (1.0 - acceptance)


def acceptance_from(tokens: float, depth: int) -> float:
    """The per-position acceptance that yields `tokens` per step at `depth` drafts (bisection)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(tokens_per_step(depth, middle)) < tokens else (low, middle)
    return high


def prefill_step_tokens(table: Table, work: Workload, tokens: Numeric) -> NDArray[np.int64]:
    """New tokens of one prefill step on one DP rank.

    Prompts above the chunk are cut into equal chunks. Below it, a step takes as many whole prompts as arrive in a
    decode round, b a / OSL and at most b, as far as the chunk holds them.
    """
    new = work.new_tokens
    pieces = through(table, "prefill_chunk", lambda chunk: ceil_div(new, chunk))
    piece = through(table, "prefill_chunk", lambda chunk: ceil_div(new, ceil_div(new, chunk)))
    most = through(table, "prefill_chunk", lambda chunk: np.maximum(chunk // new, 1))
    arriving = np.floor(table["batch"] * np.minimum(tokens / work.osl, 1.0) + ROUNDING)
    return np.where(pieces > 1, piece, new * np.clip(arriving, 1, most)).astype(np.int64)


def prompt_token_values(work: Workload, chunks: Sequence[int]) -> list[int]:
    """Every number of tokens that `prefill_step_tokens` can give for these chunks."""
    new, out = work.new_tokens, set()
    for chunk in chunks:
        pieces = int(ceil_div(new, chunk))
        out |= {int(ceil_div(new, pieces))} if pieces > 1 else {new * k for k in range(1, max(chunk // new, 1) + 1)}
    return sorted(out)


def step_token_values(work: Workload, chunks: Sequence[int]) -> list[int]:
    """The same, whole or halved in two batches."""
    whole = prompt_token_values(work, chunks)
    return sorted({*whole, *(int(ceil_div(n, 2)) for n in whole)})


def front_end_s(engine: EngineCosts, work: Workload) -> float:
    """F: what a request spends outside the engine's slots. [s]"""
    return float(engine.front_end_s) + float(engine.front_end_per_token_s) * work.isl


def served(
    table: Table, work: Workload, engine: EngineCosts, tokens: Numeric, decode_s: Numeric, prefill_s: Numeric,
    prefill_pass_s: Numeric, step_tokens: NDArray[np.int64], more: Mapping[str, Numeric] | None = None,
    memo: Memo | None = None, steps_of: StepsOf | None = None,
) -> Columns:  # fmt: skip
    """TTFT, TPOT, throughput of every row. Columns: ttft_s, tpot_s, requests_per_s, tok_s_chip, tok_s_user...

    decode_s: one round; prefill_s, prefill_pass_s: one step of `step_tokens` in steady state, and through all
    stages; tokens: per round and sequence. more: the columns `MORE`; without them a last chunk is like the others, a
    prompt costs as much alone as with others, and a round's time does not depend on the context.
    memo: of tables of this workload, whose `tokens` follow from the depth of drafts. steps_of: prices the steps of rows
    like these with another batch, for which table has all columns of a strategy and `cut`; needed at a request rate.
    """
    more = {} if more is None else more
    ranks = table["dp"] * table["replicas"]
    slots, b = table["batch"].astype(np.float64), _in_flight(table, work)
    rounds = (work.osl - 1) / tokens
    if (gain := more.get("decode_gain_s")) is not None and np.any(gain):
        decode_s = decode_s - _spared_s(table, b, gain)
    columns = {**more, "decode_s": decode_s, "prefill_s": prefill_s, "prefill_pass_s": prefill_pass_s}
    k = in_lockstep(table, work, engine, b, rounds, columns, step_tokens)
    away_s = _away_s(table, k, tokens, steps_of)
    load = closed_loop(k, _meeting(k, table, work, engine, tokens, memo), away_s)
    # what is left of a request's time for its rounds; its wait is spent in a slot, and a rank with less than one
    # request in flight is idle part of the time, and else like one with one
    left = np.maximum(b, 1.0) * load.request_s - load.service_s - load.wait_s
    decoding = np.maximum(left, rounds * decode_s)
    if engine.mixed_prefill:  # a round is a step; where the chunk leaves prompts too little room, they wait
        decoding = np.minimum(decoding, rounds * load.round_s)
        load = load._replace(wait_s=load.wait_s + np.maximum(left - decoding, 0.0))
    in_flight = load.service_s + load.wait_s + decoding
    rate = b / in_flight
    queue: Numeric = 0.0
    if work.concurrency is not None:
        queue = np.maximum(_offered(table, work) - slots, 0.0) / rate
    capacity, sequences = rate * ranks, b
    total = capacity
    tpot = decoding / (rounds * tokens) if work.osl > 1 else np.full(slots.shape, np.nan)
    if work.rate is not None:
        assert steps_of is not None
        free, there = _at_rate(table, work, engine, tokens, steps_of)
        # an open loop queues before a slot; with more in flight than slots the rank is full
        keeps = there <= b
        full = load._replace(wait_s=open_loop(k, work.rate / ranks).wait_s)
        load = either(keeps, free, full)
        stay = np.where(keeps, free.service_s + rounds * free.round_s, in_flight)
        queue = _slot_wait_s(np.where(keeps, there / b, work.rate / capacity), b * table["dp"], stay)
        total, sequences = np.minimum(capacity, work.rate), np.minimum(there, b)
        tpot = np.where(keeps, free.round_s / tokens, tpot) if work.osl > 1 else tpot
    waited = load.wait_s + queue
    return {
        "ttft_s": waited + (load.service_s + front_end_s(engine, work)),
        "queue_s": waited,
        "tpot_s": tpot,
        "requests_per_s": total,
        "capacity_per_s": capacity,
        "tok_s_chip": total * work.osl / (table["tp"] * table["pp"] * ranks),
        "tok_s_user": 1.0 / tpot,
        "prefill_share": np.minimum(np.maximum(load.share, 0.0), 1.0),
        "sequences": sequences,
    }


def _at_rate(
    table: Table, work: Workload, engine: EngineCosts, tokens: Numeric, steps_of: StepsOf
) -> tuple[Load, Numeric]:
    """The load under which each rank keeps what the rate brings it, and sequences in flight: the same for any slots."""
    assert work.rate is not None
    of_depth = np.ones(int(table["mtp"].max(initial=0)) + 1)
    of_depth[table["mtp"]] = tokens
    u, index = distinct(table, SLOTLESS)
    per_round, arriving = of_depth[u["mtp"]], work.rate / (u["dp"] * u["replicas"])
    rounds = (work.osl - 1) / per_round

    def load_at(sequences: NDArray[np.int64], alone: NDArray[np.bool_]) -> Load:
        rows = u.having(batch=sequences)
        columns, step_tokens = steps_of(rows, per_round)
        columns["decode_s"] = columns["decode_s"] - alone * columns["decode_gain_s"]
        there = np.where(alone, 1.0 / u["dp"], sequences)
        # of several ranks, the one asked about is there besides as many on its own
        others = np.where(alone, 0, sequences - (u["dp"] == 1))
        return open_loop(in_lockstep(rows, work, engine, there, rounds, columns, step_tokens, others), arriving)

    load, there = at_rate.settle(load_at, arriving, rounds, u["dp"], int(table["batch"].max(initial=1)))
    return Load(*(x[index] for x in load)), there[index]


def _away_s(table: Table, k: Ranks, tokens: Numeric, steps_of: StepsOf | None) -> Numeric:
    """A round of a rank alone while a request is in the front end, of one sequence fewer: only where that, which is
    never shorter by more than the sequence's part, may let one more step pass meanwhile. [s]"""
    slots = table["batch"]
    if not k.front_s or steps_of is None:
        return k.decode_s
    least = k.decode_s * (1.0 - 1.0 / np.maximum(slots, 2))
    edge = (np.ceil(k.front_s / k.decode_s) < np.ceil(k.front_s / least)) & (table["dp"] == 1) & (slots > 1)
    rows = np.flatnonzero(edge)
    if not len(rows):
        return k.decode_s
    fewer, _ = steps_of(table.of(SLOTLESS, rows).having(batch=slots[rows] - 1), np.asarray(tokens)[rows])
    out = np.array(np.broadcast_to(k.decode_s, slots.shape))
    out[rows] = fewer["decode_s"]
    return out


def _slot_wait_s(load: Numeric, slots: Numeric, stay_s: Numeric) -> Numeric:
    """Wait for a slot at a request rate, as in front of servers; of more than the slots complete it has no mean. [s]"""
    return np.where(load < 1.0, waiting.mean_s(np.minimum(load, FULL), slots, stay_s), 0.0)


def _spared_s(table: Mapping[str, NDArray[Any]], b: Numeric, gain_s: Numeric) -> Numeric:
    """Time that a round is shorter where there are fewer sequences than ranks, linear in their number. [s]"""
    ranks = np.maximum(table["dp"], 2)
    return gain_s * (1.0 - np.clip(b, 1.0 / ranks, 1.0)) / (1.0 - 1.0 / ranks)


def in_lockstep(
    table: Mapping[str, NDArray[Any]], work: Workload, engine: EngineCosts, sequences: Numeric, rounds: Numeric,
    columns: Mapping[str, Numeric], step_tokens: NDArray[np.int64], others: Numeric | None = None,
) -> Ranks:  # fmt: skip
    """The rows as ranks that step together. columns: as `costs.phases` gives them; others: sequences that decode beside
    a prompt of their rank, b - 1 if not given."""
    one, late = columns["prefill_s"], columns.get("prefill_late_s", 0.0)
    decoding, chunk = sequences * (1.0 + table["mtp"]), table["prefill_chunk"]
    room: Numeric = np.maximum(chunk // step_tokens, 1)
    if engine.mixed_prefill:
        room = np.maximum(chunk - decoding, 1.0) / step_tokens
    k = Ranks(
        table["dp"], sequences, rounds, columns["decode_s"], columns.get("decode_core_s", 0.0),
        columns.get("prefill_even_s", one), columns.get("prefill_lone_s", one), work.new_tokens / step_tokens,
        0.0, room, table["mtp"] > 0, engine.mixed_prefill,
        columns.get("prefill_host_s", 0.0), columns["prefill_pass_s"] - one + late,
        front_end_s(engine, work), np.where(table["pp"] == 1, 1.0, 0.0) if engine.launches_ahead else 0.0,
    )  # fmt: skip
    if not engine.mixed_prefill or work.osl == 1:
        return k
    k = k._replace(ride_s=(k.all_s - k.floor_s) * decoding / step_tokens)
    others = np.maximum(sequences - 1.0, 0.0) if others is None else others
    return with_remainder(k, work.new_tokens, step_tokens, chunk, others * (1 + table["mtp"]))


def _meeting(
    k: Ranks, table: Table, work: Workload, engine: EngineCosts, tokens: Numeric, memo: Memo | None
) -> Meeting:
    """How prompts meet, with a memo once for all rows that differ in nothing that it depends on."""
    if memo is None:
        return lockstep.meeting(k)
    of_depth = np.ones(int(table["mtp"].max(initial=0)) + 1)
    of_depth[table["mtp"]] = tokens

    def price(u: Table) -> Columns:
        per_round = of_depth[u["mtp"]]
        b, rounds = _in_flight(u, work), (work.osl - 1) / per_round
        untimed = dict.fromkeys(("decode_s", "prefill_s", "prefill_pass_s"), 1.0)
        timeless = engine._replace(launches_ahead=False)
        of = in_lockstep(u, work, timeless, b, rounds, untimed, prefill_step_tokens(u, work, per_round))
        met = lockstep.meeting(of)._asdict().items()
        return {n: np.broadcast_to(one, size(u)) for n, one in met if not (of.mixed and n in lockstep.UNMIXED)}

    names = ("replicas", *MEETING) if work.concurrency is not None else MEETING
    return Meeting(**memo.factored("meeting", table, names, price))


def _in_flight(table: Mapping[str, NDArray[Any]], work: Workload) -> Numeric:
    """b: sequences on a rank, as many as there are slots and requests."""
    slots = table["batch"].astype(np.float64)
    return slots if work.concurrency is None else np.minimum(slots, _offered(table, work))


def _offered(table: Mapping[str, NDArray[Any]], work: Workload) -> Numeric:
    assert work.concurrency is not None
    return work.concurrency / (table["dp"] * table["replicas"])
