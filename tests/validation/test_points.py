"""The published set: whole, in our own words, every mistake told at its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mlaplan.errors import SpecError
from mlaplan.specs.lookup import chip_names, model_names
from mlaplan.validation.points import FOLDER, PARTS, comparisons, load, published
from mlaplan.validation.predict import WHERE
from mlaplan.validation.schema import METRICS, reading

GOOD = """\
kind: measurements
set: kernels
group: mla-decode
title: a title
series:
  - name: a series
    source: "https://example.org"
    chip: h800-sxm
    model: deepseek-v3
    measure: operator
    operator: mla_decode
    metric: time
    workload: {heads: 128}
    grade: A
    use: holdout
    points:
      - {id: one, value: 20 us, workload: {batch: 1, context: 1024}}
      - {id: two, value: 30 us, workload: {batch: 2, context: 1024, heads: 64}, use: fit, fitted: true}
"""


def test_the_set_is_whole() -> None:
    points = published()
    assert len(points) > 430
    assert len({p.id for p in points}) == len(points)
    groups = Counter(p.group for p in points)
    assert {"mla-decode", "gemm", "experts", "collectives", "expert-parallel", "large-ep", "min-latency", "ascend",
            "served", "context-parallel", "rejected"} <= set(groups)  # fmt: skip
    assert {p.set for p in points} == {"kernels", "collectives", "steps", "served"}
    assert {p.use for p in points} == {"fit", "holdout", "anchor", "ratio", "loose", "context", "reject"}


def test_names_exist() -> None:
    chips, models = {name for name, _ in chip_names()}, {name for name, _ in model_names()}
    for p in published():
        if p.not_priced is None:
            assert p.chip in chips or set(p.unknown["chip"]) <= chips, p.id
            assert p.model in models, p.id


def test_every_point_says_where_it_is_from() -> None:
    for p in published():
        assert len(p.source) > 10, p.id
        assert p.value > 0, p.id
        assert p.metric in METRICS, p.id


def test_no_end_to_end_figure_was_fitted() -> None:
    assert not [p.id for p in published() if p.set in ("steps", "served") and p.fitted]
    assert not [p.id for p in published() if p.set in ("steps", "served") and p.use == "fit"]


def test_bars_on_kernels_rest_on_rows_that_were_not_fitted() -> None:
    held = [p for p in published() if p.group in ("experts", "mla-decode") and p.use == "holdout"]
    assert len(held) > 30
    assert not [p.id for p in held if p.fitted]


def test_what_is_unknown_is_no_guess() -> None:
    """An input is stated or unknown, never both; what is unknown has a place and at least one value."""
    for p in published():
        stated = {name for part in PARTS for name in getattr(p, part)}
        assert not stated & set(p.unknown), p.id
        for name, values in p.unknown.items():
            assert name in WHERE or name == "chip", (p.id, name)
            assert values, (p.id, name)


def test_ratios_compare_points_that_share_what_is_unknown() -> None:
    known = {p.id: p for p in published()}
    for r in comparisons().ratios:
        of, to = known[r.of].unknown, known[r.to].unknown
        assert all(of[name] == to[name] for name in of.keys() & to.keys()), r.id
        assert known[r.of].metric == known[r.to].metric, r.id
    for d in comparisons().decisions:
        points = [known[name] for name in d.alternatives]
        assert len({p.metric for p in points}) == 1, d.id
        work = [{k: v for k, v in p.workload.items() if k not in ("batch",)} for p in points]
        assert all(w == work[0] for w in work), d.id


def test_a_row_is_its_series_with_its_own() -> None:
    path = FOLDER / "mla_decode.yaml"
    points = {p.id: p for p in load(path)}
    one = points["infersim-h800-mla-dec-b16-s4096"]
    assert one.value == pytest.approx(53.437e-6)
    assert one.workload == {"heads": 128, "batch": 16, "context": 4096}
    assert (one.grade, one.use, one.chip, one.operator) == ("A", "holdout", "h800-sxm", "mla_decode")


def test_a_row_overrides_its_series(tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    one, two = load(file)
    assert (one.workload["heads"], two.workload["heads"]) == (128, 64)
    assert (one.use, one.fitted) == ("holdout", False)
    assert (two.use, two.fitted) == ("fit", True)


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("value: 20 us", "value: 20 GB/s", 17, "'20 GB/s' is no time"),
        ("value: 20 us", "value: 20", 17, "is no time"),
        ("value: 20 us", "value: soon", 17, "'soon' is not a measured value"),
        ("context: 1024}}", "contxt: 1024}}", 17, "did you mean 'context'"),
        ("{id: one, ", "{id: two, ", 18, "the id 'two' is taken"),
        ("use: holdout", "use: held", 15, "'held' is not known here"),
        ("grade: A", "grade: D", 14, "'D' is not known here"),
        ("metric: time", "metric: weight", 12, "'weight' is not known here"),
        ("    grade: A\n", "", 6, "missing key 'grade'"),
        ("    workload: {heads: 128}", "    workload: {heads: 128}\n    unknown: {heads: [16, 32]}", 18,
         "'heads' is both stated and unknown"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_at_its_place(tmp_path: Path, before: str, after: str, line: int, said: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(GOOD.replace(before, after, 1))
    with pytest.raises(SpecError) as told:
        load(file)
    assert said in str(told.value)
    assert f"bad.yaml:{line}:" in str(told.value)


def test_a_value_is_read_with_its_unit() -> None:
    assert reading("24.9 us") == (pytest.approx(24.9e-6), "s")
    assert reading("660 TFLOPS") == (660e12, "flop/s")
    assert reading("3000 GB/s") == (3e12, "bytes/s")
    assert reading(7839) == (7839.0, "count")


def test_files_are_read_by_people() -> None:
    for path in FOLDER.glob("*.yaml"):
        assert max(map(len, path.read_text("utf-8").splitlines())) <= 140, path.name
