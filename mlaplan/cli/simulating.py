"""From the options of `simulate` to requests, a fleet and a run with its progress."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.report.simulate_text import Simulated
    from mlaplan.rules.rule import Question
    from mlaplan.serving.simulator.outcome import Limit
    from mlaplan.serving.simulator.requests import Requests
    from mlaplan.serving.simulator.run import Progress
    from mlaplan.serving.simulator.server import Routing
    from mlaplan.workload import Workload

COUNT = 2000  # requests drawn where no number is given
WAVES = 10  # of a closed loop: so many for each one in flight
SHIPPED = {"chat": "chat.jsonl"}
MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """The load as the options say it."""

    trace: str | None
    synthetic: int | None
    isl: str | None
    osl: str | None
    count: int | None
    rate: str | None
    burstiness: float | None
    concurrency: int | None
    seed: int

    def check(self) -> None:
        """Refuses what contradicts itself."""
        sources = [name for name, given in (("--trace", self.trace is not None), ("--synthetic", self.synthetic),
                                            ("--isl and --osl", self.isl or self.osl)) if given]  # fmt: skip
        if len(sources) > 1:
            raise MlaplanError(f"{'; '.join(sources)}: each says what is sent; give one of them")
        if self.rate is not None and self.concurrency is not None:
            raise MlaplanError("--concurrency and --rate both fix the load: give one of them")
        if self.burstiness is not None and not (math.isfinite(self.burstiness) and 0.01 <= self.burstiness <= 100):
            raise MlaplanError(f"--burstiness {self.burstiness:g}: expected a number from 0.01 to 100; 1 is Poisson")
        if self.burstiness is not None and self.concurrency is not None:
            raise MlaplanError("--burstiness: with --concurrency a request follows another, not a clock")
        if self.synthetic is not None and self.count is not None:
            raise MlaplanError("--requests and --synthetic both say how many: give one of them")


def requests_of(asked: Asked, own: Workload | None) -> tuple[Requests, str, int | None]:
    """(requests, where they come from in words, how many are in flight in a closed loop)."""
    from mlaplan.cli.questions import quantity
    from mlaplan.serving.simulator import load

    asked.check()
    rate = None if asked.rate is None else quantity("--rate", asked.rate, "rate")
    if rate is not None and not rate > 0:
        raise MlaplanError("--rate: above 0 requests per second")
    if asked.trace is not None:
        return _of_trace(asked, asked.trace, rate)
    burst = 1.0 if asked.burstiness is None else asked.burstiness
    concurrency = asked.concurrency
    if rate is None and concurrency is None and own is not None:
        rate, concurrency = own.rate, own.concurrency
    if asked.synthetic is not None:
        if rate is None and concurrency is None:
            raise MlaplanError("--synthetic: conversations need --rate or --concurrency")
        found = load.chats(asked.synthetic, rate or 1.0, asked.seed, burstiness=burst)
        return found, f"of synthetic conversations, seed {asked.seed}", concurrency
    if own is None and (asked.isl is None or asked.osl is None):
        raise MlaplanError("nothing says what is sent; expected --trace, --synthetic, or --isl and --osl")
    isl = load.lengths("--isl", asked.isl) if asked.isl else load.Lengths("value", own.isl if own else 1)
    osl = load.lengths("--osl", asked.osl) if asked.osl else load.Lengths("value", own.osl if own else 1)
    if rate is None and concurrency is None:
        raise MlaplanError(
            "nothing says how many requests come: the plan has no load; expected --rate or --concurrency"
        )
    count = asked.count or (COUNT if concurrency is None else WAVES * concurrency)
    if count > MOST_REQUESTS:
        raise MlaplanError(f"{count:,} requests are too many; expected --requests up to {MOST_REQUESTS:,}")
    found = load.drawn(isl, osl, count, rate=rate, burstiness=burst, seed=asked.seed)
    return found, f"of drawn lengths, seed {asked.seed}", concurrency


def _of_trace(asked: Asked, file: str, rate: float | None) -> tuple[Requests, str, int | None]:
    """The requests of a trace, at its own times or at a rate."""
    import numpy as np

    from mlaplan.serving.simulator import load, trace

    path = file
    if file in SHIPPED and not Path(file).exists():
        path = str(Path(trace.__file__).parent / "traces" / SHIPPED[file])
    found = trace.read(path)
    if asked.count is not None:
        found = found.first(asked.count)
    if asked.burstiness is not None:
        rng = np.random.default_rng(asked.seed)
        found = found.arriving(load.arrivals(len(found), rate or found.rate, asked.burstiness, rng))
    elif rate is not None:
        if not math.isfinite(found.rate):
            raise MlaplanError(
                f"--rate: the requests of {file} come all at once; add --burstiness 1 to draw their arrivals"
            )
        found = found.at_rate(rate)
    return found, f"of {file}", asked.concurrency


def only_write(asked: Asked, write_trace: str | None, plot: str | None) -> None:
    """Without a plan: the requests as a trace, no run."""
    if write_trace is None:
        raise MlaplanError("expected a PLAN to run, or --write-trace to write the requests")
    if plot is not None:
        raise MlaplanError("--plot: without a PLAN nothing runs")
    found, _, _ = requests_of(asked, None)
    _write_trace(found, write_trace)


def _write_trace(found: Requests, file: str) -> None:
    from mlaplan.cli.output import write
    from mlaplan.serving.simulator import trace

    write("\n".join(trace.write(found)), file)


def run(
    plan: str, prefill: str | None, asked: Asked, routing: str, prefix_cache: bool,
    limits: tuple[Limit | None, Limit | None], write_trace: str | None, band: bool,
) -> Simulated:  # fmt: skip
    """The run of a plan, told on stderr while it goes."""
    from mlaplan import simulation
    from mlaplan.report.simulate_text import Simulated
    from mlaplan.serving.simulator.run import simulate
    from mlaplan.validation.measured import plan_data, planned, planned_transfer, prefill_pool, read_plan

    data = plan_data(plan)
    q, st, tokens = planned(plan, data)
    found, source, concurrency = requests_of(asked, q.workload)
    if write_trace is not None:
        _write_trace(found, write_trace)
    longest, spread = simulation.Longest.of(found), cast("Routing", routing.replace("-", "_"))
    second = prefill_pool(plan, data) if prefill is None else read_plan(prefill)
    if second is None:
        fleet = simulation.fleet_of(q, st, longest, tokens_given=tokens, routing=spread)
    else:
        _same_model(q, second[0], prefill or plan)
        sent = planned_transfer(plan, data, q.workload.isl) if prefill is None else None
        fleet = simulation.split_fleet(
            q, st, second[0], second[1], longest, tokens_given=tokens, routing=spread, sent_s=sent
        )
    if not prefix_cache:
        fleet = simulation.without_prefix_cache(fleet)
    fleets = [fleet]
    if band:
        isl, osl = max(round(float(found.prompt.mean())), 1), max(round(float(found.output.mean())), 1)
        serve = simulation.at_ends(q, st, fleet.serve.server, isl, osl, tokens)
        other = (
            simulation.at_ends(*second[:2], fleet.prefill.server, isl, osl, None) if second and fleet.prefill else []
        )
        for i, server in enumerate(serve):
            pool = replace(fleet.prefill, server=other[i]) if fleet.prefill else None
            fleets.append(replace(fleet, serve=replace(fleet.serve, server=server), prefill=pool))
    runs = []
    for i, one in enumerate(fleets):
        told = progress(sys.stderr, i, len(fleets))
        runs.append(simulate(found, one, concurrency=concurrency, seed=asked.seed, progress=told))
    offered = None if concurrency is not None else found.rate
    return Simulated(
        q, st, second and second[:2], fleet, runs[0], source, offered, concurrency, limits, asked.seed, tuple(runs[1:])
    )


def _same_model(q: Question, other: Question, file: str) -> None:
    if q.setting.model.name != other.setting.model.name:
        raise MlaplanError(f"{file}: is a plan for {other.setting.model.name}; expected {q.setting.model.name}")


def progress(stream: object, run: int = 0, runs: int = 1) -> Progress | None:
    """A bar on a terminal over all runs, nothing anywhere else."""
    if not getattr(stream, "isatty", lambda: False)():
        return None
    shown = -1

    def tell(done: int, total: int) -> None:
        nonlocal shown
        part = 100 * (run * total + done) // (runs * total)
        if part != shown:
            shown = part
            bar = "#" * (part * 30 // 100)
            end = "\r" + " " * 60 + "\r" if part == 100 else ""
            print(f"\rsimulating [{bar:<30}] {part:3d} %{end}", end="", file=sys.stderr, flush=True)

    return tell
