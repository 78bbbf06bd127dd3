"""KV slices that arrive over a link and are attended to as they come: a timeline of events.

A slice needs a free staging buffer. Then the DMA engine takes `descriptor_s`, the link `bytes / bandwidth` (times
1 + jitter), and after `latency_s` more the slice is there. It starts `tasks` tasks, one per query chunk, each of
which takes `switch_s + compute_s + rescale_s` of a worker and holds a reference on the buffer; at zero references
the buffer is free again, never before. Slices may arrive out of order; partial results are merged in order of the
slices, each taking `merge_s` of the vector unit. `finish_s` normalises the result.

With one worker and no jitter the step ends exactly when `chain.equal_items_s` says.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mlaplan.costs import chain


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A step's slices and what each costs. All times in seconds.

    transfer_s: of one slice on the link; compute_s, rescale_s, switch_s: of one task; tasks: query chunks.
    """

    slices: int
    depth: int
    transfer_s: float
    compute_s: float
    latency_s: float = 0.0
    descriptor_s: float = 0.0
    switch_s: float = 0.0
    rescale_s: float = 0.0
    merge_s: float = 0.0
    finish_s: float = 0.0
    tasks: int = 1
    workers: int = 1

    @property
    def task_s(self) -> float:
        return self.switch_s + self.compute_s + self.rescale_s

    @property
    def compute_busy_s(self) -> float:
        """Useful work of all tasks, without switches and rescaling."""
        return self.slices * self.tasks * self.compute_s / self.workers


EVENTS = 20_000  # slices that are run one by one for the account of a step


class Bar(NamedTuple):
    """Something that keeps a resource busy."""

    resource: str  # dma | link | compute | merge
    slice: int
    start_s: float
    end_s: float


class Bubble(NamedTuple):
    """The compute engine idle: before the first slice (fill), for want of a slice (link) or of a buffer (staging)."""

    start_s: float
    end_s: float
    cause: str


class Timeline(NamedTuple):
    """One step. utilisation: useful work over the step; exposed_s: the step less what compute is busy with."""

    total_s: float
    bars: tuple[Bar, ...]
    bubbles: tuple[Bubble, ...]
    utilisation: float
    exposed_s: float
    binding: str

    def idle_s(self, cause: str) -> float:
        return sum(b.end_s - b.start_s for b in self.bubbles if b.cause == cause)

    def busy_s(self, resource: str) -> float:
        return sum(b.end_s - b.start_s for b in self.bars if b.resource == resource)


class Account(NamedTuple):
    """What the figures of a timeline come to, without its bars: idle compute by cause and busy time by resource."""

    total_s: float
    idle_s: dict[str, float]
    busy_s: dict[str, float]
    utilisation: float
    exposed_s: float
    binding: str


def closed_form_s(p: Pipeline) -> float:
    """The step without jitter and with one worker. [s]"""
    times = (p.descriptor_s, p.transfer_s, p.tasks * p.task_s)
    total = chain.equal_items_s(times, p.latency_s, p.slices, p.depth)
    return float(total) + p.merge_s + p.finish_s


def binding(p: Pipeline) -> str:
    """What sets the pace in steady state: dma, link, compute, switch (compute that is mostly overhead) or staging."""
    work = p.tasks * p.task_s / p.workers
    rates = {"dma": p.descriptor_s, "link": p.transfer_s, "compute": work}
    rates["staging"] = (p.descriptor_s + p.transfer_s + p.latency_s + work) / p.depth
    if p.slices == 1:
        rates.pop("staging")
    name = max(rates, key=lambda key: rates[key])
    return "switch" if name == "compute" and p.compute_s < p.switch_s + p.rescale_s else name


def jittered(p: Pipeline, share: float, slowdown: float, seed: int) -> list[float]:
    """Extra link time of every slice: a `share` of them, drawn at random, is slower by `slowdown`. [s]"""
    rng = np.random.default_rng(seed)
    return [float(x) for x in np.where(rng.random(p.slices) < share, slowdown * p.transfer_s, 0.0)]


def timeline(p: Pipeline, extra_s: Sequence[float] | None = None, late_s: Sequence[float] | None = None) -> Timeline:
    """Run the step event by event. extra_s: additional link time per slice; late_s: additional latency per slice."""
    bars: list[Bar] = []
    arrivals: list[tuple[float, int]] = []  # slices under way, by arrival
    free_at: list[float] = [0.0] * p.depth  # times at which buffers become free
    heapq.heapify(free_at)
    workers = [0.0] * p.workers
    dma = link = 0.0
    issued = 0
    done: dict[int, float] = {}
    while len(done) < p.slices:
        while free_at and issued < p.slices:
            start = max(heapq.heappop(free_at), dma)
            dma = start + p.descriptor_s
            begin = max(dma, link)
            link = begin + p.transfer_s + (extra_s[issued] if extra_s is not None else 0.0)
            late = p.latency_s + (late_s[issued] if late_s is not None else 0.0)
            bars += [Bar("dma", issued, start, dma), Bar("link", issued, begin, link)]
            heapq.heappush(arrivals, (link + late, issued))
            issued += 1
        arrival, index = heapq.heappop(arrivals)
        last = arrival  # when the last reference on the buffer goes
        for _ in range(p.tasks):
            first_free = min(range(p.workers), key=workers.__getitem__)
            start = max(workers[first_free], arrival)
            workers[first_free] = start + p.task_s
            bars.append(Bar("compute", index, start, start + p.task_s))
            last = max(last, start + p.task_s)
        done[index] = last
        heapq.heappush(free_at, last)
    end = 0.0
    for index in range(p.slices):
        begin = max(end, done[index])
        end = begin + (p.merge_s if index == p.slices - 1 or p.workers > 1 else 0.0)
        if end > begin:
            bars.append(Bar("merge", index, begin, end))
    total = end + p.finish_s
    found = tuple(sorted(bars, key=lambda b: (b.start_s, b.resource)))
    busy = p.compute_busy_s
    return Timeline(total, found, _bubbles(found, total), busy / total, total - busy, binding(p))


def one_task(p: Pipeline) -> Pipeline:
    """The tasks of a slice as one: a single worker takes them back to back."""
    n = p.tasks
    return replace(p, tasks=1, compute_s=n * p.compute_s, switch_s=n * p.switch_s, rescale_s=n * p.rescale_s)


def account(p: Pipeline) -> Account:
    """The figures of the timeline of one worker without jitter; of a long one the first EVENTS slices are run.

    The rest repeats the steady state: fill and end are theirs, the total is the closed form's, and what compute
    idles in between is split over its causes as in the slices run.
    """
    assert p.workers == 1
    whole = one_task(p)
    t = timeline(replace(whole, slices=min(p.slices, EVENTS)))
    idle = {cause: t.idle_s(cause) for cause in dict.fromkeys(b.cause for b in t.bubbles)}
    total = t.total_s
    if p.slices > EVENTS:
        total = closed_form_s(p)
        steady = [cause for cause in idle if cause in ("link", "staging")]
        rest = total - p.slices * whole.task_s - sum(v for cause, v in idle.items() if cause not in steady)
        run = sum(idle[cause] for cause in steady)
        idle |= {cause: idle[cause] / run * rest for cause in steady}
    busy = {"dma": p.slices * p.descriptor_s, "link": p.slices * p.transfer_s, "compute": p.slices * whole.task_s}
    work = p.compute_busy_s
    return Account(total, idle, busy, work / total, total - work, binding(p))


def _bubbles(bars: tuple[Bar, ...], total: float) -> tuple[Bubble, ...]:
    """Idle gaps of compute. A gap in which the link stood still too is for want of a buffer."""
    tasks = sorted((b.start_s, b.end_s) for b in bars if b.resource == "compute")
    links = {b.slice: b for b in bars if b.resource == "link"}
    by_start = {b.start_s: b.slice for b in bars if b.resource == "compute"}
    out: list[Bubble] = []
    at = 0.0
    for start, end in tasks:
        if start > at + 1e-15:
            bar, before = links[by_start[start]], links.get(by_start[start] - 1)
            stalled = before is not None and bar.start_s > before.end_s + 1e-15
            out.append(Bubble(at, start, "fill" if at == 0.0 else "staging" if stalled else "link"))
        at = max(at, end)
    if total > at + 1e-15:
        out.append(Bubble(at, total, "merge"))
    return tuple(out)
