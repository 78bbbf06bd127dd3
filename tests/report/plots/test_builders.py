"""Data of pictures from questions and from rows: their numbers are those of `explain` and of the rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from mlaplan.engines.load import load_profile
from mlaplan.errors import MlaplanError
from mlaplan.explain import explain
from mlaplan.plan import Recommendation, question, recommend
from mlaplan.report.plots import (
    breakdown,
    draw_sweep,
    frames,
    heatmap,
    memory,
    pareto,
    roofline,
    scaling,
    sensitivity,
    sweeps,
    timeline,
    vary,
)
from mlaplan.report.plots.subject import Unfit, of_frame
from mlaplan.rules.rule import Question
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.sweep.rows import read
from mlaplan.workload import Overrides, Workload

ROWS = Path(__file__).parents[2] / "fixtures" / "sweep.csv"


@cache
def asked(model: str = "deepseek-v2-lite", chip: str = "h200-sxm", concurrency: int | None = 64) -> Question:
    work = Workload(2048, 256, concurrency=concurrency)
    return question(load_chip(chip), load_model(model), load_profile("generic"), work, Overrides())


@cache
def answer(objective: str = "throughput", concurrency: int | None = 64) -> Recommendation:
    return recommend(asked(concurrency=concurrency), 4, objective=objective, top=3)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return read(str(ROWS))


# ---- from a question ----


def test_parts_of_a_bar_add_up_to_the_step() -> None:
    plans = answer().plans
    found = breakdown.of_plans(asked(), plans, 4)
    for panel, which in zip(found.panels, ("decode", "prefill"), strict=True):
        for bar, e in zip(panel.bars, plans, strict=True):
            assert bar.total == pytest.approx(getattr(e, which).step_s.value, rel=1e-9)
            assert bar.low is not None and bar.high is not None and bar.low < bar.total < bar.high


def test_every_operator_of_a_step_but_communication_and_waiting_is_a_point() -> None:
    best = answer().plans[0]
    found = roofline.of_plan(asked(), best)
    assert best.decode is not None
    names = {d.name for d in found.dots if d.phase == "decode"}
    waits = {"host", "bubble", "overlap"}
    assert names == {op.name for op in best.decode.ops if not op.is_link and op.group not in waits}
    assert sum(d.share for d in found.dots if d.phase == "decode") <= 1.0


def test_no_operator_stands_above_its_roofs() -> None:
    found = roofline.of_plan(asked(), answer().plans[0])
    top = max(found.roofs.values())
    for d in found.dots:
        assert d.flops / d.time_s <= top * (1 + 1e-9), d.name
        assert d.nbytes / d.time_s <= found.bandwidth * (1 + 1e-9), d.name


def test_measured_kernels_are_those_of_the_chip_and_keep_their_time() -> None:
    from mlaplan.validation.points import published

    found = roofline.measured_on(load_chip("h100-sxm"))
    times = {p.value for p in published() if p.chip == "h100-sxm" and p.operator == "mla_decode" and p.metric == "time"}
    assert times and times == {m.time_s for m in found if m.name == "mla_decode" and m.time_s in times}
    assert all(m.flops / m.time_s < 2.1e15 for m in found)
    assert roofline.measured_on(load_chip("k3")) == ()


def test_points_of_a_front_have_the_bands_of_explain() -> None:
    q, found = asked(concurrency=None), answer("pareto", None)
    line = pareto.of_answer(q, 4, found).lines[0]
    assert [p.x for p in line.points] == sorted(p.x for p in line.points)
    assert [p.y for p in line.points] == sorted((p.y for p in line.points), reverse=True)
    for strategy, figures in found.front:
        point = next(p for p in line.points if p.y == pytest.approx(figures["tok_s_chip"]))
        served = explain(q, strategy).served
        assert served is not None
        assert (point.low, point.high) == pytest.approx((served.tok_s_chip.low, served.tok_s_chip.high))


def test_capacity_is_what_explain_holds_at_each_length() -> None:
    q = asked()
    s = replace(answer().plans[0].strategy, batch=1)
    line = memory.of_layouts(q, [s], (1024, 16384)).lines[0]
    for context, held in zip(line.contexts, line.sequences, strict=True):
        longer = replace(q, budget=q.budget._replace(max_context=int(context)))
        most = int(held) // (s.dp * s.replicas)  # of a rank
        for batch, fits in ((most, True), (round(1.02 * most) + 1, False)):
            assert explain(longer, replace(s, batch=batch), served=False).fits is fits, (context, batch)


def test_slices_are_of_one_core_and_end_where_the_step_does() -> None:
    track = timeline.of_plan(asked(), answer().plans[0]).tracks[0]
    assert track.rows[-1] == "compute"
    assert all(b.start_s <= b.end_s <= track.until_s + 1e-12 for b in track.busy)
    with pytest.raises(Unfit, match="dense MLA"):
        timeline.of_plan(asked("llama-3-70b"), answer().plans[0])


def test_a_tornado_names_the_largest_swing_first_and_each_is_what_explain_says_of_the_changed_chip() -> None:
    q, best = asked(), answer().plans[0]
    found = sensitivity.of_plan(q, 4, best, anew=False)
    sizes = [s.size(found.base) for s in found.swings]
    assert sizes == sorted(sizes, reverse=True)
    swing = next(s for s in found.swings if s.name == "memory bandwidth")
    slower = load_chip("h200-sxm", ["memory.bandwidth=x0.8"])
    served = explain(replace(q, setting=replace(q.setting, chip=slower)), best.strategy).served
    assert served is not None and swing.low.value == pytest.approx(served.tok_s_chip.value, rel=1e-12)


@pytest.mark.parametrize("name", list(vary.figures(load_chip("h200-sxm"), 16)))
def test_a_better_chip_is_never_slower(name: str) -> None:
    q, best = asked("deepseek-v2-lite"), answer().plans[0]
    change = vary.figures(q.setting.chip, 16)[name]
    better = 1.25 if "bandwidth" in name or "peak" in name or "capacity" in name else 0.8
    served = explain(replace(q, setting=replace(q.setting, chip=change(q.setting.chip, better))), best.strategy).served
    assert served is not None and best.served is not None
    assert served.tok_s_chip.value >= best.served.tok_s_chip.value * (1 - 1e-12)


def test_scaling_needs_two_counts() -> None:
    with pytest.raises(Unfit, match="two numbers of chips"):
        scaling.of_counts(asked(), {4: answer().plans[0]})


# ---- from rows ----


def test_a_front_over_loads_and_chips_beats_every_row(rows: pd.DataFrame) -> None:
    part = rows[(rows["chip"] == "h200-sxm") & (rows["isl"] == 8192)]
    line = pareto.of_frame(part).lines[0]
    for _, r in part.iterrows():
        assert any(p.x >= r["tok_s_user"] and p.y >= r["tok_s_chip"] for p in line.points)


def test_a_cell_holds_the_best_row(rows: pd.DataFrame) -> None:
    part = rows[(rows["devices"] == 16)]
    found = heatmap.of_frame(part)
    panel = next(p for p in found.panels if p.name == "h200-sxm")
    i, j = found.ys.index(256), found.xs.index(8192)
    cell = part[(part["chip"] == "h200-sxm") & (part["concurrency"] == 256) & (part["isl"] == 8192)]
    assert panel.values[i][j] == cell["tok_s_chip"].max()
    assert panel.labels[i][j] == cell.loc[cell["tok_s_chip"].idxmax(), "label"]


def test_regions_are_connected_by_sides() -> None:
    found = heatmap.regions([["a", "a", "b"], ["b", "a", ""], ["b", "c", "a"]])
    assert [(r.label, len(r.cells)) for r in found] == [("a", 3), ("b", 1), ("b", 2), ("c", 1), ("a", 1)]


def test_where_nothing_is_feasible_a_cell_is_empty(rows: pd.DataFrame) -> None:
    part = rows[(rows["devices"] == 16)].copy()
    part.loc[(part["isl"] == 65536) & (part["concurrency"] == 256), "feasible"] = False
    found = heatmap.of_frame(part)
    assert [[bool(name) for name in row] for row in found.panels[0].labels] == [[True] * 3, [True, True, False]]


def test_what_a_picture_does_not_show_must_be_chosen(rows: pd.DataFrame) -> None:
    with pytest.raises(Unfit, match=r"isl varies \(1k, 8k, 64k\).*--where isl=1k"):
        scaling.of_frame(rows, by=["chip"])


def test_a_tornado_of_rows_compares_with_all_factors_at_one(rows: pd.DataFrame) -> None:
    base = rows[
        (rows["chip"] == "h200-sxm") & (rows["devices"] == 8) & (rows["isl"] == 8192) & (rows["concurrency"] == 16)
    ]
    parts = []
    for b, c in ((1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 0.5), (1.0, 2.0)):
        part = base.assign(**{"chip.memory.bandwidth.factor": b, "chip.scale_up.bandwidth.factor": c})
        parts.append(part.assign(tok_s_chip=part["tok_s_chip"] * b**0.5 * c**0.1))
    found = sensitivity.of_frame(pd.concat(parts))
    assert [s.name for s in found.swings] == ["memory.bandwidth", "scale_up.bandwidth"]
    assert found.swings[0].high.value == pytest.approx(found.base * 2**0.5)
    with pytest.raises(Unfit, match="no figure is varied"):
        sensitivity.of_frame(base)


def test_all_that_rows_allow_is_drawn_and_the_rest_says_why(rows: pd.DataFrame, tmp_path: Path) -> None:
    drawn = {d.kind: d for d in draw_sweep(rows, tmp_path / "plots")}
    made = {kind for kind, d in drawn.items() if d.path is not None and d.path.is_file()}
    assert made == {"pareto", "heatmap", "breakdown", "scaling", "memory"}
    assert "no operators" in str(drawn["roofline"]) and "factor" in str(drawn["sensitivity"])
    assert drawn["scaling"].at == {"isl": "8k", "concurrency": "256"}
    assert str(drawn["scaling"]).endswith("scaling.svg (isl 8k, concurrency 256)")


def test_rows_without_any_plan_give_one_reason(rows: pd.DataFrame, tmp_path: Path) -> None:
    none = rows[~rows["feasible"]]
    for drawn in draw_sweep(none, tmp_path):
        assert drawn.path is None and "\n" not in str(drawn)
    with pytest.raises(Unfit, match="no point has a feasible plan: MLA201"):
        sweeps.one(none, "pareto")


@pytest.mark.parametrize(
    ("name", "told"),
    [("tok_s_chp", "did you mean 'tok_s_chip'"), ("isk", "did you mean 'isl'"), ("zzz", "the columns are")],
)
def test_an_unknown_column_brings_the_nearest(rows: pd.DataFrame, name: str, told: str) -> None:
    with pytest.raises(MlaplanError, match=f"--x {name}: no such column; {told}"):
        frames.numbers(rows, name, "--x")
    with pytest.raises(MlaplanError, match="not a column of numbers"):
        frames.numbers(rows, "chip", "--x")


def test_a_changed_figure_is_named_in_words_and_left_out_where_it_is_not(rows: pd.DataFrame) -> None:
    part = rows[(rows["chip"] == "h200-sxm") & (rows["isl"] == 8192)]
    slower = pd.concat([part.assign(**{"chip.memory.bandwidth.factor": f}) for f in (0.5, 1.0)])
    assert [line.name for line in pareto.of_frame(slower).lines] == ["memory.bandwidth x0.5", "memory.bandwidth x1"]
    for factor, said in ((0.5, True), (1.0, False)):
        about = pareto.of_frame(slower[slower["chip.memory.bandwidth.factor"] == factor]).about
        assert ("memory.bandwidth x0.5" in about) is said and "factor" not in about


def test_rows_without_the_time_of_a_step_have_no_breakdown() -> None:
    rows = read(str(ROWS))
    rows["decode_step_s"] = float("nan")
    part = rows[rows["feasible"]].head(1)
    assert [panel.name for panel in breakdown.of_frame(part).panels] == ["prefill step"]
    with pytest.raises(Unfit, match="no row has the time of a step"):
        breakdown.of_frame(part.assign(prefill_step_s=float("nan")))


def test_titles_of_sweeps_call_a_model_as_other_pictures_do() -> None:
    frame = pd.DataFrame({"model": ["deepseek-v3"] * 2, "chip": "h200-sxm", "devices": 8, "isl": 1024, "osl": 128})
    assert of_frame(frame).startswith("DeepSeek-V3 on 8 x h200-sxm; 1,024 tokens in")
    both = frame.assign(model=["deepseek-v3", "kimi-k2.5"])
    assert of_frame(both).startswith("DeepSeek-V3, Kimi-K2.5 on 8 x h200-sxm")
    # rows of a model that is not known here keep the name that they have
    assert of_frame(frame.assign(model="ours")).startswith("ours on 8 x h200-sxm")
