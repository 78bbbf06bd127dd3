"""`mlaplan size`: fewest chips by formula and by simulation, headroom, comparison, what is refused."""

from __future__ import annotations

import io
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

import pytest

from mlaplan.__main__ import main
from tests.cli.conftest import Result, Run

LLAMA = "size llama-3-70b ascend-910b3 --rate 4 --isl 3500 --osl 500 --ttft p95:2s --tpot p95:50ms --largest 16"
QUICK = f"{LLAMA} --no-simulate"


@cache
def answer(line: str) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(line))
    return Result(code, out.getvalue(), err.getvalue())


def chip(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(f"{line} --format json").out)["chips"][0]
    return found


def test_the_fewest_of_all_instance_sizes() -> None:
    found = chip(QUICK)
    needed = [-(-4 // one["most_per_s"]) * one["devices"] for one in found["instances"]]
    assert found["chips"] == min(needed) == found["replicas"] * found["strategy"]["devices"] / found["replicas"]
    asked = next(x for x in found["loads"] if x["load"] == "as asked")
    assert asked["meets"] and asked["ttft_s"] <= 2 and asked["tpot_s"] <= 0.05


def test_more_load_needs_no_fewer_chips_and_a_lost_server_is_worse() -> None:
    found = chip(QUICK)
    chips = [r["chips"] for r in found["rates"]]
    assert chips == sorted(chips) and [r["rate_per_s"] for r in found["rates"]] == [1, 2, 4, 8, 16]
    by = {x["load"]: x for x in found["loads"]}
    assert by["-20 %"]["ttft_s"] < by["as asked"]["ttft_s"]
    assert by["server lost"]["replicas"] < by["as asked"]["replicas"]


def test_the_simulator_decides() -> None:
    by_formula, simulated = chip(QUICK), chip(LLAMA)
    assert simulated["simulated"] and not by_formula["simulated"]
    assert next(x for x in simulated["loads"] if x["load"] == "as asked")["meets"]
    assert simulated["chips"] <= by_formula["chips"] == simulated["formula_chips"]
    assert "simulating" in answer(f"{LLAMA} --format json").err


def test_chips_are_compared_with_their_prices() -> None:
    line = QUICK.replace("ascend-910b3", "h100-sxm,h200-sxm") + " --chips ascend-910b3"
    rows = json.loads(answer(f"{line} --format json").out)["chips"]
    assert [r["chip"]["name"] for r in rows] == ["h100-sxm", "h200-sxm", "ascend-910b3"]
    first = rows[0]
    assert first["usd_per_mtok"] == pytest.approx(2.95 * first["chips"] / 3600 / (4 * 500) * 1e6)
    assert rows[2]["usd_per_mtok"] is None
    shown = answer(line).out
    assert max(map(len, shown.splitlines())) <= 80 and "by a queueing formula" in " ".join(shown.split())


def test_a_limit_on_the_mean_is_looser() -> None:
    mean = chip(QUICK.replace("p95:", ""))
    assert mean["chips"] <= chip(QUICK)["chips"]


def test_nothing_keeps_an_impossible_limit() -> None:
    result = answer(QUICK.replace("p95:2s", "p95:50ms"))
    assert result.code == 1 and "keeps the limits, however few requests it gets" in " ".join(result.out.split())


@pytest.mark.parametrize("how", ["md", "csv"])
def test_other_formats(how: str) -> None:
    assert answer(f"{QUICK} --format {how}").code == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("--rate 0", "--rate: above 0"),
        ("--ttft p100:2s", "p100 is the slowest of all requests"),
        ("--tpot p95", "--tpot: 'p95' is not a quantity"),
        ("--ttft q95:2s", "unknown 'q95'"),
        ("--chips h100-smx", "h100-sxm"),
        ("--osl none", "--osl: 'none' is not a number of tokens"),
    ],
)
def test_bad_input_is_one_line(run: Run, change: str, said: str) -> None:
    result = run(*shlex.split(f"{QUICK} {change}"))
    assert result.code == 2 and said in result.err and "Traceback" not in result.err
