"""`mlaplan recommend`: answers that are known beforehand, the contract, the words, the commands."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mlaplan.__main__ import main
from tests.cli.conftest import Result, Run

FIXTURES = Path(__file__).parents[1] / "fixtures"
V3_H100 = "recommend deepseek-v3 h100-sxm --devices 16 --isl 4096 --osl 1024 --concurrency 128"
V3_H200 = "recommend deepseek-v3 h200-sxm --devices 16 --isl 4k --osl 1k --concurrency 512 --tpot 60ms --ttft 5s"
V3_SC11 = "recommend deepseek-v3 sc11 --devices 8 --isl 128 --osl 1024 --concurrency 128"
V3_ONE_NODE = "recommend deepseek-v3 h100-sxm --devices 8 --isl 4k --osl 1k --concurrency 64 --memory-fraction 0.92"


@cache
def answer(line: str) -> Result:
    """One run, kept: the same question is asked by several tests."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(line))
    return Result(code, out.getvalue(), err.getvalue())


def data(line: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(answer(f"{line} --format json").out)
    return result


def words(line: str) -> str:
    """The text with its folds undone."""
    return " ".join(answer(line).out.split())


# ---- answers that are known ----


def test_deepseek_v3_does_not_fit_on_eight_h100_and_sixteen_are_named() -> None:
    result, found = answer(V3_ONE_NODE), data(V3_ONE_NODE)
    assert result.code == 1 and found["plans"] == []
    assert found["nearest_miss"]["rule"] == "MLA201"
    assert found["nearest_miss"]["change"] == "16 chips would hold it"
    assert found["rejected"] == {"MLA201": sum(found["rejected"].values())}
    assert found["rules"]["MLA201"] == "weights and buffers exceed the memory"
    assert "NOTHING FEASIBLE" in result.out and "smallest change: 16 chips would hold it" in result.out
    assert re.search(r"[\d,]+ +MLA201 +weights and buffers exceed the memory", result.out)
    assert "next:" not in result.err


def test_it_fits_on_sixteen_h100_and_on_eight_h200() -> None:
    assert answer(V3_H100).code == 0
    assert all(plan["fits"] and plan["reasons"] == [] for plan in data(V3_H100)["plans"])
    eight = data("recommend deepseek-v3 h200-sxm --devices 8 --isl 4k --osl 1k --concurrency 64 --top 1")
    assert len(eight["plans"]) == 1 and eight["plans"][0]["strategy"]["devices"] == 8


@pytest.mark.parametrize("load", ["--concurrency 1", "--concurrency 64", "--concurrency 512"])
@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_tp_across_two_nodes_of_h100_is_never_chosen(load: str, objective: str) -> None:
    line = f"recommend deepseek-v3 h100-sxm --devices 16 --isl 4096 --osl 1024 {load} --objective {objective} --top 3"
    plans = [plan["strategy"] for plan in data(line)["plans"]]
    assert len(plans) == 3 and all(plan["tp"] <= 8 for plan in plans)
    assert plans[0]["pp"] == 2 or plans[0]["dp"] > 1


def test_tp_across_nodes_is_shown_with_its_communication_and_why_not() -> None:
    found = data(V3_H100)
    best = found["plans"][0]
    wide = [f for f in found["families"] if f["strategy"]["tp"] == 16 and f["strategy"]["kv_layout"] == "replicated"]
    assert wide and all(f["tok_s_chip"] < best["served"]["tok_s_chip"]["value"] for f in wide)
    assert all(0 < f["comm_share"] < 1 for f in found["families"] if f["strategy"]["tp"] > 1)
    assert max(f["comm_share"] for f in wide) > best["decode"]["comm_share"]
    row = next(line for line in answer(V3_H100).out.splitlines() if line.startswith("TP16 "))
    assert re.search(r"TP16( EP\d+)? +\d+ % +\d+ % +[\d.]+ ms +[\d,.]+ +-\d+ %$", row)


def test_sc11_says_tp_or_dp_per_weight_dtype_and_why() -> None:
    sides = data(V3_SC11)["why"]["tp_or_dp"]
    assert (sides["chips"], sides["sequences"], sides["cached_tokens"]) == (8, 128, 81920)
    tokens = {(one["part"], one["dtype"]): one for one in sides["break_even"]}
    assert round(tokens["up-projections", "fp8"]["tokens_bf16"]) == 47332
    assert round(tokens["up-projections", "bf16"]["tokens_bf16"]) == 94663
    assert round(tokens["all of MLA", "fp8"]["tokens_bf16"]) == 149276
    assert round(sides["break_even_tokens_all_divided"]) == 162418
    # 81,920 cached tokens are above the first and below the others
    assert [tokens[key]["fewer_bytes"] for key in tokens] == ["DP", "TP", "TP", "TP"]
    assert [one["weight_dtype"] for one in sides["priced"]] == ["fp8", "bf16"]
    for one in sides["priced"]:
        assert one["faster"] == ("DP" if one["dp"]["step_s"] < one["tp"]["step_s"] else "TP")
    assert not sides["priced"][1]["tp"]["fits"]  # 671 B weights in bf16
    text = words(V3_SC11)
    assert "TP or DP of attention over 8 chips" in text and "81,920 tokens are below S* = 149,276" in text
    assert re.search(r"with fp8 weights TP8 EP8 [\d.]+ ms, DP8 EP8 [\d.]+ ms: (TP|DP) wins \((TP|DP) adds ", text)
    assert "with bf16 weights TP8 EP8" in text and "162,418" in text


def test_the_priced_difference_of_tp_and_dp_adds_up() -> None:
    one = data(V3_SC11)["why"]["tp_or_dp"]["priced"][0]
    assert sum(one["dp_adds_s"].values()) == pytest.approx(one["dp"]["step_s"] - one["tp"]["step_s"], rel=1e-6)


def test_gathering_queries_pays_above_a_few_hundred_tokens() -> None:
    crossover = data(V3_H100)["why"]["gather_crossover_tokens"]
    assert round(crossover["bf16_output_without_lse"]) == 242 and crossover["fp32_output_with_lse"] == 356
    assert "above 242 cached tokens with 128 heads" in words(V3_H100)


def test_capacity_of_each_layout_is_shown() -> None:
    held = {(one["label"], one["kv_layout"]): one for one in data(V3_H200)["why"]["kv_capacity"]}
    layouts = {layout for _, layout in held}
    assert layouts == {"replicated", "sequence_sharded", "latent_sharded"}
    label, shared = next((label, one) for (label, layout), one in held.items() if layout == "sequence_sharded")
    alike, ranks = label.split(" DCP")
    whole = held[alike, "replicated"]
    assert int(ranks) > 1
    assert shared["kv_tokens"] == pytest.approx(int(ranks) * whole["kv_tokens"], rel=1e-4)
    assert shared["kv_bytes_per_token"] == whole["kv_bytes_per_token"] / int(ranks)
    said = words("recommend deepseek-v3 h200-sxm --devices 16 --isl 4k --osl 1k --concurrency 128 --tp 8")
    assert "1,152 B a layer in bf16, where GQA with 8 KV heads of 128 under TP8 holds 512 B: 2.25x" in said


# ---- the contract ----


def test_the_json_has_every_key_of_the_contract() -> None:
    found = data(V3_H200)
    assert found["schema"] == "mlaplan.recommend/1"
    assert found["nearest_miss"] is None and all(re.fullmatch(r"MLA\d{3}", rule) for rule in found["rejected"])
    assert found["considered"] > 1000 and found["priced"] > 1000
    values = [plan["served"]["tok_s_chip"]["value"] for plan in found["plans"]]
    assert len(values) == 5 and all(a >= 0.99 * b for a, b in pairwise(values))
    for plan in found["plans"]:
        assert plan["fits"] and plan["served"]["tpot_s"]["value"] <= 0.06 and plan["served"]["ttft_s"]["value"] <= 5
        strategy = plan["strategy"]
        assert strategy["tp"] * strategy["pp"] * strategy["dp"] * strategy["replicas"] == 16
        assert plan["memory"]["total_bytes"] <= plan["memory"]["usable_bytes"]
    shapes = [tuple(p["strategy"][k] for k in ("replicas", "pp", "tp", "dp", "ep", "dcp", "cp", "kv_layout"))
              for p in found["plans"]]  # fmt: skip
    assert len(set(shapes)) == len(shapes)


def test_what_a_token_costs_adds_up_to_the_throughput() -> None:
    found = data(V3_H200)
    for cost, plan in zip(
        (found["why"]["chip_s_per_token"], found["why"]["next_best"]["chip_s_per_token"]), found["plans"], strict=False
    ):
        assert sum(cost.values()) == pytest.approx(1 / plan["served"]["tok_s_chip"]["value"], rel=1e-9)


def test_csv_and_markdown_have_a_row_per_plan() -> None:
    rows = answer(f"{V3_H200} --format csv").out.splitlines()
    assert rows[0].startswith("rank,label,devices,tp,pp,dp,ep,dcp,cp,replicas,") and len(rows) == 6
    assert all(row.count(",") == rows[0].count(",") for row in rows)
    md = answer(f"{V3_H200} --format md").out
    assert "| 1 | " in md and "| 5 | " in md and "## Why" in md and "## Excluded" in md and "\n\n\n" not in md


@pytest.mark.parametrize("line", [V3_H100, V3_H200, V3_SC11, V3_ONE_NODE])
def test_the_text_keeps_to_80_columns_and_has_no_colours(line: str) -> None:
    out = answer(line).out
    wide = [row for row in out.splitlines() if len(row) > 80 and "/" not in row]
    assert not wide and "\x1b" not in out and not any(row != row.rstrip() for row in out.splitlines())


def test_the_text_says_what_was_understood_and_what_to_know() -> None:
    text = words(V3_H200)
    for said in (
        "DeepSeek-V3 on 16 x h200-sxm (2 nodes of 8)",
        "MLA, 61 layers, 256 experts, 671.0 B parameters, 36.6 B active, fp8",
        "4,096 tokens in, 1,024 out, 512 in flight, TTFT up to 5.00 s, TPOT up to 60.0 ms",
        "combinations",
        "80 % band of the first",
        "The three largest: 1. routed_experts",
        "The next best shape, ",
        "A cache in fp8 changes what the model computes",
        "tokens a step: acceptance 0.8 a position, assumed; yours with --mtp-accept",
    ):
        assert said in text, said


def test_a_fictional_chip_is_called_one() -> None:
    out = words("recommend deepseek-v2-lite k3 --devices 1 --isl 512 --osl 128 --concurrency 4")
    assert "treat the chip as fictional" in out


def test_a_converted_checkpoint_is_told() -> None:
    out = words("recommend deepseek-v3 ascend-910b3 --devices 16 --isl 512 --osl 128 --concurrency 16")
    assert "ascend-910b3 has no fp8" in out and "int8" in out


def test_the_next_command_explains_the_best_plan() -> None:
    result = answer(V3_H200)
    command = next(line for line in result.err.splitlines() if line.startswith("next: mlaplan explain "))
    again = data(command.removeprefix("next: mlaplan "))
    best = data(V3_H200)["plans"][0]
    assert again["strategy"] == best["strategy"]
    assert again["served"]["tok_s_chip"] == pytest.approx(best["served"]["tok_s_chip"])
    assert again["memory"] == pytest.approx(best["memory"])


# ---- pins, objectives, lengths ----


def test_pins_are_kept() -> None:
    line = (
        "recommend deepseek-v3 h200-sxm --devices 8 --isl 1k --osl 256 --concurrency 32 --tp 4 --dp 2 --dcp 2 --mtp 1"
        " --kv-dtype bf16 --ep 8 --block-size 64 --top 20"
    )
    found = data(line)
    assert found["pinned"] == {"tp": 4, "dp": 2, "ep": 8, "dcp": 2, "kv_dtype": "bf16", "block_size": 64, "mtp": 1}
    assert found["plans"]
    for plan in found["plans"]:
        assert all(plan["strategy"][name] == value for name, value in found["pinned"].items())
    assert "pinned     tp 4, dp 2, ep 8, dcp 2" in answer(line).out


def test_lengths_that_are_not_given_are_told() -> None:
    result = answer("recommend llama-3-70b h200-sxm --devices 8 --objective latency --top 1 --format json")
    assert result.code == 0 and "not given and taken: --isl 4096 --osl 1024" in result.err
    assert json.loads(result.out)["plans"][0]["strategy"]["batch"] == 1  # nobody waits for others


def test_cost_may_leave_chips_unused() -> None:
    line = "recommend llama-3-70b h200-sxm --devices 8 --isl 1k --osl 256 --concurrency 8 --objective cost --price 1"
    found = data(line)
    prices = [plan["served"]["usd_per_mtok"]["value"] for plan in found["plans"]]
    assert all(a <= 1.011 * b for a, b in pairwise(prices))
    assert min(plan["strategy"]["devices"] for plan in found["plans"]) < 8
    assert re.search(r"^ +plan +chips +batch ", answer(line).out, re.MULTILINE)


def test_a_pareto_front_trades_users_for_chips() -> None:
    line = "recommend deepseek-v2-lite h100-sxm --devices 2 --isl 1k --osl 256 --objective pareto"
    front = data(line)["front"]
    assert len(front) > 3
    chips, users = [p["tok_s_chip"] for p in front], [p["tok_s_user"] for p in front]
    assert chips == sorted(chips, reverse=True) and users == sorted(users)
    assert "Pareto front" in answer(line).out


def test_a_missed_service_level_names_the_limit_that_would_do() -> None:
    line = "recommend deepseek-v2-lite h100-sxm --devices 1 --isl 1k --osl 256 --concurrency 4 --tpot 100us"
    result = answer(line)
    change = data(line)["nearest_miss"]["change"]
    limit = re.match(r"--tpot (\S+) would admit it", change)
    assert result.code == 1 and limit and data(line)["nearest_miss"]["rule"] == "MLA302"
    assert answer(line.replace("100us", limit[1])).code == 0


def test_one_output_token_has_no_tpot() -> None:
    line = "recommend deepseek-v2-lite h100-sxm --devices 1 --isl 1k --osl 1 --concurrency 4"
    served = data(line)["plans"][0]["served"]
    assert served["tpot_s"] is None and served["tok_s_user"] is None
    assert answer(line).code == 0


def test_your_own_files_are_used_and_shown(run: Run) -> None:
    result = run(
        "recommend", str(FIXTURES / "toy-model.yaml"), str(FIXTURES / "toy-chip.yaml"), "--devices", "2",
        "--isl", "128", "--osl", "64",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "Toy model on 2 x toy-chip" in result.out and str(FIXTURES / "toy-chip.yaml") in result.out


# ---- commands and files ----


@pytest.mark.parametrize(
    ("engine", "program"), [("vllm", "vllm serve deepseek-ai/DeepSeek-V3"), ("sglang", "sglang.launch_server")]
)
def test_emit_prints_a_command_per_node_and_a_benchmark(engine: str, program: str) -> None:
    line = f"{V3_H100} --emit {engine} --tp 8 --pp 2 --mtp 0"
    result, found = answer(line), data(line)
    assert result.code == 0 and found["engine"]["name"] == engine  # the plan is one that the engine can run
    launch = found["launch"]
    assert launch["problem"] is None and len(launch["commands"]) == 2
    assert program in launch["commands"][0] and "HEAD_ADDR" in launch["commands"][1]
    plan = found["plans"][0]["strategy"]
    flags = shlex.split(launch["commands"][0].replace("\\\n", " "), comments=True)
    limit = "--max-num-seqs" if engine == "vllm" else "--max-running-requests"
    assert flags[flags.index(limit) + 1] == str(plan["batch"])
    assert "4096" in launch["benchmark"] and "--max-concurrency 128" in launch["benchmark"]
    assert "Measure it:" in result.out and launch["benchmark"] in result.out
    assert "next: mlaplan explain" in result.err and f"--engine {engine}" in result.err


def test_emit_says_which_part_an_engine_cannot_express() -> None:
    line = f"{V3_H100} --engine generic --emit vllm --tp 8 --kv-layout latent-sharded"
    launch = data(line)["launch"]
    assert launch["commands"] == [] and "kv_layout=latent_sharded" in launch["problem"]
    assert "cannot launch the plan: kv_layout=latent_sharded" in words(line)


def test_a_saved_plan_needs_nothing_else(run: Run, tmp_path: Path) -> None:
    result = run(*shlex.split(V3_SC11), "--set", "memory.bandwidth=x1.5", "--save-plan", "plan.json", "--format", "csv")
    assert result.code == 0 and "plan written to plan.json" in result.err
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["schema"] == "mlaplan.plan/1" and plan["tool_version"]
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    for kind in ("model", "chip"):  # specs as files would have them, the override included
        (tmp_path / f"own-{kind}.yaml").write_text(json.dumps(plan[kind]))
    assert plan["chip"]["memory"]["bandwidth"]["value"] == "819.15 GB/s"
    s, w = plan["strategy"], plan["workload"]
    again = run(
        "explain", "own-model.yaml", "own-chip.yaml", "--tp", str(s["tp"]), "--dp", str(s["dp"]), "--ep", str(s["ep"]),
        "--pp", str(s["pp"]), "--batch", str(s["batch"]), "--mtp", str(s["mtp"]), "--kv-dtype", s["kv_dtype"],
        "--prefill-chunk", str(s["prefill_chunk"]), "--isl", str(w["isl_tokens"]), "--osl", str(w["osl_tokens"]),
        "--concurrency", str(w["concurrency"]), "--format", "json",
    )  # fmt: skip
    for name in ("ttft_s", "tpot_s", "tok_s_chip"):
        assert json.loads(again.out)["served"][name] == pytest.approx(plan["prediction"]["served"][name], rel=1e-12)


def test_no_plan_is_saved_when_there_is_none(run: Run, tmp_path: Path) -> None:
    result = run(*shlex.split(V3_ONE_NODE), "--save-plan", "plan.json")
    assert result.code == 1 and "plan.json is not written: there is no plan" in result.err
    assert not list(tmp_path.iterdir())


# ---- bad usage ----


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("", "Missing option '--devices'"),
        ("--devices 0", "Invalid value for '--devices': 0"),
        ("--devices 16 --tpot 60", "--tpot: '60' has no unit; expected a time such as '60ms'; did you mean '60ms'"),
        ("--devices 16 --tpot 60GB", "--tpot: '60GB' is a size in bytes; expected a time such as '60ms'"),
        ("--devices 16 --ttft 0s", "--ttft: a time above 0"),
        ("--devices 16 --isl 0", "--isl 0: a prompt has at least 1 token"),
        ("--devices 16 --concurrency 8 --rate 2", "--concurrency and --rate both fix the load"),
        ("--devices 16 --tp 3", "--tp 3 does not divide --devices 16"),
        ("--devices 16 --tp 8 --dp 4", "--dp 4 x --tp 8 = 32 does not divide --devices 16"),
        ("--devices 16 --tp 2 --dp 2 --pp 2 --replicas 1", "= 8 chips are not the 16 of --devices"),
        ("--devices 16 --ep 3", "--ep 3 does not divide --devices 16"),
        ("--devices 16 --tp 4 --pp 2 --ep 16", "no structure on 16 chips has all that is pinned: tp 4, pp 2, ep 16"),
        ("--devices 16 --tp 8 --dcp 3", "--dcp 3 does not divide --tp 8"),
        ("--devices 16 --dcp 2 --kv-layout latent-sharded", "--kv-layout latent-sharded goes with --dcp 1"),
        ("--devices 16 --objective speed", "'speed' is not one of 'throughput', 'latency', 'cost', 'pareto'"),
        ("--devices 16 --emit generic", "unknown engine or kind of manifest to emit 'generic'; known are kthena, lws"),
        ("--devices 16 --emit vllm@9", "unknown version '9' of vllm"),
        ("--devices 16 --emit vllm --format csv", "--emit writes commands, which csv has no place for"),
        ("--devices 16 --mtp 1 --mtp-accept 5", "yields at most 2 tokens"),
        ("--devices 16 --save-plan no/plan.json", "no/plan.json: cannot be written: there is no folder no"),
    ],
)
def test_bad_usage_is_one_clear_line(run: Callable[..., Result], flags: str, said: str) -> None:
    result = run("recommend", "deepseek-v3", "h200-sxm", *flags.split())
    assert (result.code, result.out) == (2, "")
    assert said in result.err and len(result.err.splitlines()) == 1


def test_an_engine_that_does_not_run_on_the_chip_is_told() -> None:
    line = "recommend deepseek-v3 sc11 --devices 8 --isl 128 --osl 64 --emit vllm"
    found = data(line)
    assert answer(line).code == 1 and set(found["rejected"]) == {"MLA120"}
    assert found["nearest_miss"]["rule"] == "MLA120"
    assert "does not run on sophgo chips" in words(line)


def test_an_illegal_pin_names_the_rule_that_it_breaks() -> None:
    found = data("recommend deepseek-v3 h200-sxm --devices 24 --isl 128 --osl 64 --tp 24")
    assert found["nearest_miss"]["detail"] == "128 attention heads do not divide by TP 24"


# ---- shared prefixes ----

SHARED = "recommend llama-3-70b ascend-910b3 --devices 8 --isl 4096 --osl 512 --top 1 --prefix 3000"


def test_groups_that_share_a_prefix_leave_room_for_more_sequences() -> None:
    alone, shared = data(SHARED)["plans"][0], data(f"{SHARED} --prefix-groups 20")["plans"][0]
    assert shared["memory"]["kv_shared_tokens"] == 20 * 2944 and alone["memory"]["kv_shared_tokens"] == 0
    assert shared["strategy"]["batch"] > 2 * alone["strategy"]["batch"]
    assert shared["served"]["tok_s_chip"]["value"] > alone["served"]["tok_s_chip"]["value"]
    assert "2,944 of 4,096 prompt tokens (72 %) are not computed" in words(f"{SHARED} --prefix-groups 20")
    assert "in blocks of 128" in answer(f"{SHARED} --prefix-groups 20").err


def test_a_prefix_that_no_cache_holds_is_no_plan() -> None:
    line = "recommend llama-3-70b ascend-910b3 --devices 4 --isl 8000 --osl 100 --prefix 7000 --prefix-groups 9000"
    found = data(line)
    assert answer(line).code == 1 and set(found["rejected"]) >= {"MLA202"}


def test_the_command_that_explains_a_plan_repeats_its_prefixes() -> None:
    line = f"{SHARED} --prefix-groups 20 --no-prefix-routing"
    following = next(x for x in answer(line).err.splitlines() if x.startswith("next: "))
    assert following.endswith("--prefix 2944 --prefix-groups 20 --no-prefix-routing")
    explained = data(following.removeprefix("next: mlaplan "))
    assert explained["memory"]["kv_shared_tokens"] == 20 * 2944
