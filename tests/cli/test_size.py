"""`mlaplan size`: fewest chips by formula and by simulation, headroom, comparison, what is refused."""

from __future__ import annotations

import io
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mlaplan.__main__ import main
from tests.cli.conftest import Result, Run

LLAMA = "size llama-3-70b ascend-910b3 --rate 4 --isl 3500 --osl 500 --ttft p95:2s --tpot p95:50ms --largest 16"
QUICK = f"{LLAMA} --no-simulate"
TP8 = f"{LLAMA} --tp 8 --largest 8"  # one instance: few runs


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
    assert [r["rate_per_s"] for r in chip(f"{QUICK} --rates 12,3")["rates"]] == [3, 4, 12]
    assert chips == sorted(chips) and [r["rate_per_s"] for r in found["rates"]] == [1, 2, 4, 8, 16]
    by = {x["load"]: x for x in found["loads"]}
    assert by["-20 %"]["ttft_s"] < by["as asked"]["ttft_s"]
    assert by["server lost"]["replicas"] < by["as asked"]["replicas"]


def test_the_simulator_decides() -> None:
    by_formula, simulated = chip(QUICK), chip(f"{LLAMA} --rates 4")
    assert simulated["simulated"] and not by_formula["simulated"]
    assert next(x for x in simulated["loads"] if x["load"] == "as asked")["meets"]
    assert simulated["chips"] <= by_formula["chips"] == simulated["formula_chips"]
    assert "simulating" in answer(f"{LLAMA} --rates 4 --format json").err


def test_chips_are_compared_with_their_prices() -> None:
    line = QUICK.replace("ascend-910b3", "h100-sxm,h200-sxm") + " --chips ascend-910b3"
    rows = json.loads(answer(f"{line} --format json").out)["chips"]
    assert [r["chip"]["name"] for r in rows] == ["h100-sxm", "h200-sxm", "ascend-910b3"]
    first = rows[0]
    assert first["usd_per_mtok"] == pytest.approx(2.95 * first["chips"] / 3600 / (4 * 500) * 1e6)
    assert rows[2]["usd_per_mtok"] is None
    shown = answer(line).out
    assert max(map(len, shown.splitlines())) <= 80 and "by a queueing formula" in " ".join(shown.split())


def test_no_row_of_the_table_contradicts_the_answer() -> None:
    found = chip(TP8)
    asked = next(r for r in found["rates"] if r["rate_per_s"] == 4)
    assert (asked["chips"], asked["label"]) == (found["chips"], found["label"])
    chips = [r["chips"] for r in found["rates"]]
    assert chips == sorted(chips) and len(chips) == 5
    # twice the load on twice the replicas is what each replica has kept already
    assert chips[3] <= 2 * chips[2] and chips[4] <= 2 * chips[3]


def test_lengths_without_spread_are_the_plain_values() -> None:
    same = TP8.replace("--isl 3500 --osl 500", "--isl uniform:3500:3500 --osl lognormal:500:0")
    assert chip(same) == chip(TP8)


def test_bursts_need_no_fewer_chips() -> None:
    assert chip(f"{TP8} --burstiness 0.1 --rates 4")["chips"] > chip(TP8)["chips"]


def test_a_trace_is_sized_by_what_its_prompts_share() -> None:
    line = "size llama-3-70b h100-sxm --trace chat --rate 12 --ttft p95:2s --tpot p95:50ms --tp 4 --largest 4 --rates 1"
    shared, alone = chip(line), chip(f"{line} --no-prefix-cache")
    assert shared["hit_share"] > 0.2 and alone["hit_share"] == 0
    assert shared["chips"] < alone["chips"]
    refused = answer(f"{line} --prefix 1000")
    assert refused.code == 2 and "say themselves what their prompts share" in refused.err
    shown = answer(line).out
    assert "600 requests of chat" in shown and max(map(len, shown.splitlines())) <= 80


def test_a_shared_prefix_is_found_by_the_simulator_too() -> None:
    line = "size llama-3-70b h100-sxm --rate 4 --isl 3500 --osl 100 --ttft p95:1s --tp 4 --largest 4 --rates 1"
    found = chip(f"{line} --prefix 3072 --prefix-groups 20")
    assert found["hit_share"] == pytest.approx(3072 / 3500, rel=0.05)
    assert found["chips"] < chip(line)["chips"]


def test_a_failed_server_takes_whole_replicas() -> None:
    found = chip("size llama-3-70b ascend-910b3 --rate 4 --isl 3500 --osl 500 --tp 16 --largest 16 --no-simulate")
    assert found["server_chips"] == 8 and found["server_replicas"] == 1
    lost = next(x for x in found["loads"] if x["load"] == "server lost")
    assert lost["replicas"] == found["replicas"] - 1
    assert found["chips_with_spare"] == found["chips"] + 16


def test_a_limit_on_the_mean_is_looser() -> None:
    mean = chip(QUICK.replace("p95:", ""))
    assert mean["chips"] <= chip(QUICK)["chips"]


def test_nothing_keeps_an_impossible_limit() -> None:
    result = answer(QUICK.replace("p95:2s", "p95:50ms"))
    said = " ".join(result.out.split())
    assert result.code == 1 and "keeps the limits, however few requests it gets" in said
    # 428.7 ms against 50 ms
    times = float(said.split("times the limit")[0].split()[-1])
    shortest = json.loads(answer(f"{QUICK.replace('p95:2s', 'p95:50ms')} --format json").out)["chips"][0]["nearest"]
    assert times == pytest.approx(shortest["ttft"]["seconds"] / 0.05, rel=0.01) and times > 1
    # the search finds it, but for one limit each
    seconds = shortest["ttft"]["seconds"]
    assert answer(QUICK.replace("p95:2s --tpot p95:50ms", f"p95:{1.01 * seconds:.6f}s")).code == 0
    assert answer(QUICK.replace("p95:2s --tpot p95:50ms", f"p95:{0.99 * seconds:.6f}s")).code == 1


def test_limits_that_are_kept_one_by_one_only() -> None:
    """The shortest TTFT is that of a pipeline, the shortest TPOT that of none."""
    nothing = chip(QUICK.replace("p95:2s --tpot p95:50ms", "p95:1ms --tpot p95:1ms"))["nearest"]
    first, each = nothing["ttft"], nothing["tpot"]
    assert first["label"] != each["label"]
    line = QUICK.replace(
        "p95:2s --tpot p95:50ms", f"p95:{1.001 * first['seconds']:.6f}s --tpot p95:{1.001 * each['seconds']:.6f}s"
    )
    found, said = chip(line)["nearest"], " ".join(answer(line).out.split())
    assert answer(line).code == 1 and "With TTFT kept, the shortest TPOT is" in said
    assert found["tpot_with_ttft_kept"]["seconds"] > 1.001 * each["seconds"]
    assert found["ttft_with_tpot_kept"]["seconds"] > 1.001 * first["seconds"]


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
        ("--osl none", "--osl: 'none'"),
        ("--isl uniform:5:2", "ends before it begins"),
        ("--osl lognormal:500:-1", "no deviation over the mean"),
        ("--burstiness 0", "expected a number from 0.01 to 100"),
        ("--trace chat", "--trace; --isl and --osl: each says what is sent"),
        ("--rates 3,0", "--rates 3,0: above 0"),
        ("--rates 3,x", "--rates: 'x'"),
        ("--requests 5", "--requests goes with --trace"),
    ],
)
def test_bad_input_is_one_line(run: Run, change: str, said: str) -> None:
    result = run(*shlex.split(f"{QUICK} {change}"))
    assert result.code == 2 and said in result.err and "Traceback" not in result.err


ONE = '{"timestamp": 0, "input_length": 2000, "output_length": 300}'


@pytest.mark.parametrize(
    ("lines", "change", "said"),
    [
        ([ONE], "", "--rate is missing"),
        ([ONE], "--rate 2", "add --burstiness 1"),
        ([ONE.replace("0,", "5,", 1), ONE], "--rate 2", ":2:15: timestamp 0 is before that of a line above, 5"),
        ([ONE.replace("{", '{"input_length": 3, ')], "--rate 2", ":1:37: 'input_length' appears twice in one line"),
        ([], "--rate 2", "holds no request"),
    ],
)
def test_bad_traces(run: Run, tmp_path: Path, lines: list[str], change: str, said: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(lines))
    result = run(*shlex.split(f"size llama-3-70b h100-sxm --trace {file} {change}"))
    assert result.code == 2 and said in result.err and "Traceback" not in result.err


def test_one_request_over_and_over(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(ONE)
    limits = "--rate 2 --burstiness 1 --ttft p95:2s --tpot p95:50ms --tp 4 --largest 4 --rates 1"
    of_trace = chip(f"size llama-3-70b h100-sxm --trace {file} {limits}")
    assert of_trace["chips"] == chip(f"size llama-3-70b h100-sxm --isl 2000 --osl 300 {limits}")["chips"]
