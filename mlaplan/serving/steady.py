"""From steps to a served workload: steady state of chunked prefill mixed into decode.

Per attention-DP rank with b sequences in flight, a request computes its prompt once (t_p seconds of prefill,
shared with nobody) and takes part in n = (OSL - 1) / a decode rounds of t_d seconds, each shared by b sequences,
a tokens per round and sequence. A request therefore occupies t_p + n t_d / b seconds of the rank, and is in flight
for W + S before its first token and n rounds after it:

    X    = min( 1 / (t_p + n t_d / b),  b / (W + S + n t_d) )      requests per second and rank
    TPOT = (b / X - W - S) / (n a)      Little's law: rounds stretched by the prefills of the others, at least t_d / a
    TTFT = W + Q + S + F                F: the front end, outside the engine's slots

Queueing assumption: lengths are the mean ones. In a closed loop, or where the load is free, a request arrives when
another ends, finds a prefill under way with probability rho = X t_p and waits for the rest of it, W = rho t_p / 2,
never longer than the prompts of all others in flight. At a request rate l of a rank, arrivals are Poisson (M/D/1):
    W    = rho / (2 (1 - rho)) t_p      rho = l t_p, spent before a slot
    TPOT = t_d / (a (1 - rho))          t_d that of a full rank
as long as what is in flight, l (S + n a TPOT), fits the slots; else the rank is full, as in a closed loop. Requests
above what the batch limit admits wait Q = (C - b) / X.
A burst at the start, queues that drain, length distributions and preemption belong to the simulator, not here.

S is one prefill: its chunks, each together with a decode round where the engine mixes them, else back to back
after the round that is running. Over pipeline stages chunks follow each other, and the last one, which attends to all
before it, sets the end.

Attention-DP ranks step together (`lockstep`): X = mu / (c' tau) with tau the mean step, or c' (units) of a prompt. A
request is sent when a step ends, is seen in the next, and its steps begin with the one after: W is that and half a
prompt of the own rank times mu; at a rate the rest of the step under way, a step more, and M/D/1 on the own rank.
Where there are fewer requests than ranks, a round is shorter by what experts are spared, linear in their number.
Source: M/D/1 mean wait, Pollaczek-Khinchine; chunked prefill, SARATHI, arXiv:2308.16369.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.factor import Memo
from mlaplan.costs.roofline import ROUNDING, Numeric, ceil_div
from mlaplan.costs.table import Columns, Table, size, through
from mlaplan.serving import lockstep
from mlaplan.serving.lockstep import Meeting, Ranks

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.workload import Workload


READ = ("tp", "pp", "dp", "replicas", "batch", "mtp", "prefill_chunk")  # columns of a strategy that `served` reads
# and of `costs.phases`, beside decode_s, prefill_s and prefill_pass_s
MORE = ("prefill_late_s", "prefill_even_s", "prefill_lone_s", "prefill_host_s", "decode_core_s", "decode_gain_s")
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


def prompt_s(
    table: Mapping[str, NDArray[Any]], work: Workload, engine: EngineCosts, prefill_s: Numeric, prefill_pass_s: Numeric,
    step_tokens: NDArray[np.int64],
) -> tuple[Numeric, Numeric]:  # fmt: skip
    """(t_p, the time that one prompt takes of its rank; its own way through all chunks and stages), alone. [s]"""
    balance = np.where(table["dp"] > 1, float(engine.prefill_balance), 1.0)
    pieces = work.new_tokens / step_tokens
    return pieces * prefill_s / balance, (np.maximum(pieces, 1.0) - 1.0) * prefill_s / balance + prefill_pass_s


def front_end_s(engine: EngineCosts, work: Workload) -> float:
    """F: what a request spends outside the engine's slots. [s]"""
    return float(engine.front_end_s) + float(engine.front_end_per_token_s) * work.isl


class _Load(NamedTuple):
    """A rank under its load, per row. Times in seconds."""

    request_s: Numeric  # of the rank that a request takes: 1 / X where the rank is never idle
    wait_s: Numeric  # for earlier prompts, and in lockstep for the step under way
    service_s: Numeric  # from there to the first token
    share: Numeric  # of the time that prompts take
    round_s: Numeric  # of a decode round, prompts in between included


def served(
    table: Table, work: Workload, engine: EngineCosts, tokens: Numeric, decode_s: Numeric, prefill_s: Numeric,
    prefill_pass_s: Numeric, step_tokens: NDArray[np.int64], more: Mapping[str, Numeric] | None = None,
    memo: Memo | None = None,
) -> Columns:  # fmt: skip
    """TTFT, TPOT, throughput of every row. Columns: ttft_s, tpot_s, requests_per_s, tok_s_chip, tok_s_user...

    decode_s: one round; prefill_s, prefill_pass_s: one step of `step_tokens` in steady state, and through all
    stages; tokens: per round and sequence. more: the columns `MORE`; without them a last chunk is like the others, a
    prompt costs as much alone as with others, and a round's time does not depend on the context.
    memo: of tables of this workload, whose `tokens` follow from the depth of drafts.
    """
    more = {} if more is None else more
    joint, ranks = np.asarray(table["dp"] > 1), table["dp"] * table["replicas"]
    slots, b = table["batch"].astype(np.float64), _in_flight(table, work)
    rounds = (work.osl - 1) / tokens
    if (gain := more.get("decode_gain_s")) is not None and np.any(gain):
        decode_s = decode_s - _spared_s(table, work, b, rounds, decode_s, gain)
    columns = {**more, "decode_s": decode_s, "prefill_s": prefill_s, "prefill_pass_s": prefill_pass_s}
    k = in_lockstep(table, work, engine, b, rounds, columns, step_tokens) if joint.any() else None
    one = None if joint.all() else _single(table, work, engine, b, rounds, columns, step_tokens)
    together = None if k is None else _together(k, _meeting(k, table, work, engine, tokens, memo))
    load = _either(joint, together, None if one is None else one.closed())
    # a closed loop's wait is spent in a slot
    held = load.service_s + load.wait_s
    # a rank with less than one request in flight is idle part of the time, and else like one with one
    in_flight = np.maximum(np.maximum(b, 1.0) * load.request_s, held + rounds * decode_s)
    rate = b / in_flight
    queue: Numeric = 0.0
    if work.concurrency is not None:
        queue = np.maximum(_offered(table, work) - slots, 0.0) / rate
    share = load.share if one is None else np.where(joint, load.share, rate * one.prompt_s)
    capacity, sequences = rate * ranks, b
    total = capacity
    tpot = (in_flight - held) / (rounds * tokens) if work.osl > 1 else np.full(slots.shape, np.nan)
    if work.rate is not None:
        arriving = work.rate / ranks
        together = None if k is None else _together_at(k, arriving)
        at_rate = _either(joint, together, None if one is None else one.open(arriving))
        # an open loop queues before a slot; with more in flight than slots the rank is full
        there = arriving * (at_rate.service_s + rounds * at_rate.round_s)
        keeps = there <= b
        share = np.where(keeps, at_rate.share, share)
        load = _either(keeps, at_rate, load._replace(wait_s=at_rate.wait_s))
        total, sequences = np.minimum(capacity, work.rate), np.minimum(there, b)
        tpot = np.where(keeps, at_rate.round_s / tokens, tpot) if work.osl > 1 else tpot
    waiting = load.wait_s + queue
    return {
        "ttft_s": waiting + (load.service_s + front_end_s(engine, work)),
        "queue_s": waiting,
        "tpot_s": tpot,
        "requests_per_s": total,
        "capacity_per_s": capacity,
        "tok_s_chip": total * work.osl / (table["tp"] * table["pp"] * ranks),
        "tok_s_user": 1.0 / tpot,
        "prefill_share": np.minimum(np.maximum(share, 0.0), 1.0),
        "sequences": sequences,
    }


class _Single(NamedTuple):
    """Ranks that step alone. Times in seconds."""

    prompt_s: Numeric  # t_p
    service_s: Numeric
    request_s: Numeric
    sequences: Numeric
    decode_s: Numeric

    def closed(self) -> _Load:
        rho = np.minimum(np.minimum(self.sequences, 1.0) * self.prompt_s / self.request_s, 1.0)
        wait = np.minimum(rho / 2.0, np.maximum(self.sequences, 1.0) - 1.0) * self.prompt_s
        return _Load(self.request_s, wait, self.service_s, rho, self.decode_s)

    def open(self, rate: Numeric) -> _Load:
        taken = np.minimum(rate * self.prompt_s, 1.0)
        free = np.maximum(1.0 - taken, 1e-9)
        wait = taken / (2.0 * free) * self.prompt_s
        return _Load(self.request_s, wait, self.service_s, taken, self.decode_s / free)


def _single(
    table: Mapping[str, NDArray[Any]], work: Workload, engine: EngineCosts, sequences: Numeric, rounds: Numeric,
    columns: Mapping[str, Numeric], step_tokens: NDArray[np.int64],
) -> _Single:  # fmt: skip
    """The rows as ranks that step alone."""
    decode_s, passes = columns["decode_s"], np.maximum(work.new_tokens / step_tokens, 1.0)
    t_p, first = prompt_s(table, work, engine, columns["prefill_s"], columns["prefill_pass_s"], step_tokens)
    first = first + columns.get("prefill_late_s", 0.0)
    service = first + decode_s * (np.ceil(passes) if engine.mixed_prefill else 1.0) * (sequences > 1.0)
    return _Single(t_p, service, t_p + rounds * decode_s / np.maximum(sequences, 1.0), sequences, decode_s)


def _either(where: NDArray[np.bool_], one: _Load | None, other: _Load | None) -> _Load:
    """Row by row one or the other, of which one may be needed nowhere."""
    if one is None or other is None:
        found = one or other
        assert found is not None
        return found
    return _Load(*(np.where(where, a, b) for a, b in zip(one, other, strict=True)))


def _spared_s(
    table: Mapping[str, NDArray[Any]], work: Workload, b: Numeric, rounds: Numeric, decode_s: Numeric,
    gain_s: Numeric,
) -> Numeric:  # fmt: skip
    """Time that a round is shorter where there are fewer sequences than ranks, linear in their number. [s]

    A closed loop has them always; of an open one there is one at least in a round, and more as in M/G/oo.
    """
    ranks = np.maximum(table["dp"], 2)
    there = b if work.rate is None else work.rate / (table["dp"] * table["replicas"]) * rounds * decode_s + 1.0 / ranks
    return gain_s * (1.0 - np.clip(there, 1.0 / ranks, 1.0)) / (1.0 - 1.0 / ranks)


def in_lockstep(
    table: Mapping[str, NDArray[Any]], work: Workload, engine: EngineCosts, sequences: Numeric, rounds: Numeric,
    columns: Mapping[str, Numeric], step_tokens: NDArray[np.int64],
) -> Ranks:  # fmt: skip
    """The rows as ranks that step together; those with one rank mean nothing. columns: as `costs.phases` gives them."""
    one, late = columns["prefill_s"], columns.get("prefill_late_s", 0.0)
    decoding, chunk = sequences * (1.0 + table["mtp"]), table["prefill_chunk"]
    room: Numeric = np.maximum(chunk // step_tokens, 1)
    if engine.mixed_prefill:
        room = np.maximum(chunk - decoding, 1.0) / step_tokens
    return Ranks(
        np.maximum(table["dp"], 2), sequences, rounds, columns["decode_s"], columns.get("decode_core_s", 0.0),
        columns.get("prefill_even_s", one), columns.get("prefill_lone_s", one), work.new_tokens / step_tokens,
        decoding / step_tokens, room, table["mtp"] > 0, engine.mixed_prefill,
        columns.get("prefill_host_s", 0.0), columns["prefill_pass_s"] - one + late,
        front_end_s(engine, work),
    )  # fmt: skip


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
        of = in_lockstep(u, work, engine, b, rounds, untimed, prefill_step_tokens(u, work, per_round))
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


def _together(k: Ranks, met: Meeting) -> _Load:
    """Closed loop: a request is sent when a step ends, seen in the one after it, and computed from the next one on."""
    slot, others = lockstep.closed(k, met), k.sequences * k.ranks > 1.0
    own = k.passes * lockstep.own_step_s(k, slot, others, met)
    ahead = np.minimum(slot.units / 2.0, np.maximum(k.sequences - 1.0, 0.0)) * own
    # steps that begin and end meanwhile are short ones
    steps = 1.0 + (np.ceil(k.front_s / k.decode_s) - 1.0) * (1.0 - slot.some) if k.front_s else 0.0
    seen = np.maximum(steps * slot.seconds - k.front_s, 0.0) + slot.seconds
    taken = lockstep.request_s(k, slot) * np.minimum(k.sequences, 1.0)
    if not np.all(others):
        seen, taken = np.where(others, seen, 0.0), np.where(others, taken, 0.0)
    wait, service = ahead + seen, own + k.drain_s
    if not k.mixed:
        round_s = slot.seconds / np.maximum(slot.rounds_share, 1e-9)
        return _Load(taken, wait, service, slot.with_prompts, round_s)
    # a round is a step; where the chunk leaves prompts too little room, they wait
    wait = np.maximum(wait, np.maximum(k.sequences, 1.0) * taken - service - k.rounds * slot.seconds)
    return _Load(taken, wait, service, slot.with_prompts, slot.seconds)


def _together_at(k: Ranks, rate: Numeric) -> _Load:
    """Open loop: a request comes at any time of a step, where there is one; its rank is an M/D/1 queue for prompts."""
    slot = lockstep.open_loop(k, rate)
    each = slot.seconds / np.maximum(slot.rounds_share, 1e-9)
    # some request is in decode or its prompt under way, as in M/G/oo
    meets = -np.expm1(-k.ranks * rate * (k.rounds * each + k.passes * slot.seconds))
    own = k.passes * lockstep.own_step_s(k, slot, k.sequences * k.ranks > 1.0)
    rho = np.minimum(rate * own * np.minimum(k.units, 1.0), 1.0)
    wait = rho / (2.0 * np.maximum(1.0 - rho, 1e-9)) * own + meets * (slot.rest_s + slot.seconds)
    return _Load(lockstep.request_s(k, slot), wait, own + k.drain_s, slot.with_prompts, each)
