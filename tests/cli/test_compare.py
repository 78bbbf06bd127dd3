"""`mlaplan compare`: both ways to ask, the formats, and what it says about mistakes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.__main__ import main
from tests.cli.conftest import Run

QUESTION = ("--isl", "512", "--osl", "128", "--concurrency", "16")
CHIPS = ("compare", "deepseek-v2-lite", "--chips", "h200-sxm,ascend-910b1", "--devices", "2", *QUESTION)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Saved plans of one question on three chips."""
    folder = tmp_path_factory.mktemp("plans")
    found = {}
    for chip in ("h200-sxm", "h100-sxm", "ascend-910b1"):
        found[chip] = folder / f"{chip}.json"
        words = ["recommend", "deepseek-v2-lite", chip, "--devices", "2", *QUESTION, "--top", "1"]
        assert main([*words, "--save-plan", str(found[chip]), "-o", str(folder / "out.txt")]) == 0
    return found


def changed(path: Path, folder: Path, **work: Any) -> str:
    """A plan file with another workload."""
    data = json.loads(path.read_text("utf-8"))
    data["workload"] |= work
    out = folder / "changed.json"
    out.write_text(json.dumps(data), "utf-8")
    return str(out)


def test_a_plan_equals_itself(plans: dict[str, Path], run: Run) -> None:
    path = str(plans["h200-sxm"])
    result = run("compare", path, path, "--format", "json")
    assert result.code == 0
    found = json.loads(result.out)
    assert found["schema"] == "mlaplan.compare/1" and found["asked_differently"] == {}
    (other,) = found["against_first"]
    assert all(ratio["value"] == 1 and ratio["overlap"] for ratio in other["ratios"].values())
    assert all(part["difference_s"] == 0 for part in (*other["chip_s_per_token"], *other["operators"]))
    assert "as many tokens per chip" in other["verdict"]
    assert found["sides"][0]["name"] != found["sides"][1]["name"]


def test_the_parts_add_up_to_the_difference(plans: dict[str, Path], run: Run) -> None:
    found = json.loads(run("compare", *(str(p) for p in plans.values()), "--format", "json").out)
    rates = [side["plan"]["served"]["tok_s_chip"]["value"] for side in found["sides"]]
    assert [other["name"] for other in found["against_first"]] == ["h100-sxm", "ascend-910b1"]
    for rate, other in zip(rates[1:], found["against_first"], strict=True):
        assert other["ratios"]["tok_s_chip"]["value"] == pytest.approx(rate / rates[0], rel=1e-12)
        for parts in (other["chip_s_per_token"], other["operators"]):
            assert sum(p["first_s"] for p in parts) == pytest.approx(1 / rates[0], rel=1e-6)
            assert sum(p["difference_s"] for p in parts) == pytest.approx(1 / rate - 1 / rates[0], rel=1e-6, abs=1e-12)


def test_saved_figures_are_those_that_are_priced_again(plans: dict[str, Path], run: Run) -> None:
    found = json.loads(run("compare", *(str(p) for p in plans.values()), "--format", "json").out)
    for side in found["sides"]:
        assert side["saved_tok_s_chip"] == pytest.approx(side["plan"]["served"]["tok_s_chip"]["value"], rel=1e-12)
    assert not any("priced anew" in note for note in found["notes"])


def test_another_prediction_in_the_file_is_told(plans: dict[str, Path], run: Run, tmp_path: Path) -> None:
    data = json.loads(plans["h200-sxm"].read_text("utf-8"))
    data["prediction"]["served"]["tok_s_chip"]["value"] *= 2
    (tmp_path / "old.json").write_text(json.dumps(data), "utf-8")
    out = " ".join(run("compare", str(plans["h200-sxm"]), "old.json").out.split())
    assert "old was saved with" in out and "this version prices otherwise" in out


def test_different_questions_are_shown_first(plans: dict[str, Path], run: Run, tmp_path: Path) -> None:
    other = changed(plans["h200-sxm"], tmp_path, osl_tokens=64, concurrency=8)
    out = run("compare", str(plans["h200-sxm"]), other).out
    assert out.index("asked differently") < out.index("tok/s")
    said = " ".join(out.split())
    assert "output 128 tokens 64 tokens" in said and "load 16 in flight 8 in flight" in said
    assert "asked for different work (output, load)" in said


def test_chips_are_compared_by_their_best_plans(run: Run) -> None:
    result = run(*CHIPS, "--format", "json")
    assert result.code == 0
    found = json.loads(result.out)
    assert [side["name"] for side in found["sides"]] == ["h200-sxm", "ascend-910b1"]
    for side in found["sides"]:
        one = json.loads(run("recommend", "deepseek-v2-lite", side["name"], "--devices", "2", *QUESTION, "--top", "1",
                             "--format", "json").out)  # fmt: skip
        assert side["plan"]["served"] == one["plans"][0]["served"]
        assert side["tok_s"] == pytest.approx(2 * one["plans"][0]["served"]["tok_s_chip"]["value"])
    ratios = found["against_first"][0]["ratios"]
    bands = [side["plan"]["served"]["tok_s_chip"] for side in found["sides"]]
    assert ratios["tok_s_chip"]["overlap"] == (
        bands[1]["low"] <= bands[0]["high"] and bands[0]["low"] <= bands[1]["high"]
    )
    assert ratios["usd_per_mtok"] is None  # of one chip no price is known
    assert any("No price is known of ascend-910b1" in note for note in found["notes"])


def test_the_text_keeps_to_eighty_columns_and_says_whether_bands_overlap(run: Run) -> None:
    for words in (CHIPS, (*CHIPS[:3], "h200-sxm,h100-sxm,h800-sxm,a100-sxm-80g,mi300x", *CHIPS[4:])):
        result = run(*words)
        assert max(map(len, result.out.splitlines())) <= 80
        for line in (line for line in " ".join(result.out.split()).split(". ") if "tokens per chip" in line):
            assert "the bands overlap" in line or "the bands are apart" in line
    assert "not given and taken" not in result.err


def test_csv_has_a_row_for_each_side(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run(*CHIPS, "--format", "csv").out)))
    assert [row["chip"] for row in rows] == ["h200-sxm", "ascend-910b1"]
    assert float(rows[0]["tok_s_chip_ratio"]) == 1
    assert float(rows[1]["tok_s_chip_ratio"]) == pytest.approx(
        float(rows[1]["tok_s_chip"]) / float(rows[0]["tok_s_chip"])
    )


def test_markdown_has_the_same_sections(run: Run) -> None:
    out = run(*CHIPS, "--format", "md").out
    for title in ("# DeepSeek-V2-Lite", "## Figures", "## ascend-910b1 against h200-sxm", "## Notes"):
        assert f"\n{title}" in f"\n{out}"


def test_a_chip_on_which_nothing_fits_is_told(run: Run) -> None:
    words = ("compare", "deepseek-v2", "--chips", "h200-sxm,k3", "--devices", "8", *QUESTION)
    result = run(*words)
    assert result.code == 1
    said = " ".join(result.out.split())
    assert "k3: nothing feasible on 8 chips; nearest" in said and "MLA201" in said
    assert "k3: no ratio" in said
    found = json.loads(run(*words, "--format", "json").out)
    assert found["sides"][1]["plan"] is None and found["against_first"][0]["operators"] == []
    rows = list(csv.DictReader(io.StringIO(run(*words, "--format", "csv").out)))
    assert rows[1]["feasible"] == "False" and rows[1]["tok_s_chip"] == ""


def test_each_chip_may_have_a_number_of_its_own(run: Run) -> None:
    words = ["h200-sxm,h200-sxm" if w == "h200-sxm,ascend-910b1" else "1,2" if w == "2" else w for w in CHIPS]
    found = json.loads(run(*words, "--format", "json").out)
    assert [side["name"] for side in found["sides"]] == ["1 x h200-sxm", "2 x h200-sxm"]
    assert found["asked_differently"]["devices"] == {"1 x h200-sxm": "1", "2 x h200-sxm": "2"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("PLAN",), "alone has nothing to compare with; expected two or more files"),
        (("PLAN", "none.json"), "none.json: cannot be read: No such file or directory"),
        (("PLAN", "list.json"), "list.json: is no plan"),
        (("PLAN", "broken.json"), "broken.json:1:2: is not JSON; expected a plan file"),
        (("PLAN", "part.json"), "part.json: has no 'chip'; expected a whole plan file"),
        (("PLAN", "strategy.json"), "strategy.batch is 'many'; expected a whole number from 1 to 1,000,000"),
        (("PLAN", "words.json"), "words.json: strategy.kv_dtype is 'bf61'; expected one of bf16, fp16, fp8"),
        (("PLAN", "PLAN", "--isl", "64"), "--isl asks a question, and a saved plan holds its own"),
        (("PLAN", "PLAN", "--devices", "2"), "--devices asks a question"),
        (("deepseek-v3", "--chips", "h200-sxm"), "--chips h200-sxm: expected two or more chips, parted by commas"),
        (("deepseek-v3", "--chips", "h200-sxm,,k3", "--devices", "8"), "expected two or more chips, parted by commas"),
        (("deepseek-v3", "--chips", "h200-sxm,k3"), "--devices is missing"),
        (("deepseek-v3", "--chips", "h200-sxm,k3", "--devices", "8,8,8"), "3 numbers for 2 chips"),
        (("deepseek-v3", "--chips", "h200-sxm,k3", "--devices", "many"), "--devices many: expected a number from 1 to"),
        (("deepseek-v3", "--chips", "h200-sxm,k3", "--devices", "0"), "--devices 0: expected a number from 1 to"),
        (("deepseek-v3", "--chips", "h200-sxm,h200-smx", "--devices", "8"), "did you mean 'h200-sxm'?"),
        (("deepseek-v3", "k3", "--chips", "h200-sxm,k3", "--devices", "8"), "--chips goes with one model"),
        (("PLAN", "PLAN", "-o", "no/x"), "no/x: cannot be written: there is no folder no"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_line(
    words: tuple[str, ...], told: str, plans: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    whole = json.loads(plans["h200-sxm"].read_text("utf-8"))
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "part.json").write_text('{"schema": "mlaplan.plan/1"}')
    for name, column in (("strategy", {"batch": "many"}), ("words", {"kv_dtype": "bf61"})):
        data = {**whole, "strategy": whole["strategy"] | column}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    result = run("compare", *(str(plans["h200-sxm"]) if word == "PLAN" else word for word in words))
    assert result.code == 2 and result.out == ""
    assert told in result.err and len(result.err.splitlines()) == 1 and "Traceback" not in result.err
