"""Prefill and decode on separate chips: each pool its own strategy, matched in whole instances.

    prefill instance   r_p = DP_p min(1 / t_p, b / S)          requests per second, of n_p chips; b prompts in flight
    decode instance    r_d = DP_d b / (n t_d)                  n rounds of t_d, b sequences a rank, of n_d chips
    split              X = min( x r_p, y r_d, rate, C / (TTFT + n t_d) )     x n_p + y n_d <= chips; C: concurrency
    TTFT               W + S + exposed transfer + F            W = rho t_p / 2; at a rate the waits of both pools
    TPOT               t_d(b) / a                              b as the load fills it: b = X / (y DP_d) n t_d(b)

A decode instance keeps activations for the smallest prefill chunk. Both pools hold the cache in one dtype. The network
cards of an instance cap its rate too (`costs.kv_transfer`). Of all pairs of points on both pools' fronts, and all whole
numbers of instances, the one with most tokens per second and chip is taken; of those within 1 % the least TPOT. An
engine's connector joins some pairs only (`engines.connectors`), and says when the cache is sent. Without a rate
arrivals are even; at a rate they are a Poisson process, and both pools have waits of their own (`waiting`).
Sources: DistServe, arXiv:2401.09670, sec. 3 (pools by themselves); Splitwise, arXiv:2311.18677, sec. 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs import kv_transfer
from mlaplan.costs.kv_transfer import Route, Transfer
from mlaplan.costs.table import Table, size
from mlaplan.engines.connectors import Connector, pair_limits
from mlaplan.errors import MlaplanError
from mlaplan.fleet import instances
from mlaplan.pricing import price
from mlaplan.ranking import LIKENESS
from mlaplan.search import Found
from mlaplan.serving import waiting
from mlaplan.serving.steady import front_end_s
from mlaplan.space import CHUNKS, batch_grid
from mlaplan.strategy import Strategy, from_row, to_table

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question

Sends = Literal["layers", "chunks", "after"]  # when the cache goes: as layers or chunks are computed, or after all are
IN_FLIGHT = (1, 4, 16)  # times the prompts of the largest chunk, per rank of a prefill pool
BUSIEST = 0.999  # utilisation of a queue at a given rate that is still told a waiting time


@dataclass(frozen=True, slots=True)
class Side:
    """One pool: instances of one strategy (its replicas) on one kind of chip."""

    q: Question
    strategy: Strategy
    instances: int
    rate: float  # requests per second of one instance by itself, its network cards included
    utilisation: float

    @property
    def chips(self) -> int:
        return self.strategy.chips_per_replica * self.instances


@dataclass(frozen=True, slots=True)
class Split:
    """A deployment in two pools, and what it serves."""

    prefill: Side
    decode: Side
    link: Route
    transfer: Transfer
    sends: Sends
    exposed_s: float
    first_s: float  # of one prompt in full steps
    prompt_s: float  # that a prompt takes of its rank
    stay_s: float  # of a sequence on a full decoding rank
    wait_s: float  # for a prefilling rank
    slot_wait_s: float  # for room in the decode pool
    ttft_s: float
    tpot_s: float | None
    requests_per_s: float
    tok_s_chip: float
    in_flight: float  # requests on their way through both pools
    filled: float = 0.0  # sequences in flight on a decoding rank
    connector: Connector | None = None
    alone_s: float | None = None  # of one prompt in steps of its own, where a step has room for more

    def prefill_at(self, load: float) -> float:
        """S of a prompt at a load of its pool: the room beside it in a step is filled by that share. [s]"""
        alone = self.first_s if self.alone_s is None else min(self.alone_s, self.first_s)
        return alone + min(load, 1.0) * (self.first_s - alone)

    @property
    def prefill_s(self) -> float:
        """S at the load that the pool has. [s]"""
        return self.prefill_at(self.requests_per_s / self.prefill_capacity)

    @property
    def chips(self) -> int:
        return self.prefill.chips + self.decode.chips

    @property
    def prefill_capacity(self) -> float:
        """Prompts that all prefilling ranks compute, network cards aside. [1/s]"""
        return self.prefill.instances * self.prefill.strategy.dp / self.prompt_s

    @property
    def decode_capacity(self) -> float:
        """Requests that all decoding ranks complete, network cards aside. [1/s]"""
        d = self.decode
        return d.instances * d.strategy.dp * d.strategy.batch / self.stay_s if self.stay_s else np.inf


class Fronts(NamedTuple):
    """Points of one pool's instances of one size and KV dtype, and their strategies."""

    chips: int
    kv_dtype: str
    table: Table
    strategies: list[Strategy]


@dataclass(frozen=True, slots=True)
class Ask:
    """How the pools are joined: chips in all, when the cache is sent and by what, the user's own rate of the link.

    connector: None where no engine's limits are to hold.
    """

    devices: int
    sends: Sends = "layers"
    link_bytes_per_s: float | None = None
    connector: Connector | None = None

    @property
    def apart(self) -> tuple[str, ...]:
        """Columns whose values decide what joins: fronts are made of each by itself."""
        return ("kv_dtype",) if self.connector is None else ("kv_dtype", "tp", "block_size", "mtp")


def split(
    prefill_q: Question, decode_q: Question, ask: Ask, pins: Mapping[str, Any], tokens: float | None,
    prefill_pins: Mapping[str, Any] | None = None,
) -> Split | None:  # fmt: skip
    """The best split on so many chips, None where none serves. pins: of the decode pool, and dtypes of both."""
    one_kind = prefill_q.setting.chip is decode_q.setting.chip
    inside = one_kind and ask.devices <= decode_q.setting.chip.scale_up.chips_per_node
    link = kv_transfer.route(prefill_q.setting.chip, decode_q.setting.chip, inside)
    if link is None:
        return None
    if ask.link_bytes_per_s is not None:
        link = link._replace(name="the link given", bytes_per_s=ask.link_bytes_per_s)
    own = dict(prefill_pins if prefill_pins is not None else both(pins))
    own, pins = _joinable(own, ask, "prefill"), _joinable(pins, ask, "decode")
    firsts = prefill_fronts(prefill_q, ask, own, drafts=pins.get("mtp") != 0)
    seconds = decode_fronts(decode_q, ask, pins, tokens)
    best: Split | None = None
    for p in firsts:
        for d in seconds:
            if _joins(ask, decode_q, p, d) and p.chips + d.chips <= ask.devices:
                found = _paired(prefill_q, decode_q, p, d, ask, link)
                if found is not None and (best is None or _better(found, best)):
                    best = found
    return None if best is None else settled(best, tokens)


def settled(s: Split, tokens: float | None) -> Split:
    """The split as its load fills it: pools with room to spare have shorter prefill steps and shorter rounds."""
    s = _alone(s)
    q, one = instances.alone(s.decode.q), replace(s.decode.strategy, replicas=1)
    batches = [*(int(b) for b in batch_grid(one.batch)), one.batch]
    table = Table(to_table([replace(one, batch=b) for b in batches]))
    table = instances.timed(q, table.having(**price(q, table, tokens)), tokens)
    rounds_s = table["rounds"] * table["decode_s"]
    if s.tpot_s is None or not rounds_s.all():
        return s
    # X(b) = b / (n t_d(b)) of a rank rises with b
    rate = s.requests_per_s / (s.decode.instances * one.dp)
    filled = np.interp(rate, np.array(batches) / rounds_s, batches)
    decode_s = float(np.interp(filled, batches, table["decode_s"]))
    rounds, per_round = float(table["rounds"][0]), float(table["per_round"][0])
    return replace(
        s,
        tpot_s=decode_s / per_round,
        filled=float(filled),
        in_flight=s.requests_per_s * (s.ttft_s + rounds * decode_s),
    )


def _alone(s: Split) -> Split:
    """The split with the time of a prompt that has its step for itself, and the TTFT that follows."""
    new = s.prefill.q.workload.new_tokens
    if s.prefill.strategy.prefill_chunk <= new:
        return s
    q, one = instances.alone(s.prefill.q, osl=1), replace(s.prefill.strategy, replicas=1, prefill_chunk=new)
    table = Table(to_table([one]))
    table = instances.timed(q, table.having(**price(q, table, None)), None)
    found = replace(s, alone_s=float(table["first_s"][0]))
    return replace(found, ttft_s=s.ttft_s - s.first_s + found.prefill_s)


def _joinable(pins: Mapping[str, Any], ask: Ask, role: str) -> dict[str, Any]:
    """The pins, with what the connector asks of every plan of a pool; a pin that it cannot have is refused."""
    c, found = ask.connector, dict(pins)
    if c is None:
        return found
    for name in ("pp", "dcp", "cp"):
        if name == "pp" and role == "prefill" and c.prefill_pp:
            continue
        if found.setdefault(name, 1) != 1:
            raise MlaplanError(f"--{name} {found[name]}: {c.label} has {name} 1 only in the {role} pool")
    return found


def _joins(ask: Ask, q: Question, p: Fronts, d: Fronts) -> bool:
    """Whether plans of two fronts can be joined: their first tell, as all of a front are alike in what decides it."""
    if ask.connector is None:
        return p.kv_dtype == d.kv_dtype
    first, second = p.strategies[0], d.strategies[0]
    return not any(x.breaks(first, second) for x in pair_limits(ask.connector, kv_heads(q)))


def kv_heads(q: Question) -> int | None:
    """Key-value heads of grouped-query attention, None for a latent."""
    found = [a.kv_heads for a in q.setting.model.attention.values() if a.kind == "gqa"]
    return min(found) if found else None


def both(pins: Mapping[str, Any]) -> dict[str, Any]:
    """What of the pins holds for either pool: dtypes and blocks, not degrees."""
    return {name: pins[name] for name in ("kv_dtype", "weight_dtype", "block_size") if name in pins}


def _better(a: Split, b: Split) -> bool:
    """More tokens a chip; of two that are alike the one with the lower TPOT, then the lower TTFT."""
    if abs(a.tok_s_chip - b.tok_s_chip) > LIKENESS * max(a.tok_s_chip, b.tok_s_chip):
        return a.tok_s_chip > b.tok_s_chip
    return ((a.tpot_s or 0.0), a.ttft_s) < ((b.tpot_s or 0.0), b.ttft_s)


# ---- the pools by themselves ----


def prefill_fronts(q: Question, ask: Ask, pins: Mapping[str, Any], drafts: bool) -> list[Fronts]:
    """Fronts of requests per second and chip against the time of one prompt, by size of an instance.

    drafts: the decode pool may draft, so that with a connector the draft layer is also priced here.
    """
    work = q.workload
    one = instances.alone(q, osl=1)
    # prompts in flight: enough for a step, and for a pipeline
    base = max(max(CHUNKS) // work.new_tokens, 1)
    depths = [0, 1] if drafts and ask.connector is not None and q.setting.model.mtp is not None else [0]
    batches = [pins] if "batch" in pins else [{"batch": base * more, **pins} for more in IN_FLIGHT]
    choices = [{**c, "mtp": depth} for c in batches for depth in depths]
    out = []
    for n in instances.sizes(q.setting.chip, ask.devices - 1):

        def parts(n: int = n) -> Any:
            for table in chain.from_iterable(instances.rows(one, n, c, None, Found()) for c in choices):
                rate = table["dp"] * np.minimum(1.0 / table["prompt_s"], table["batch"] / table["first_s"])
                good = np.flatnonzero(
                    np.full(size(table), True) if work.ttft_s is None else table["first_s"] <= work.ttft_s
                )
                yield table.having(rate=rate, quick=-table["first_s"]).take(good)

        found = instances.front(parts(), "rate", "quick", by=ask.apart)
        out += [_fronts(n, table) for table in found if size(table)]
    return out


def decode_fronts(q: Question, ask: Ask, pins: Mapping[str, Any], tokens: float | None) -> list[Fronts]:
    """Fronts of requests per second and chip against the time per output token, by size of an instance."""
    limit = q.workload.tpot_s
    one = instances.alone(q)
    fixed = {"prefill_chunk": min(CHUNKS), "cp": 1, **pins}
    out = []
    for n in instances.sizes(q.setting.chip, ask.devices - 1):

        def parts(n: int = n) -> Any:
            for table in instances.rows(one, n, fixed, tokens, Found()):
                tpot = table["decode_s"] / table["per_round"]
                with np.errstate(divide="ignore"):
                    rate = table["dp"] * table["batch"] / (table["rounds"] * table["decode_s"])
                good = np.flatnonzero(np.full(size(table), True) if limit is None else tpot <= limit)
                yield table.having(rate=rate, quick=-tpot).take(good)

        found = instances.front(parts(), "rate", "quick", by=ask.apart)
        out += [_fronts(n, table) for table in found if size(table)]
    return out


def _fronts(n: int, table: Table) -> Fronts:
    return Fronts(n, instances.kv_dtype(table), table, [from_row(table, i) for i in range(size(table))])


# ---- pairs ----


class _Grid(NamedTuple):
    """Every point of one front with every point of another: prefill points down, decode points across."""

    rate_p: NDArray[np.float64]
    rate_d: NDArray[np.float64]
    moved: Transfer
    exposed: NDArray[np.float64]


def _grid(p: Fronts, d: Fronts, q: Question, ask: Ask, link: Route) -> _Grid:
    model, work = q.setting.model, q.workload
    per_token = np.array([kv_transfer.chip_token_bytes(model, s) for s in d.strategies])[None, :]
    sources = np.array([s.tp * s.pp for s in p.strategies])[:, None]
    targets = np.array([s.tp * s.pp for s in d.strategies])[None, :]
    moved = kv_transfer.transfer(work.isl, per_token, sources, targets, link)
    dp_p, dp_d = (np.array([s.dp for s in f.strategies]) for f in (p, d))
    cards_p = dp_p[:, None] * link.bytes_per_s / moved.sent_bytes
    cards_d = dp_d[None, :] * link.bytes_per_s / moved.received_bytes
    exposed = np.broadcast_to(moved.time_s, cards_p.shape)
    if ask.sends != "after":
        items = np.array([parts_sent(model.layer_count, work.new_tokens, s, ask.sends) for s in p.strategies])
        exposed = kv_transfer.exposed_s(moved.time_s, p.table["first_s"][:, None], items[:, None])
    return _Grid(
        np.minimum(p.table["rate"][:, None], cards_p), np.minimum(d.table["rate"][None, :], cards_d), moved, exposed
    )


def parts_sent(layers: int, tokens: int, s: Strategy, sends: Sends) -> int:
    """Parts in which a prompt's cache goes while it is computed."""
    chunks = -(-tokens // s.prefill_chunk)
    return chunks * max(layers // s.pp, 1) if sends == "layers" else chunks


def _paired(qp: Question, qd: Question, p: Fronts, d: Fronts, ask: Ask, link: Route) -> Split | None:
    """The best numbers of instances over both fronts."""
    work, g = qd.workload, _grid(p, d, qd, ask, link)
    x = np.arange(1, (ask.devices - d.chips) // p.chips + 1)[:, None, None]
    y = (ask.devices - x * p.chips) // d.chips
    capacity = np.minimum(x * g.rate_p, y * g.rate_d)
    prompt, first = p.table["prompt_s"][None, :, None], p.table["first_s"][None, :, None]
    own = d.table["decode_s"][None, None, :]
    rounds = d.table["rounds"][None, None, :] * own
    front = front_end_s(qp.setting.engine, work)
    done = capacity
    if work.rate is not None:
        done = np.where(capacity >= work.rate, work.rate, 0.0)
    if work.concurrency is not None:
        done = np.minimum(done, work.concurrency / (first + g.exposed + front + rounds))
    rho, slot_wait = np.minimum(done / (x * g.rate_p), 1.0), np.zeros(done.shape)
    if work.rate is None:
        wait = rho * prompt / 2.0
    else:
        ranks_p, ranks_d = (np.array([s.dp for s in f.strategies]) for f in (p, d))
        places = y * (ranks_d * np.array([s.batch for s in d.strategies]))[None, None, :]
        wait = waiting.mean_s(np.minimum(rho, BUSIEST), x * ranks_p[None, :, None], prompt)
        stays = np.minimum(done * rounds / places, BUSIEST)
        slot_wait = np.broadcast_to(waiting.mean_s(stays, places, rounds), done.shape)
    if work.concurrency is not None:
        done = np.minimum(done, work.concurrency / (wait + first + g.exposed + front + rounds))
    ttft = wait + first + slot_wait + g.exposed + front
    good = done > 0
    if work.ttft_s is not None:
        good &= ttft <= work.ttft_s
    if not good.any():
        return None
    value = np.where(good, done * work.osl / ask.devices, 0.0)
    tpot = np.broadcast_to(own / d.table["per_round"][None, None, :], value.shape)
    near = np.flatnonzero((value >= (1 - LIKENESS) * value.max()).ravel())
    i, j, k = np.unravel_index(near[np.argmin((tpot + 1e-6 * ttft).ravel()[near])], value.shape)
    return _of(qp, qd, p, d, g, ask, link, (int(x[i, 0, 0]), int(y[i, 0, 0])), (int(j), int(k)),
               tuple(float(v[i, j, k]) for v in (wait, slot_wait, ttft, done)))  # fmt: skip


def _of(
    qp: Question, qd: Question, p: Fronts, d: Fronts, g: _Grid, ask: Ask, link: Route, counts: tuple[int, int],
    at: tuple[int, int], figures: tuple[float, ...],
) -> Split:  # fmt: skip
    (x, y), (j, k), (wait, slot_wait, ttft, done) = counts, at, figures
    work = qd.workload
    shape = (len(p.strategies), len(d.strategies))
    moved = Transfer(*(float(np.broadcast_to(v, shape)[j, k]) for v in g.moved))
    rate_p, rate_d = (float(np.broadcast_to(v, shape)[j, k]) for v in (g.rate_p, g.rate_d))
    row = {name: float(d.table[name][k]) for name in ("decode_s", "per_round", "rounds")}
    rounds_s = row["rounds"] * row["decode_s"]
    one = p.strategies[j]
    if ask.connector is not None:  # drafts as deep as the other pool's
        one = replace(one, mtp=d.strategies[k].mtp)
    return Split(
        Side(qp, replace(one, replicas=x), x, rate_p, done / (x * rate_p)),
        Side(qd, replace(d.strategies[k], replicas=y), y, rate_d, done / (y * rate_d)),
        link, moved, ask.sends, float(np.broadcast_to(g.exposed, shape)[j, k]), float(p.table["first_s"][j]),
        float(p.table["prompt_s"][j]), rounds_s, wait, slot_wait, ttft,
        row["decode_s"] / row["per_round"] if row["rounds"] > 0 else None, done,
        done * work.osl / ask.devices, done * (ttft + rounds_s), float(d.strategies[k].batch), ask.connector,
    )  # fmt: skip
