"""`mlaplan list`: every chip and model, in each format, within 80 columns."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("what", ["chips", "models"])
def test_the_table_fits_80_columns_and_names_the_folder(run: Run, what: str) -> None:
    result = run("list", what)
    assert (result.code, result.err) == (0, "")
    assert max(map(len, result.out.splitlines())) <= 80
    assert result.out.splitlines()[-1].startswith("[1] ")
    assert ("h100-sxm" if what == "chips" else "deepseek-v3") in result.out


def test_a_chip_of_this_folder_is_marked(run: Run) -> None:
    Path("hardware").mkdir()
    text = (FIXTURES / "toy-chip.yaml").read_text()
    Path("hardware/h100-sxm.yaml").write_text(text.replace("name: toy-chip", "name: h100-sxm"))
    lines = run("list", "chips").out.splitlines()
    row = next(line for line in lines if line.startswith("h100-sxm"))
    mark = row.split()[-1]
    assert "Toy chip" in row
    assert f"{mark} hardware/" in lines


def test_json_is_in_si(run: Run) -> None:
    data = json.loads(run("list", "chips", "--format", "json").out)
    assert data["schema"] == "mlaplan.chips/1"
    chip = next(row for row in data["chips"] if row["name"] == "h100-sxm")
    assert chip["memory_bytes_per_s"] == 3.35e12
    assert chip["peak_dtype"] == "bf16"
    assert Path(chip["file"]).is_file()
    data = json.loads(run("list", "models", "--format", "json").out)
    model = next(row for row in data["models"] if row["name"] == "deepseek-v3")
    assert (model["kv_bytes_per_token_bf16"], model["layers"]) == (70272, 61)


def test_csv_and_markdown(run: Run) -> None:
    rows = list(csv.DictReader(run("list", "models", "--format", "csv").out.splitlines()))
    assert next(row for row in rows if row["name"] == "llama-3-70b")["kv_bytes_per_token_bf16"] == "327680"
    lines = run("list", "models", "--format", "md").out.splitlines()
    assert lines[1].startswith("| --- |")
    assert len({line.count("|") for line in lines}) == 1


def test_a_broken_file_is_told_and_the_others_are_listed(run: Run) -> None:
    Path("hardware").mkdir()
    Path("hardware/broken.yaml").write_text("a: 1\na: 2\n")
    result = run("list", "chips")
    assert result.code == 1
    assert result.err.startswith("hardware/broken.yaml:2:1: duplicate key 'a'")
    assert "h100-sxm" in result.out
