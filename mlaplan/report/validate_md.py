"""docs/accuracy.md: how far predictions are from what others measured. Written by `mlaplan validate --format md`."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlaplan.report import peers_table
from mlaplan.report.tables import as_markdown
from mlaplan.report.validate_data import groups
from mlaplan.report.validate_text import GROUP_HEAD, MARKS, group_cells
from mlaplan.validation.peers import committed

if TYPE_CHECKING:
    from mlaplan.validation.run import Run

WORDS = Path(__file__).with_name("accuracy_words.yaml")


@lru_cache(maxsize=1)
def words() -> dict[str, Any]:
    """Headings, known-bad regimes and the figures of other tools, with their sources."""
    from mlaplan.specs.source import read

    return dict(read(WORDS).data)


def document(run: Run) -> str:
    """The whole page."""
    w = words()
    parts = [f"# {w['title']}", *w["introduction"], w["plot"], "## Bars", _bars(run)]
    if run.missed:
        parts += ["### What is missed, by how much, and why", _misses(run)]
    for by in ("group", "chip", "engine"):
        rows = [[name, *group_cells(s)] for name, s in groups(run, by)]
        if rows:
            parts += [f"## Predicted against measured, by {by}", as_markdown([by, *GROUP_HEAD], rows)]
    if run.ratios:
        parts += ["## Ratios", w["ratios"], _ratios(run)]
    listed = next((b for b in run.bars if b.id == "end-to-end" and b.ids), None)
    if listed is not None:
        parts += ["## Points of the end-to-end bar", ", ".join(f"`{name}`" for name in listed.ids)]
    if run.decisions:
        parts += ["## Decisions", w["decisions"], _decisions(run)]
    parts += ["## Where the model is off, and why", *(f"- {line}" for line in w["known_bad"])]
    head = ["tool", "what", "error", "source"]
    rows = [[r["tool"], r["what"], r["error"], r["source"]] for r in w["others"]]
    others = committed()
    parts += ["## Beside other tools", *w["beside"], peers_table.versions(others), peers_table.markdown(others)]
    parts += ["### Figures that others published", as_markdown(head, rows)]
    if run.notes:
        parts += ["## Not compared here", *(f"- {note}" for note in run.notes)]
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    """Paragraphs apart, list items together."""
    out = parts[0]
    for before, part in pairwise(parts):
        out += ("\n" if before.startswith("- ") and part.startswith("- ") else "\n\n") + part
    return out


def _bars(run: Run) -> str:
    rows = [[b.title, b.limit, b.value, MARKS[b.met], b.elsewhere or "-"] for b in run.bars]
    return as_markdown(["what", "bar", "reached", "", "elsewhere"], rows)


def _misses(run: Run) -> str:
    lines = []
    for b in run.missed:
        lines.append(f"- **{b.title}**: {b.value}, asked {b.limit}.")
        lines += [f"  - {line}" for line in b.why]
    return "\n".join(lines)


def _ratios(run: Run) -> str:
    rows = [
        [
            r.ratio.id, r.ratio.topic, r.ratio.grade, f"{r.measured:.2f}", f"{r.predicted.value:.2f}",
            f"{r.predicted.low:.2f} to {r.predicted.high:.2f}", "right" if r.sign_right else "wrong",
        ]
        for r in run.ratios
    ]  # fmt: skip
    return as_markdown(["ratio", "topic", "grade", "measured", "predicted", "over the unknown", "direction"], rows)


def _decisions(run: Run) -> str:
    rows = [[d.decision.question, d.chosen, d.best, f"{d.share:.2f}"] for d in run.decisions]
    return as_markdown(["question", "ranked first", "measured best", "share of the best"], rows)
