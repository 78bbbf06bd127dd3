"""The table of other tools on the same rows, from the committed figures or from a fresh run."""

from __future__ import annotations

from typing import Any

from mlaplan.report.tables import as_markdown

TOOLS = {
    "mlaplan": "mlaplan",
    "aiconfigurator_sol": "aiconfigurator, SOL",
    "aiconfigurator_default": "aiconfigurator, default",
    "infersim": "InferSim",
}
PARTS = {
    "tables": "Measured kernel and collective tables of aiconfigurator, H100 and H200",
    "h800": "InferSim's tables and DeepSeek's profile",
    "served": "Served runs",
}
NOBODY = "-"


def markdown(data: dict[str, Any]) -> str:
    """A table for each part; a cell is the mean absolute error and, in brackets, the bias."""
    parts = []
    for part, title in PARTS.items():
        rows = [_row(g) for g in data["groups"] if g["part"] == part]
        if rows:
            parts.append(f"### {title}\n\n" + as_markdown(["rows of", "rows", *TOOLS.values(), "least error"], rows))
    return "\n\n".join([*parts, by_median(data)])


def by_median(data: dict[str, Any]) -> str:
    """How often each tool is nearest by the median error, which far-off rows do not move, in a sentence."""
    nearest = [least(g, "median") for g in data["groups"]]
    told = [f"{name} on {nearest.count(name)}" for name in TOOLS.values() if name in nearest]
    return f"By the median error instead of the mean, the nearest is {', '.join(told)} of the {len(nearest)} groups."


def versions(data: dict[str, Any]) -> str:
    """What was run, in a sentence."""
    return f"Of {', '.join(f'{name} {version}' for name, version in data['versions'].items())}."


def _row(group: dict[str, Any]) -> list[str]:
    cells = [_cell(group["figures"][tool], group["rows"]) for tool in TOOLS]
    return [group["title"], f"{group['rows']:,}", *cells, least(group)]


def _cell(found: dict[str, Any], rows: int) -> str:
    if "why_not" in found:
        return str(found["why_not"])
    if not found["rows"]:
        return "no answer"
    some = "" if found["rows"] == rows else f", {found['rows']:,} rows"
    bias = f"{found['bias']:+.0%}"
    return f"{found['mape']:.1%} ({'0%' if bias in ('+0%', '-0%') else bias}){some}"


def least(group: dict[str, Any], by: str = "mape") -> str:
    """The tool with the least error among those with an answer to every row."""
    whole = {TOOLS[t]: f[by] for t, f in group["figures"].items() if f.get("rows") == group["rows"]}
    return min(whole, key=lambda name: whole[name]) if whole else NOBODY
