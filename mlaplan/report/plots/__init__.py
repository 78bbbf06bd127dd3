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

Every `figure(data, width=FULL)` returns a matplotlib Figure (no pyplot, no global state); `picture.save` and
`picture.inline_svg` write it, the same bytes for the same data. A builder raises `Unfit` where its input cannot give
the picture, with one line that says why.
"""

KINDS = ("pareto", "heatmap", "roofline", "breakdown", "scaling", "memory", "timeline", "sensitivity")

__all__ = ["KINDS"]
