"""Pictures of plans and sweeps: one file for each kind, each with a typed data builder and a pure `figure(data)`.

    kind         data from one question                        data from a sweep
    pareto       pareto.of_answer(q, devices, found)           pareto.of_frame(frame)
    heatmap      -                                             heatmap.of_frame(frame)
    roofline     roofline.of_plan(q, explanation)              -
    breakdown    breakdown.of_plans(q, explanations)           breakdown.of_frame(frame)
    scaling      scaling.of_counts(q, {devices: explanation})  scaling.of_frame(frame)
    memory       memory.of_layouts(q, strategies)              memory.of_frame(frame)
    timeline     timeline.of_plan(q, explanation)              -
    sensitivity  sensitivity.of_plan(q, devices, explanation)  sensitivity.of_frame(frame)

Every `figure(data, width=FULL)` returns a matplotlib Figure (no pyplot, no global state); `report.picture.save` writes
it, the same bytes for the same data. A builder raises `subject.Unfit` where its input cannot give the picture, with one
line that says why. `draw_sweep` draws all that the rows of a sweep allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from mlaplan.report.plots.sweeps import Drawn

KINDS = ("pareto", "heatmap", "roofline", "breakdown", "scaling", "memory", "timeline", "sensitivity")


def draw_sweep(frame: pd.DataFrame, directory: str | Path, form: str = "svg", width: float = 7.0) -> list[Drawn]:
    """Write every kind that the rows allow to `directory`/KIND.`form`; each with its file, or why there is none."""
    from mlaplan.report.plots import sweeps

    return sweeps.draw_sweep(frame, directory, form, width)


__all__ = ["KINDS", "draw_sweep"]
