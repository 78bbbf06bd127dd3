"""`mlaplan sweep`: rows, summary, study files, and what is refused before any work."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest

from mlaplan.sweep.fields import FIELDS

from .conftest import Run

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
MODEL, CHIP = str(FIXTURES / "toy-model.yaml"), str(FIXTURES / "toy-chip.yaml")
GRID = ("--devices", "2,4", "--isl", "128,1k", "--osl", "64", "--concurrency", "1:64:x8")


def test_rows_to_stdout(run: Run) -> None:
    done = run("sweep", MODEL, CHIP, *GRID)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert done.code == 0
    assert done.err == ""  # nobody watches: no bar
    assert [(r["devices"], r["isl"], r["concurrency"]) for r in rows[:4]] == [
        ("2", "128", "1"), ("2", "128", "8"), ("2", "128", "64"), ("2", "1024", "1"),
    ]  # fmt: skip
    assert all(r["feasible"] == "true" and r["label"] for r in rows)
    assert {r["front"] for r in rows} == {"true", "false"}


def test_a_summary_in_eighty_columns(run: Run) -> None:
    done = run("sweep", MODEL, CHIP, *GRID, "--tpot", "1ms", "-o", "out.csv")
    assert done.code == 0
    assert done.err == "written to out.csv\n"
    assert max(map(len, done.out.splitlines())) <= 80
    assert "12 points, the best plan of each by throughput" in done.out
    assert "WHERE THE BEST STRATEGY CHANGES" in done.out
    assert [path.name for path in Path().iterdir()] == ["out.csv"]


def test_a_study_gives_the_same_and_options_come_first(run: Run) -> None:
    text = f"kind: study\nmodel: {MODEL}\nchips: {CHIP}\ndevices: 2,4\nisl: 128,1k\nosl: 64\nconcurrency: 1:64:x8\n"
    Path("study.yaml").write_text(text)
    by_options = run("sweep", MODEL, CHIP, *GRID).out
    assert run("sweep", "--config", "study.yaml").out == by_options
    fewer = run("sweep", "--config", "study.yaml", "--devices", "2").out
    assert fewer.splitlines()[1].split(",")[:6] == by_options.splitlines()[1].split(",")[:6]
    assert fewer.count("\n") == 7


def test_what_is_taken_is_told(run: Run) -> None:
    assert run("sweep", MODEL, CHIP, "--devices", "2").err == "not given and taken: --isl 4096 --osl 1024\n"


def test_nothing_feasible(run: Run) -> None:
    done = run("sweep", MODEL, CHIP, *GRID, "--tpot", "1us", "-o", "out.jsonl")
    assert done.code == 1
    assert "WHERE" not in done.out
    assert Path("out.jsonl").read_text().count('"feasible": false') == 12


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((MODEL, CHIP), "sweep: no devices is given; expected --devices, or 'devices:' in a study"),
        ((), "sweep: no model is given"),
        ((MODEL, CHIP, "--devices", "8:1:x2"), "--devices: '8:1:x2' ends below its start; expected 1:8:x2"),
        ((MODEL, CHIP, "--devices", "2", "--set", "memory=x2"), "--set memory=x2:"),
        ((MODEL, CHIP, "--devices", "2", "--set", "memory"), "--set memory: is not an assignment"),
        (
            (MODEL, CHIP, "--devices", "2", "-o", "out.txt"),
            "out.txt: no form of rows; expected a name that ends in .csv",
        ),
        (
            (MODEL, CHIP, "--devices", "2", "-o", "out.csv", "--format", "jsonl"),
            "the name says csv, --format says jsonl",
        ),
        ((MODEL, CHIP, "--devices", "2", "-o", "no/out.csv"), "there is no folder no"),
        ((MODEL, CHIP, "--devices", "2", "--resume"), "--resume goes on with the parts beside a result: name it by -o"),
        ((MODEL, CHIP, "--devices", "2", "-o", "x.csv", "--plot", MODEL), f"--plot {MODEL}: expected a folder"),
        ((MODEL, CHIP, "--devices", "2", "--plot", "x"), "--plot draws the rows of a result: name it by -o"),
        ((MODEL, CHIP, "--devices", "2", "--all", "--pareto"), "--all and --pareto"),
        ((MODEL, CHIP, "--devices", "2", "--rate", "1", "--concurrency", "1"), "both fix the load"),
        (("--config", "none.yaml"), "none.yaml: no such file"),
        (("h200-sxm", "deepseek-v3", "--devices", "8"), "'h200-sxm' is a chip and 'deepseek-v3' is a model"),
    ],
)
def test_refused_in_one_line(run: Run, arguments: tuple[str, ...], told: str) -> None:
    done = run("sweep", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert not list(Path().iterdir())


def test_parquet_without_its_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = run("sweep", MODEL, CHIP, *GRID, "-o", "out.parquet")
    assert done.code == 2
    assert done.err == (
        "out.parquet: Parquet needs pyarrow: pip install 'mlaplan[parquet]', or name a .csv or .jsonl\n"
    )


def test_every_field_is_an_option() -> None:
    from mlaplan.cli.sweep import ASKED

    assert set(FIELDS) <= set(ASKED)
