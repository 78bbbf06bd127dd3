"""A benchmark beside the plan it ran, as text, markdown and data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan import units
from mlaplan.report.tables import aligned, as_markdown

if TYPE_CHECKING:
    from mlaplan.validation.measured import Compared, OwnRun

SCHEMA = "mlaplan.measured/1"
NAMES = {"ttft": "mean TTFT", "tpot": "mean TPOT", "output_tok_s": "output tok/s", "total_tok_s": "total tok/s"}
HEAD = ("", "measured", "predicted", "80 % band", "error", "")


def cells(row: Compared) -> list[str]:
    """One metric as text."""
    p = row.predicted
    return [
        NAMES[row.metric], _text(row.metric, row.measured), _text(row.metric, p.value),
        f"{_text(row.metric, p.low)} to {_text(row.metric, p.high)}", f"{row.error:+.0%}",
        "in band" if row.inside else "outside",
    ]  # fmt: skip


def _text(metric: str, value: float) -> str:
    return units.format_seconds(value) if metric in ("ttft", "tpot") else f"{value:,.0f}"


def report(found: OwnRun) -> str:
    """Head, table, what could explain the gaps, notes."""
    b = found.bench
    load = f"{b.requests:,} requests of {b.mean_isl:,.0f} + {b.mean_osl:,.0f} tokens in {b.seconds:,.0f} s"
    kept = f", {b.concurrency:,} in flight" if b.concurrency else ""
    parts = [
        f"{found.subject}, {found.strategy.label()}\n{b.tool} benchmark: {load}{kept}",
        aligned([cells(row) for row in found.rows], header=HEAD, indent=2),
    ]
    why = [f"  {NAMES[row.metric]}: {', '.join(row.could_explain)}" for row in found.rows if row.could_explain]
    if why:
        parts.append("Could explain the gap, each alone\n" + "\n".join(why))
    if found.notes:
        parts.append("\n".join(f"note: {note}" for note in found.notes))
    return "\n\n".join(parts)


def markdown(found: OwnRun) -> str:
    """The table with its explanations."""
    rows = [[*cells(row), ", ".join(row.could_explain)] for row in found.rows]
    return as_markdown([*HEAD, "could explain the gap"], rows)


def document(found: OwnRun) -> dict[str, Any]:
    """`mlaplan.measured/1`; times in seconds, rates of the whole deployment."""
    b = found.bench
    return {
        "schema": SCHEMA,
        "subject": found.subject,
        "strategy": found.strategy.to_dict(),
        "benchmark": {
            "tool": b.tool, "requests": b.requests, "seconds": b.seconds, "mean_isl_tokens": b.mean_isl,
            "mean_osl_tokens": b.mean_osl, "concurrency": b.concurrency, "rate_per_s": b.rate,
            "median_s": b.medians,
        },
        "metrics": [
            {
                "metric": row.metric, "measured": row.measured,
                "predicted": {"value": row.predicted.value, "low": row.predicted.low, "high": row.predicted.high},
                "error": row.error, "inside_band": row.inside, "could_explain": list(row.could_explain),
            }
            for row in found.rows
        ],
        "notes": found.notes,
    }  # fmt: skip
