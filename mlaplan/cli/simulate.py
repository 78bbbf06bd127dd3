"""`mlaplan simulate`: requests through a plan, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli import load_options as loads
from mlaplan.cli import options as o
from mlaplan.cli.formats import Format
from mlaplan.errors import EXIT_FINDINGS, EXIT_OK

if TYPE_CHECKING:
    from mlaplan.report.simulate_text import Simulated


def simulate(
    plan: Annotated[str | None, typer.Argument(metavar="[PLAN]", help="A plan of `recommend --save-plan`.")] = None,
    trace: loads.Trace = None,
    synthetic: loads.Synthetic = None,
    isl: loads.Isl = None,
    osl: loads.Osl = None,
    requests: Annotated[
        int | None,
        typer.Option("--requests", min=1, max=o.MOST, metavar="N", help="How many to draw, or to take of a trace."),
    ] = None,
    rate: o.Rate = None,
    burstiness: loads.Burstiness = None,
    concurrency: o.Concurrency = None,
    prefill: Annotated[
        str | None,
        typer.Option("--prefill", metavar="PLAN", help="Compute prompts on this plan, outputs alone on the other."),
    ] = None,
    routing: loads.Route = loads.Routing.least_loaded,
    prefix_cache: loads.PrefixCache = True,
    ttft: loads.TtftLimit = None,
    tpot: loads.TpotLimit = None,
    band: Annotated[
        bool, typer.Option("--band/--no-band", help="Run again with all that is unknown at its fast and slow ends.")
    ] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of everything that is drawn.")] = 0,
    write_trace: Annotated[
        str | None, typer.Option("--write-trace", metavar="FILE", help="Write the requests as a trace.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="PATH", help="Draw distributions and the state over time.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    file: o.Output = None,
) -> int:
    """Run requests through a plan, event by event: queues, cache, tails.

    Without a trace or lengths the plan's own workload is taken. Exit code: 0, 1 where a limit is missed.
    """
    from mlaplan.cli import simulating
    from mlaplan.cli.limits import limit
    from mlaplan.cli.output import check, check_picture, write

    for path in (file, write_trace):
        check(path)
    check_picture(plot)
    limits = limit("--ttft", ttft), limit("--tpot", tpot)
    asked = simulating.Asked(trace, synthetic, isl, osl, requests, rate, burstiness, concurrency, seed)
    if plan is None:
        simulating.only_write(asked, write_trace, plot)
        return EXIT_OK
    found = simulating.run(plan, prefill, asked, routing.value, prefix_cache, limits, write_trace, band)
    write(_rendered(found, output), file)
    if plot is not None:
        from mlaplan.cli.questions import tell
        from mlaplan.report.simulate_plot import draw

        draw(found, plot)
        tell([f"written to {plot}"])
    return EXIT_OK if found.met else EXIT_FINDINGS


def _rendered(found: Simulated, output: Format) -> str:
    from mlaplan.report import simulate_data, simulate_text, tables

    if output is Format.json:
        return tables.as_json(simulate_data.document(found))
    if output is Format.csv:
        return tables.as_csv(simulate_data.rows(found))
    return simulate_text.markdown(found) if output is Format.md else simulate_text.report(found)
