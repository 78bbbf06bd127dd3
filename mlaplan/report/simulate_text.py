"""A simulated run in 80 columns: distributions, throughput, cache, and the service level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlaplan import units
from mlaplan.report import words
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import as_markdown, wrapped
from mlaplan.serving.simulator.outcome import Spread, at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.outcome import Limit, Outcome, PoolOutcome
    from mlaplan.serving.simulator.server import Fleet
    from mlaplan.strategy import Strategy

UNSTABLE = 0.95  # of what is offered: less done means that the queue grew
HEAD = ("", "mean", "p50", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class Simulated:
    """A run with what led to it. offered: requests per second, None in a closed loop of `concurrency`."""

    q: Question
    strategy: Strategy
    prefill: tuple[Question, Strategy] | None
    fleet: Fleet
    outcome: Outcome
    source: str
    offered: float | None
    concurrency: int | None
    limits: tuple[Limit | None, Limit | None]
    seed: int
    ends: tuple[Outcome, ...] = ()  # with everything unknown at its fast end, and at its slow one

    @property
    def met(self) -> bool:
        """Whether anything was served and all limits hold."""
        return not self.outcome.refused.all() and (not any(self.limits) or self.outcome.meets(*self.limits))

    @property
    def chips(self) -> int:
        return self.strategy.devices + (self.prefill[1].devices if self.prefill else 0)


def spreads(o: Outcome) -> dict[str, Spread]:
    """The distributions shown, by name."""
    return {
        "TTFT": Spread.of(o.ttft_s), "TPOT": Spread.of(o.tpot_s), "between outputs": between_outputs(o),
        "queue": Spread.of(o.queue_s), "whole request": Spread.of(o.end_s - o.sent_s),
    }  # fmt: skip


def between_outputs(o: Outcome) -> Spread:
    """Times between two outputs of a sequence, each as often as it occurred."""
    if not len(o.itl_s):
        return Spread(*[float("nan")] * 5)
    mean = float(np.average(o.itl_s, weights=o.itl_weight))
    share = np.cumsum(o.itl_weight) / o.itl_weight.sum()
    p50, p95, p99 = (float(o.itl_s[int(np.searchsorted(share, p))]) for p in (0.5, 0.95, 0.99))
    return Spread(mean, p50, p95, p99, float(o.itl_s[-1]))


def report(s: Simulated) -> str:
    """The whole text."""
    parts = [head(s), times(s), "\n".join([*band(s), *totals(s), *service(s)])]
    if found := notes(s):
        parts.append("\n".join(["Notes", *(wrapped(note, label="- ") for note in found)]))
    return "\n\n".join(parts)


def markdown(s: Simulated) -> str:
    """The same for a page."""
    rows = [[name, *_cells(spread)] for name, spread in spreads(s.outcome).items()]
    lines = [line.rstrip() for line in [*band(s), *totals(s), *service(s)]]
    points = [f"- {' '.join(line.split())}" for line in _joined(lines)]
    return "\n\n".join([head(s), as_markdown(HEAD, rows), "\n".join([*points, *(f"- {n}" for n in notes(s))])])


def _joined(lines: list[str]) -> list[str]:
    """Folded lines as one each."""
    out: list[str] = []
    for line in "\n".join(lines).split("\n"):
        if line.startswith(" ") and out:
            out[-1] += " " + line.strip()
        else:
            out.append(line)
    return out


def head(s: Simulated) -> str:
    """Who serves what."""
    o, q = s.outcome, s.q
    what = f"{q.setting.model.title} on {_pool(q, s.strategy)}"
    if s.prefill:
        what += f" for outputs, {_pool(*s.prefill)} for prompts"
    load = f"{s.concurrency:,} in flight" if s.offered is None else _offered(s.offered)
    count = words.times(len(o.sent_s), "request")
    lengths = f"{o.prompt.mean():,.0f} tokens in and {o.output.mean():,.0f} out on average"
    return "\n".join([wrapped(f"{what}, {q.profile.label}:"), wrapped(f"{count} {s.source}, {lengths}, {load}")])


def _offered(rate: float) -> str:
    return f"{words.plain(rate)} per second" if np.isfinite(rate) else "all at once"


def _pool(q: Question, st: Strategy) -> str:
    return f"{st.devices} {q.setting.chip.name} ({st.label()}, up to {words.times(st.batch, 'sequence')} a rank)"


def times(s: Simulated) -> str:
    """Distributions over the requests."""
    rows = [[name, *_cells(spread)] for name, spread in spreads(s.outcome).items()]
    return grid([text(HEAD[0]), *map(Column, HEAD[1:])], rows)


def _cells(spread: Spread) -> list[str]:
    values = (spread.mean, spread.p50, spread.p95, spread.p99, spread.max)
    return ["-" if np.isnan(v) else units.format_seconds(v) for v in values]


def band(s: Simulated) -> list[str]:
    """What the run is with every step, the front end and drafts at their fast or slow ends."""
    if not s.ends:
        return []
    fast, slow = s.ends
    parts = []
    for name, column in (("TTFT", "ttft_s"), ("TPOT", "tpot_s")):
        at_ends = [Spread.of(getattr(o, column)).p95 for o in (fast, slow)]
        if not np.isnan(at_ends).any():
            parts.append(f"{name} p95 {' to '.join(units.format_seconds(v) for v in at_ends)}")
    parts.append(f"{' to '.join(words.plain(o.output_tok_s) for o in (slow, fast))} output tok/s")
    return [words.line("band", "; ".join(parts))]


def totals(s: Simulated) -> list[str]:
    """Throughput, batch, cache, preemptions."""
    o = s.outcome
    out = [
        words.line(
            "throughput", f"{o.requests_per_s:,.2f} requests/s, {words.plain(o.output_tok_s)} output tok/s, "
            f"{words.plain(o.output_tok_s / s.chips)} a chip; {words.plain(o.total_tok_s)} tok/s with prompts; "
            f"{units.format_seconds(o.makespan_s)} in all",
        )
    ]  # fmt: skip
    pools = [("", o.serve)] if o.prefill is None else [("outputs: ", o.serve), ("prompts: ", o.prefill)]
    replicas = {id(o.serve): s.fleet.serve.replicas, id(o.prefill): s.fleet.prefill.replicas if s.fleet.prefill else 1}
    out += [words.line("busy", "; ".join(name + _busy(p, replicas[id(p)] * o.makespan_s) for name, p in pools))]
    out += [words.line("cache", "; ".join(name + _cache(p) for name, p in pools))]
    looked = o.prefill or o.serve
    if s.fleet.serve.server.prefix_cache and looked.hit_tokens:
        share, gone = words.percent(looked.hit_tokens / looked.prompt_tokens), words.times(looked.evictions, "block")
        out.append(words.line("prefixes", f"{share} of prompt tokens found in the cache; {gone} of 512 tokens evicted"))
    hit = int((o.preempted > 0).sum())
    if o.serve.preemptions:
        out.append(
            words.line("preempted", f"{words.times(o.serve.preemptions, 'time')}, {words.times(hit, 'request')}")
        )
    return out


def _busy(p: PoolOutcome, whole_s: float) -> str:
    """Share of the run in which replicas worked, and in which they computed prompts."""
    if not p.busy_s:
        return "never"
    prompts = f", {words.percent(p.prefill_s / whole_s)} in steps with prompts" if p.decode_s and p.prefill_s else ""
    batch = f", {words.plain(p.mean_batch)} sequences a rank in a decode round" if p.mean_batch else ""
    return f"{words.percent(p.busy_s / whole_s)} of the time{prompts}{batch}"


def _cache(p: PoolOutcome) -> str:
    return f"{words.percent(p.mean_held)} held by requests on average, {words.percent(p.peak_held)} at most"


def service(s: Simulated) -> list[str]:
    """Each limit with what was reached, and the requests within all of them."""
    o, out = s.outcome, []
    columns: dict[str, tuple[NDArray[np.float64], Limit | None]] = {
        "TTFT": (o.ttft_s, s.limits[0]), "TPOT": (o.tpot_s, s.limits[1])
    }  # fmt: skip
    for name, (column, limit) in columns.items():
        if limit is None:
            continue
        reached = at(column, limit)
        which = f"p{limit.percentile:g}" if limit.percentile else "mean"
        word, most = "met" if reached <= limit.seconds else "missed", units.format_seconds(limit.seconds)
        out.append(words.line("limit", f"{name} {which} {units.format_seconds(reached)}, {word}: up to {most}"))
    if out:
        good = o.within(*s.limits)
        out.append(words.line(
            "goodput", f"{words.percent(float(good.mean()))} of requests within the times, "
            f"{good.sum() / o.makespan_s if o.makespan_s else 0.0:,.2f} requests/s",
        ))  # fmt: skip
    return out


def notes(s: Simulated) -> list[str]:
    """What a reader must know before the figures."""
    o, out = s.outcome, []
    if n := int(o.refused.sum()):
        verb = "is" if n == 1 else "are"
        out.append(
            f"{words.times(n, 'request')} {verb} longer than the cache of a rank, and refused: not in the figures"
        )
    if s.offered is not None and np.isfinite(s.offered) and o.requests_per_s < UNSTABLE * s.offered:
        arriving = float(o.sent_s[-1] - o.sent_s[0])
        if o.makespan_s > arriving / UNSTABLE:
            out.append(
                f"the fleet did not keep up: requests came for {units.format_seconds(arriving)}, the last was done "
                f"after {units.format_seconds(o.makespan_s)}; the times depend on how long the load lasts"
            )
    server = s.fleet.serve.server
    if server.prefix_cache and 512 % server.block_tokens:
        out.append(f"no prefix is reused: blocks of {server.block_tokens} tokens do not divide the trace's 512")
    return out
