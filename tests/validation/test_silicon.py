"""Served rows of the aiconfigurator-core package, where it is installed (extra `silicon`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from mlaplan.validation import silicon
from mlaplan.validation.bars import of_points
from mlaplan.validation.score import score

pytestmark = pytest.mark.skipif(silicon.path() is None, reason="aiconfigurator-core is not installed (extra silicon)")


def test_thirty_rows_twice() -> None:
    points = silicon.points()
    assert Counter((p.engine, p.metric) for p in points) == {
        (engine, metric): 15 for engine in ("sglang", "trtllm") for metric in ("tpot", "ttft")
    }
    assert len({p.id for p in points}) == 60
    assert all(p.use == "holdout" and not p.fitted for p in points)


def test_a_row_is_read_as_it_stands() -> None:
    points = {p.id: p for p in silicon.points()}
    one = points["silicon-sglang-1024-8192-c64-tpot"]
    assert one.value == pytest.approx(30.605848e-3)
    assert one.workload == {"isl": 1024, "osl": 8192, "concurrency": 64, "shortest": 0.8}
    assert one.strategy["kv_dtype"] == "bf16"
    # of the release without drafts, not the one that most likely ran them
    assert points["silicon-trtllm-1024-1024-c4-tpot"].value == pytest.approx(13.805333e-3)


def test_predictions_are_in_reach() -> None:
    """A ceiling that holds whatever the calibration; the bars themselves are tighter."""
    some = [p for p in silicon.points() if p.workload["concurrency"] in (4, 32) and p.metric == "tpot"]
    found = {s.point.id: s for s in score(some)}
    assert len(found) == 12
    assert all(abs(s.error) < 0.35 for s in found.values()), {k: s.error for k, s in found.items()}


def test_tpot_rises_with_the_load_and_the_prompt() -> None:
    points = {p.id: p for p in silicon.points()}
    names = [f"silicon-sglang-{isl}-1024-c{c}-tpot" for isl in (1024, 8192) for c in (4, 16, 64)]
    by_id = {s.point.id: s.prediction.value.value for s in score(points[n] for n in names)}
    values = [by_id[n] for n in names]
    assert values[0] < values[1] < values[2] and values[3] < values[4] < values[5]
    assert all(short < long for short, long in zip(values[:3], values[3:], strict=True))


def test_rows_run_as_the_launch_scripts_run_them() -> None:
    points = {p.id: p for p in silicon.points()}
    short, long = points["silicon-trtllm-1024-1024-c64-tpot"], points["silicon-trtllm-8192-1024-c64-tpot"]
    # (64 + 1024 + 64 + 63) / 64 * 64: a step holds one prompt, which is not cut
    assert short.strategy == {"tp": 8, "ep": 8, "prefill_chunk": 1152, "kv_dtype": "fp8"}
    assert short.given == {"memory_fraction": 0.75, "whole_prompts": True, "gather_only": True, "warmed": False}
    # long prompts of more than 32 requests: attention data parallel
    assert (long.strategy["tp"], long.strategy["dp"], long.strategy["ep"]) == (1, 8, 8)
    assert points["silicon-trtllm-8192-1024-c32-tpot"].strategy["tp"] == 8
    assert points["silicon-sglang-1024-1024-c4-tpot"].given == {"memory_fraction": 0.82, "warmed": True}


def test_rows_at_the_edge_of_the_cache_are_told() -> None:
    points = {p.id: p for p in silicon.points()}
    most, easy = points["silicon-sglang-8192-1024-c64-ttft"], points["silicon-sglang-1024-1024-c4-ttft"]
    # 0.82 of the device leaves no room for 64 requests of 9216 tokens, and holds half as many
    half = replace(most, id="half", workload={**most.workload, "concurrency": 32})
    full, fits, free = score([most, half, easy])
    assert "kv_edge" in full.prediction.flags
    assert "kv_edge" not in fits.prediction.flags
    assert "kv_edge" not in free.prediction.flags


def test_the_bars_know_when_there_are_no_rows() -> None:
    found = {b.id: b for b in of_points([], "nothing installed")}
    assert found["r1-h200-ttft"].met is None
    assert found["r1-h200-ttft"].value == "nothing installed"
