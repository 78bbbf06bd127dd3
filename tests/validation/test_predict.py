"""Predictions of points are those of the cost model, with no constant of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlaplan.explain import explain
from mlaplan.validation.points import Point, published
from mlaplan.validation.predict import corners, predict
from mlaplan.validation.score import score, summary
from mlaplan.validation.setting import asked

BY_ID = {p.id: p for p in published()}


def of(point: Point) -> float:
    found = predict(point)
    assert found is not None
    return found.value.value


@pytest.mark.parametrize("name", ["ds-profile-decode", "cm384-decode-4k-b96", "trt-b200-minlat-mtp3"])
def test_a_decode_point_is_what_explain_says(name: str) -> None:
    point = BY_ID[name]
    q, st, _ = asked(point)
    tokens = point.given.get("tokens_per_step")
    step = explain(q, st, decode_context=point.workload["context"], served=False, tokens_given=tokens).decode
    assert step is not None
    value = {
        "tok_s_chip": st.batch * st.dp / st.chips_per_replica / step.step_s.value,
        "tpot": step.step_s.value / (tokens or 1.0),
        "tok_s_user": (tokens or 1.0) / step.step_s.value,
    }[point.metric]
    assert of(point) == pytest.approx(value)


def test_a_prefill_point_is_what_explain_says() -> None:
    point = BY_ID["ds-profile-prefill"]
    q, st, _ = asked(point)
    step = explain(q, st, prefill_tokens=16384, served=False).prefill
    assert step is not None
    assert of(point) == pytest.approx(16384 / step.step_s.value)


def test_a_kernel_point_is_an_operator_of_a_step() -> None:
    """16 heads of DeepSeek-V3 are its core on one of eight tensor-parallel ranks."""
    point = BY_ID["flashmla-h100-b128-s4096-h16-q1"]
    q, st, s = asked(point)
    layers = s.model.layer_count
    st = replace(st, tp=8, batch=128)
    step = explain(q, st, decode_context=4096, served=False).decode
    assert step is not None
    core = next(op for op in step.ops if op.name == "attention_core")
    assert of(point) == pytest.approx(core.time_s / layers)


def test_a_gemm_point_in_flops_is_its_time() -> None:
    point = BY_ID["deepgemm-h800-m128-n7168-k16384"]
    w = point.workload
    in_time = replace(point, metric="time")
    assert of(point) * of(in_time) == pytest.approx(2.0 * w["m"] * w["n"] * w["k"])


def test_the_band_holds_the_value() -> None:
    for s in score(p for p in published() if p.set in ("kernels", "collectives", "steps")):
        low, value, high = s.prediction.value.low, s.prediction.value.value, s.prediction.value.high
        assert 0 < low <= value <= high, s.point.id


def test_what_is_unknown_widens_the_band() -> None:
    point = BY_ID["sgl-h100-decode-4k-simmtp"]
    whole = predict(point)
    ones = [predict(c) for c in corners(point)]
    assert whole is not None and len(ones) == 2
    values = [o.value for o in ones if o is not None]
    assert whole.value.low == min(v.low for v in values)
    assert whole.value.high == max(v.high for v in values)
    assert min(v.value for v in values) < whole.value.value < max(v.value for v in values)


def test_corners_are_all_combinations() -> None:
    point = replace(
        BY_ID["ds-profile-decode"], unknown={"mtp": (0, 1), "kv_dtype": ("bf16", "fp8"), "batch": (1, 2, 3)}
    )
    found = list(corners(point))
    assert len(found) == 12
    assert {(c.strategy["mtp"], c.strategy["kv_dtype"], c.workload["batch"]) for c in found} == {
        (m, d, b) for m in (0, 1) for d in ("bf16", "fp8") for b in (1, 2, 3)
    }


def test_what_is_not_priced_has_no_prediction() -> None:
    assert predict(BY_ID["insights-mfu"]) is None
    assert predict(BY_ID["seed2-tp16"]) is None


def test_kernels_are_near_what_was_measured() -> None:
    """Loose ceilings that a broken formula would break; the bars themselves are `validate`'s."""
    for group, ceiling in (("mla-decode", 0.15), ("experts", 0.20), ("gemm", 0.25), ("mla-prefill", 0.25)):
        found = summary(score(p for p in published() if p.group == group and p.chip in ("h800-sxm", "h20", "h100-sxm")))
        assert found is not None and found.mape < ceiling, (group, found)


def test_tiles_of_64_query_rows_show() -> None:
    """Four query tokens of 16 heads fill one tile on H20; a fifth takes a second one."""
    rows = [BY_ID[f"flashmla-h20-b128-s4096-h16-q{q}"] for q in (1, 4, 5)]
    one, four, five = (of(p) for p in rows)
    assert four < 1.1 * one
    assert five > 1.6 * four


def test_a_point_that_counts_only_in_a_ratio_has_no_band_of_its_own() -> None:
    point = replace(BY_ID["dstack-mi300x-sglang-c4"], workload={"isl": 128, "osl": 64, "concurrency": 2})
    banded, bare = predict(point), predict(replace(point, use="ratio"))
    assert banded is not None
    assert bare is not None
    assert bare.value.low == bare.value.value == bare.value.high
    assert banded.value.low < banded.value.value == bare.value.value < banded.value.high
