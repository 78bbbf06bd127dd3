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


def test_rows_at_the_edge_of_the_cache_are_told() -> None:
    points = {p.id: p for p in silicon.points()}
    most, easy = points["silicon-sglang-8192-1024-c64-ttft"], points["silicon-sglang-1024-1024-c4-ttft"]
    # SGLang leaves activations outside its fraction, so that all 64 fit; twice as many do not
    over = replace(most, id="over", workload={**most.workload, "concurrency": 128})
    full, fits, free = score([over, most, easy])
    assert "kv_edge" in full.prediction.flags
    assert "kv_edge" not in fits.prediction.flags
    assert "kv_edge" not in free.prediction.flags


def test_the_bars_know_when_there_are_no_rows() -> None:
    found = {b.id: b for b in of_points([], "nothing installed")}
    assert found["r1-h200-ttft"].met is None
    assert found["r1-h200-ttft"].value == "nothing installed"
