"""A row of a sweep is what `recommend` answers to the same question, whatever its neighbours share with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlaplan.errors import MlaplanError
from mlaplan.plan import recommend
from mlaplan.report.plan_text import plan_rows
from mlaplan.sweep import rows, study
from mlaplan.sweep.answers import Planner
from mlaplan.sweep.formats import plain
from mlaplan.sweep.run import Means, to_file
from mlaplan.sweep.study import Study

from .toy import toy


def answers(s: Study, first: int = 0, last: int | None = None) -> list[dict[str, Any]]:
    """Rows of a study as dicts."""
    kinds = dict(s.columns)
    out = []
    for batch in Planner(s).answers(first, s.size if last is None else last):
        lines = zip(*(plain(column, kinds[name]) for name, column in batch.columns.items()), strict=True)
        out += [dict(zip(batch.columns, line, strict=True)) for line in lines]
    return out


def same(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A row holds the csv columns of a recommended plan."""
    renamed = {"concurrency": "in_flight"}
    for name, value in wanted.items():
        if name in ("rank", "devices"):
            continue
        found = row[renamed.get(name, name)]
        if isinstance(value, float) and found is not None:
            assert found == pytest.approx(value, rel=1e-12, abs=0.0), name
        else:
            assert found == value, name


def check(s: Study, index: int, row: dict[str, Any]) -> None:
    planner = Planner(s)
    point = planner.points[index]
    assert point.q is not None
    found = recommend(point.q, point.devices, objective=s.objective, fixed=point.pins, given=s.given)
    assert row["feasible"] is bool(found.plans)
    if found.plans:
        same(row, plan_rows(found.plans)[0])
        return
    assert row["label"] is None
    for rule, count in found.rejected.items():
        assert f"{rule} {count}" in row["reason"]
    if found.nearest_miss is not None:
        assert row["reason"].endswith(f"{found.nearest_miss.strategy.label()}: {found.nearest_miss.detail}")


GIVEN = st.fixed_dictionaries(
    {
        "devices": st.sampled_from(["1,2", "2,4", "3", "8"]),
        "isl": st.sampled_from(["64,300", "1000:3000:1000", "20000"]),
        "osl": st.sampled_from(["1", "64", "16,200"]),
        "prefix": st.sampled_from([None, "10,0.5"]),
        "objective": st.sampled_from(["throughput", "latency", "cost"]),
        "plans": st.just("best"),
    },
    optional={
        "tpot": st.sampled_from(["5us", "1ms,2ms", "1s"]),
        "ttft": st.sampled_from(["10us", "100ms"]),
        "kv_dtype": st.just("bf16"),
        "batch": st.sampled_from(["4", "1,16"]),
        "tp": st.just("1"),
        "price": st.just("2"),
    },
)
LOAD = st.sampled_from([{"concurrency": "1,7,64"}, {"concurrency": "3:3000:x10"}, {"rate": "1,50"}, {}])


@given(asked=GIVEN, load=LOAD, data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_row_is_what_recommend_answers(asked: dict[str, str], load: dict[str, str], data: st.DataObject) -> None:
    s = toy(**{"concurrency": None, "tpot": None, **asked, **load})
    found = answers(s)
    assert len(found) == s.size
    index = data.draw(st.integers(0, s.size - 1))
    check(s, index, found[index])


@pytest.mark.parametrize(
    ("given", "sets"),
    [
        ({"chips": ["h200-sxm"], "devices": "16", "isl": "4k,32k", "concurrency": "8,512", "tpot": "60ms"}, ()),
        ({"chips": ["ascend-910c-die"], "devices": "8,16", "engine": "vllm", "concurrency": "64"}, ()),
        ({"chips": ["h100-sxm"], "devices": "16", "engine": "sglang", "rate": "2", "ttft": "5s"},
         ("scale_out.bandwidth=x0.5", "kv_lora_rank=256")),
        ({"chips": ["b200-sxm"], "devices": "8", "concurrency": "256", "mtp": "0,2", "kv_dtype": "fp8"}, ()),
    ],
)  # fmt: skip
def test_of_shipped_chips(given: dict[str, Any], sets: tuple[str, ...]) -> None:
    s = study.build(study.of_options({"model": "deepseek-v3", "osl": "512", **given}, sets))
    found = answers(s)
    for index in (0, s.size - 1):
        check(s, index, found[index])


def test_rows_do_not_depend_on_what_was_asked_before() -> None:
    s = toy(("memory.bandwidth=x1,x2",))
    whole = answers(s)
    assert [row for i in range(0, s.size, 7) for row in answers(s, i, min(i + 7, s.size))] == whole
    assert answers(s, 11, 13) == whole[11:13]


def test_all_plans_hold_the_best_and_the_front() -> None:
    given: dict[str, Any] = {"devices": "4", "isl": "256,1k", "osl": "64", "concurrency": "16"}
    best = answers(toy(**given))
    every, front = answers(toy(**given, plans="all")), answers(toy(**given, plans="pareto"))
    for row in best:
        alike = [r for r in every if r["isl"] == row["isl"]]
        assert len(alike) > 20
        assert all(r["feasible"] and r["tpot_s"] <= 1e-3 for r in alike)
        assert {**row, "front": None} in [{**r, "front": None} for r in alike]
        marked = [r for r in alike if r["front"]]
        assert marked
        assert {r["label"] for r in marked} == {r["label"] for r in front if r["isl"] == row["isl"]}
        beaten = [
            r for r in marked for o in alike
            if o["tok_s_chip"] > r["tok_s_chip"] and o["tok_s_user"] > r["tok_s_user"]
        ]  # fmt: skip
        assert not beaten


def test_every_plan_has_the_bands_of_explain() -> None:
    from mlaplan.explain import explain
    from mlaplan.strategy import NAMES, Strategy

    given: dict[str, Any] = {"model": "deepseek-v3", "chips": ["h100-sxm"], "devices": "16", "isl": "20k"}
    given |= {"concurrency": "64", "plans": "all", "price": "2", "kv_dtype": "fp8"}
    s = study.build(study.of_options(given))
    q = Planner(s).points[0].q
    assert q is not None
    found = answers(s)
    for i in np.random.default_rng(0).integers(0, len(found), 12):
        row = found[i]
        strategy = Strategy(**{name: row[name] for name in NAMES})
        same(row, {**plan_rows([explain(q, strategy, price=2.0)])[0]})


def test_columns_are_those_of_recommend() -> None:
    q = Planner(toy()).points[0].q
    assert q is not None
    wanted = list(plan_rows(recommend(q, 2, given=None).plans)[0])
    wanted = wanted[wanted.index("label") :]
    wanted.remove("devices")
    assert [{"in_flight": "concurrency"}.get(c.name, c.name) for c in rows.PLAN] == wanted


@pytest.mark.parametrize("plans", ["best", "all"])
def test_no_row_has_a_value_that_is_no_number(plans: str) -> None:
    for row in answers(toy(plans=plans, osl="1,16", devices="2")):
        assert not any(isinstance(value, float) and not math.isfinite(value) for value in row.values())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines of the CSV of two points."""
    out = tmp_path_factory.mktemp("rows") / "out.csv"
    to_file(toy(isl="128", osl="16", concurrency="4"), out, "csv", Means())
    return out.read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda line: line[: line.rindex(",")], "column 'front' is empty, as in a line that was cut"),
        (lambda line: line[:-1], "column 'front' holds '"),
        (lambda line: line.replace(",true,", ",yes,", 1), "column 'feasible' holds 'yes'; expected true or false"),
        (lambda line: line.replace(",128,", ",12x,", 1), "column 'isl' holds '12x'; expected a whole number"),
    ],
)
def test_a_row_that_was_cut_or_changed_is_told_by_its_line(
    tmp_path: Path, written: list[str], change: Callable[[str], str], told: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([*written[:-1], change(written[-1])]) + "\n", "utf-8")
    with pytest.raises(MlaplanError, match=re.escape(f"rows.csv:{len(written)}: {told}")):
        rows.read(str(path))


@pytest.mark.parametrize(
    ("line", "told"),
    [("{", "rows.jsonl:2: holds no row that can be read"), ("[1]", "rows.jsonl:2: holds no row; expected an object")],
)
def test_a_line_of_json_that_is_no_row_is_told(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"model": "a"}\n' + line + "\n", "utf-8")
    with pytest.raises(MlaplanError, match=re.escape(told)):
        rows.read(str(path))


def test_a_row_of_json_without_a_truth_value_is_not_taken_for_true(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    to_file(toy(isl="128", osl="16", concurrency="4"), path, "jsonl", Means())
    first, last = path.read_text("utf-8").splitlines()
    path.write_text(first + "\n" + json.dumps({**json.loads(last), "feasible": None}) + "\n", "utf-8")
    with pytest.raises(MlaplanError, match="row 2: column 'feasible' is neither true nor false"):
        rows.read(str(path))
