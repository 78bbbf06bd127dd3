"""`mlaplan.recommend` and `mlaplan.sweep`: the command line's answers from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import mlaplan
from mlaplan.api import Recommended, Swept
from mlaplan.errors import MlaplanError

FIXTURES = Path(__file__).resolve().parent / "fixtures"
MODEL, CHIP = str(FIXTURES / "toy-model.yaml"), str(FIXTURES / "toy-chip.yaml")


def test_recommend() -> None:
    found = mlaplan.recommend(
        MODEL, CHIP, 4, isl="1k", osl=64, concurrency=16, tpot=0.001, set={"memory.bandwidth": "x2"}
    )
    assert isinstance(found, Recommended)
    assert found.best is found.plans[0]
    frame = found.to_pandas()
    assert list(frame["rank"]) == list(range(1, len(found.plans) + 1))
    assert frame["tpot_s"].max() <= 0.001
    assert float(found.question.setting.chip.memory.bandwidth) == 4e12
    assert mlaplan.recommend(MODEL, CHIP, 4, tpot="1us").best is None


def test_sweep_and_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    found = mlaplan.sweep(MODEL, CHIP, devices=[2, 4], isl="128:1k:x2", osl=64, concurrency=[1, 64], path=str(path))
    assert isinstance(found, Swept)
    rows = found.to_pandas()
    assert len(rows) == found.outcome.points == 16
    assert rows.equals(mlaplan.sweep.read(str(path)))
    one = mlaplan.recommend(MODEL, CHIP, 4, isl=256, osl=64, concurrency=64).to_pandas().iloc[0]
    row = rows.query("devices == 4 and isl == 256 and concurrency == 64").iloc[0]
    assert row["label"] == one["label"]
    assert row["tok_s_chip"] == one["tok_s_chip"]
    assert {moved.axis for moved in found.moved()} == {"devices", "isl", "concurrency"}


def test_borders_are_where_neighbours_differ() -> None:
    found = mlaplan.sweep("deepseek-v3", "h200-sxm", devices=16, isl="4k,64k", osl=512, concurrency=256)
    rows = found.to_pandas()
    labels = rows["label"].str.replace(r" x\d+$", "", regex=True)
    assert labels[0] != labels[1]
    (border,) = found.borders()
    assert (border.axis, border.before, border.after) == ("isl", *labels)
    assert (border.below, border.above, border.times) == (4096, 65536, 1)
    text = " ".join(found.explain().split())
    assert f"{labels[0]} gives way to {labels[1]} once along isl, as between 4,096 and 65,536. Driver: " in text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"isl": "0"}, "isl: 0 is out of range"),
        ({"islands": 3}, "islands: no such argument"),
        ({"concurency": 3}, "did you mean 'concurrency'"),
        ({"tp": "1,2"}, "pin.tp has several values; use mlaplan.sweep"),
        ({"tp": 3}, "--tp 3 does not divide --devices 4"),
    ],
)
def test_mistakes_read_as_on_the_command_line(given: dict[str, object], told: str) -> None:
    with pytest.raises(MlaplanError, match=told):
        mlaplan.recommend(MODEL, CHIP, 4, **given)  # type: ignore[arg-type]


def test_borders_need_best_plans() -> None:
    with pytest.raises(MlaplanError, match="borders lie between best plans; these are pareto"):
        mlaplan.sweep(MODEL, CHIP, devices=2, plans="pareto").borders()


def test_the_package_shows_nothing_else() -> None:
    with pytest.raises(AttributeError, match="no attribute 'swoop'"):
        _ = mlaplan.swoop
