"""How to choose the query chunk of every step: a static threshold, a published formula, feedback.

A step of B sequences with q query tokens each is cut into n = ceil(B q / chunk) pieces: whole sequences where the chunk
holds their queries, else parts of one, which recover its keys and values again. The gather of one piece runs beside
the compute of another:

    T(chunk) = (a + c/n) + (o + w/n) + (n-1) max(a + c/n, o + w/n) + spill

c the step's communication, w its compute, a the latency of a piece's gather, o its launch and the tasks queued before
it. The formula is the one of the K3 article: the chunk that brings the time of one chunk nearest to that of the
whole gather. Its `return best_chunk or 128` takes the *largest* chunk where none fits; here it takes the smallest
(NO_FIT_TAKES_THE_SMALLEST).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mlaplan.costs import chain, overlap, sram
from mlaplan.costs.overlap import Rates, Work

POLICIES = ("static", "formula", "feedback")
NO_FIT_TAKES_THE_SMALLEST = "none fits: the smallest chunk, not the largest"
CHUNKS = tuple(2**k for k in range(9))  # 1 to 256 query tokens of the whole batch
ARTICLE_CHUNKS = (32, 64, 128)
STATIC_CHUNK, STATIC_CONTEXT = 128, 16384  # the article's first version
COMPUTE_WEIGHT, DAMPING = 0.2, 0.8  # of its score, of the last step's latency
INERTIA, SMOOTHING = 0.02, 0.25  # of the feedback policy


class Step(NamedTuple):
    """One step of a trace; comm_s: the time its gather took."""

    batch: int
    q_len: int
    kv_len: int
    comm_s: float
    queue_depth: int = 0

    @property
    def queries(self) -> int:
        return self.batch * self.q_len


@dataclass(frozen=True, slots=True)
class Device:
    """What a policy knows of the group: the attention block, rates and the memory for tiles."""

    work: Work  # batch, context and q_len are the step's
    rates: Rates
    sram_bytes: int

    def of(self, s: Step, chunk: int) -> Work:
        return replace(
            self.work, batch=float(s.batch), context=float(s.kv_len), q_len=s.q_len, q_chunk=min(chunk, s.q_len)
        )

    def tile_bytes(self, s: Step, chunk: int) -> int:
        """Q/O tile of one piece: `chunk` query tokens of the batch together. [B]"""
        queries = min(chunk, s.queries)
        return sram.query_output_tile_bytes(1, queries, self.work.heads, self.work.attention.v_head_dim)

    def article_tile_bytes(self, s: Step, chunk: int) -> int:
        """B Q_c H D 2 with Q_c query tokens of each sequence, as the article counts it. [B]"""
        return sram.query_output_tile_bytes(s.batch, chunk, self.work.heads, self.work.attention.v_head_dim)

    def compute_s(self, s: Step, chunk: int) -> float:
        return float(overlap.whole_s(self.of(s, chunk), self.rates))

    def estimate_s(self, s: Step) -> float:
        """Gather of the step at the link's rate. [s]"""
        w = self.of(s, s.q_len)
        return self.rates.latency_s + float(w.received_bytes) / self.rates.link_bytes_per_s


def step_s(d: Device, s: Step, chunk: int, comm_s: float | None = None) -> float:
    """T(chunk) of a step whose gather takes `comm_s` (the step's own by default). [s]"""
    n = -(-s.queries // chunk)
    comm = s.comm_s if comm_s is None else comm_s
    launch = d.rates.kernel_s + (1 + s.queue_depth) * d.rates.switch_s
    a = d.rates.latency_s * (n > 1) + comm / n
    b = launch + d.compute_s(s, chunk) / n
    spilled = 0.0
    if not sram.within_guard(d.tile_bytes(s, chunk), d.sram_bytes):
        spilled = 2.0 * d.tile_bytes(s, chunk) * n / d.rates.memory_bytes_per_s
    return float(chain.two_stage_s(a, b, n)) + spilled


def best_chunk(d: Device, s: Step, comm_s: float | None = None, candidates: Sequence[int] = CHUNKS) -> int:
    """The candidate of the shortest step, or no cut at all; of equals the largest, which is the fewest pieces."""
    return min(sorted({*candidates, s.queries}, reverse=True), key=lambda c: step_s(d, s, c, comm_s))


def static(d: Device) -> Callable[[Step, float | None], int]:
    """128 above 16 K of context, else no cut. Looks at nothing else."""
    del d
    return lambda s, _: STATIC_CHUNK if s.kv_len > STATIC_CONTEXT else max(s.queries, 1)


def formula(d: Device, candidates: Sequence[int] = ARTICLE_CHUNKS) -> Callable[[Step, float | None], int]:
    """argmin |comm - calc| + 0.2 calc over chunks within the guard.

    comm = max(B L d N 2 / link rate, 0.8 of the last step's), calc = chunk L B k: k seconds per query token and
    cached token, from the device's own compute.
    """

    def choose(s: Step, last_comm_s: float | None) -> int:
        gathered = s.batch * s.kv_len * d.work.attention.kv_lora_rank * d.work.ranks * 2.0
        comm = max(gathered / d.rates.link_bytes_per_s, DAMPING * (last_comm_s or 0.0))
        fitting = [c for c in candidates if sram.within_guard(d.article_tile_bytes(s, c), d.sram_bytes)]
        if not fitting:
            return min(candidates)  # NO_FIT_TAKES_THE_SMALLEST
        per_pair = d.compute_s(s, s.q_len) / (s.queries * s.kv_len)

        def score(chunk: int) -> float:
            calc = chunk * s.kv_len * s.batch * per_pair
            return abs(comm - calc) + COMPUTE_WEIGHT * calc

        return min(fitting, key=score)

    return choose


class Feedback:
    """The chunk of the shortest modelled step, at the link rate that the last steps showed.

    The rate is smoothed, so one slow slice does not move it far; the chunk changes only where the model gains more
    than `inertia` of the step by it.
    """

    def __init__(
        self, d: Device, inertia: float = INERTIA, smoothing: float = SMOOTHING, candidates: Sequence[int] = CHUNKS
    ) -> None:
        self.device, self.inertia, self.smoothing, self.candidates = d, inertia, smoothing, candidates
        self.slowness = 1.0  # measured over modelled communication
        self.chunk: int | None = None
        self.last: Step | None = None

    def __call__(self, s: Step, last_comm_s: float | None) -> int:
        d = self.device
        if self.last is not None and last_comm_s is not None:
            seen = last_comm_s / max(d.estimate_s(self.last), 1e-12)
            self.slowness += self.smoothing * (seen - self.slowness)
        comm = d.estimate_s(s) * self.slowness
        wanted = best_chunk(d, s, comm, self.candidates)
        if self.chunk is not None and self.chunk != wanted:
            stay, go = step_s(d, s, self.chunk, comm), step_s(d, s, wanted, comm)
            if stay - go <= self.inertia * stay:
                wanted = self.chunk
        self.chunk, self.last = wanted, s
        return wanted


def chooser(name: str, d: Device) -> Callable[[Step, float | None], int]:
    """A fresh policy by name."""
    return {"static": static, "formula": formula, "feedback": Feedback}[name](d)


class Decision(NamedTuple):
    """What a policy did in one step, and the shortest it could have been."""

    chunk: int
    pieces: int
    step_s: float
    exposed_s: float
    best_chunk: int
    best_s: float


class Replayed(NamedTuple):
    """A whole trace. regret: time beyond the per-step optimum, over that optimum; changes cost `change_s` each."""

    policy: str
    decisions: tuple[Decision, ...]
    total_s: float
    exposed_s: float
    changes: int
    best_s: float

    @property
    def regret(self) -> float:
        return self.total_s / self.best_s - 1.0


def replay(
    d: Device, steps: Sequence[Step], name: str, choose: Callable[[Step, float | None], int] | None = None,
    change_s: float | None = None,
) -> Replayed:  # fmt: skip
    """Runs a policy over a trace. It sees a step's shape, and of communication only the step before.

    change_s: cost of another chunk than in the step before; by default one launch.
    """
    pick = choose or chooser(name, d)
    cost = d.rates.kernel_s if change_s is None else change_s
    out: list[Decision] = []
    changes, last = 0, None
    for s in steps:
        chunk = pick(s, last)
        took, ideal = step_s(d, s, chunk), best_chunk(d, s)
        pieces = -(-s.queries // chunk)
        exposed = took - d.compute_s(s, chunk)
        out.append(Decision(chunk, pieces, took, exposed, ideal, step_s(d, s, ideal)))
        # uncut steps are alike however many queries they have
        changes += len(out) > 1 and out[-2].chunk != chunk and max(pieces, out[-2].pieces) > 1
        last = s.comm_s
    total = float(np.sum([o.step_s for o in out])) + changes * cost
    best, exposed_s = (float(np.sum([getattr(o, f) for o in out])) for f in ("best_s", "exposed_s"))
    return Replayed(name, tuple(out), total, exposed_s, changes, best)
