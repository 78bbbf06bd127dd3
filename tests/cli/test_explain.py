"""`mlaplan explain`: one strategy, priced and judged; published arithmetic that its figures must meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Result, Run

GIB = 2.0**30
STEP = ("--batch", "1", "--context", "4096")


def explained(run: Run, *arguments: str) -> dict[str, Any]:
    result = run("explain", *arguments, "--format", "json")
    assert result.code == 0, result.err
    data: dict[str, Any] = json.loads(result.out)
    return data


# ---- the contract ----


def test_the_json_has_every_key_of_the_contract(run: Run) -> None:
    data = explained(
        run, "deepseek-v3", "h200-sxm", "--tp", "8", "--dp", "2", "--isl", "4k", "--osl", "1k", "--concurrency", "64"
    )
    assert data["schema"] == "mlaplan.explain/1"
    assert data["fits"] is True and data["reasons"] == []
    assert data["strategy"]["ep"] == 16 and data["strategy"]["devices"] == 16
    assert {"weight_bytes", "kv_bytes_per_token", "kv_tokens", "total_bytes", "capacity_bytes"} <= set(data["memory"])
    for name in ("decode", "prefill"):
        step = data[name]
        assert set(step["step_s"]) == {"value", "low", "high"}
        assert step["step_s"]["low"] < step["step_s"]["value"] < step["step_s"]["high"]
        assert 0 < step["comm_share"] < 1
        keys = {"name", "time_s", "flops", "bytes", "link_bytes", "bound"}
        assert all(set(op) == keys for op in step["operators"])
        assert sum(op["time_s"] for op in step["operators"]) == pytest.approx(step["step_s"]["value"], rel=1e-9)
    for name in ("ttft_s", "tpot_s", "tok_s_chip", "tok_s_user"):
        band = data["served"][name]
        assert 0 < band["low"] <= band["value"] <= band["high"]


def test_one_decode_step_leaves_out_the_rest(run: Run) -> None:
    data = explained(run, "deepseek-v3", "h200-sxm", "--tp", "8", "--batch", "32", "--context", "4608")
    assert data["prefill"] is None and data["served"] is None
    assert data["asked"] == {"decode_context_tokens": 4608, "prefill_step_tokens": None, "served": False}
    # an attention core reads each cached row once: 61 layers, 32 sequences, 1152 B a token, and some of q and o
    core = next(op for op in data["decode"]["operators"] if op["name"] == "attention_core")
    cache = 61 * 32 * 4608 * 1152
    assert cache < core["bytes"] < 1.1 * cache


def test_a_prefill_step_is_made_of_prompts(run: Run) -> None:
    flags = ("deepseek-v3", "h200-sxm", "--tp", "8", "--prefill", "8k")
    whole, short = explained(run, *flags), explained(run, *flags, "--isl", "1k")
    assert whole["decode"] is None and whole["served"] is None
    core = [next(op for op in d["prefill"]["operators"] if op["name"] == "attention_core") for d in (whole, short)]
    # eight prompts of 1024 have an eighth of the causal pairs of one of 8192
    assert core[0]["flops"] == pytest.approx(8 * core[1]["flops"], rel=1e-3)


def test_all_three_can_be_asked_at_once(run: Run) -> None:
    data = explained(
        run, "deepseek-v3", "h200-sxm", "--tp", "8", "--isl", "4k", "--osl", "1k", "--concurrency", "8",
        "--context", "100", "--prefill", "512",
    )  # fmt: skip
    alone = explained(run, "deepseek-v3", "h200-sxm", "--tp", "8", "--batch", "8", "--context", "100")
    assert data["served"] is not None and data["strategy"]["batch"] == 8
    assert data["decode"]["step_s"]["value"] == pytest.approx(alone["decode"]["step_s"]["value"], rel=1e-6)
    assert data["prefill"]["step_s"]["value"] < 0.2


# ---- defaults ----


def test_experts_lie_on_all_ranks_unless_told_otherwise(run: Run) -> None:
    flags = ("h200-sxm", "--tp", "4", "--dp", "2", *STEP)
    assert explained(run, "deepseek-v3", *flags)["strategy"]["ep"] == 8
    split = explained(run, "deepseek-v3", *flags, "--ep", "1")["strategy"]
    assert (split["ep"], split["moe_tp"]) == (1, 8)
    assert explained(run, "llama-3-70b", *flags)["strategy"]["ep"] == 1


def test_decode_context_parallelism_shards_the_sequence(run: Run) -> None:
    flags = ("deepseek-v3", "h200-sxm", "--tp", "8", *STEP)
    one = explained(run, *flags, "--dcp", "4")
    assert one["strategy"]["kv_layout"] == "sequence_sharded"
    assert one["memory"]["kv_bytes_per_token"] == 70272 / 4
    result = run("explain", *flags, "--kv-layout", "sequence_sharded", "--format", "json")
    assert json.loads(result.out)["strategy"]["dcp"] == 8 and "--dcp 8" in result.err


def test_a_chip_without_the_checkpoints_dtype_is_told_aloud(run: Run) -> None:
    result = run("explain", "deepseek-v3", "ascend-910a", "--tp", "8", *STEP, "--format", "json")
    strategy = json.loads(result.out)["strategy"]
    assert strategy["kv_dtype"] == "fp16" and strategy["weight_dtype"] != "fp8"
    assert "has no fp8" in result.err and "has no bf16" in result.err


def test_lengths_and_drafts_beyond_the_models_own_are_told(run: Run) -> None:
    long = run("explain", "deepseek-v3", "h200-sxm", "--tp", "8", "--batch", "1", "--context", "256k")
    assert long.code == 0 and "262,144 tokens are longer than the 163,840 positions of deepseek-v3" in long.err
    deep = run("explain", "deepseek-v3", "h200-sxm", "--tp", "8", *STEP, "--mtp", "7")
    assert deep.code == 0 and "known with up to 3 drafts" in deep.err


def test_the_engine_decides_block_and_fraction(run: Run) -> None:
    flags = ("deepseek-v3", "b200-sxm", "--tp", "8", *STEP)
    generic, vllm = explained(run, *flags), explained(run, *flags, "--engine", "vllm@0.26.0")
    assert vllm["engine"] == {"name": "vllm", "version": "0.26.0"} and generic["engine"]["version"] is None
    own = explained(run, *flags, "--memory-fraction", "50 %", "--reserve", "1 GiB", "--block-size", "128")
    assert own["memory"]["usable_bytes"] == pytest.approx(own["memory"]["capacity_bytes"] / 2)
    assert own["memory"]["reserve_bytes"] == GIB and own["strategy"]["block_size"] == 128


def test_the_load_gives_the_batch(run: Run) -> None:
    flags = ("deepseek-v3", "h200-sxm", "--dp", "8", "--isl", "4k", "--osl", "1k")
    assert explained(run, *flags, "--concurrency", "100")["strategy"]["batch"] == 13
    full = run("explain", *flags, "--concurrency", "100000", "--format", "json")
    data = json.loads(full.out)
    assert data["fits"] and data["strategy"]["batch"] < 12500 and "the rest waits" in full.err
    assert data["served"]["queue_s"] > 10
    slow, fast = (explained(run, *flags, "--rate", rate)["strategy"]["batch"] for rate in ("0.5", "4"))
    assert 1 <= slow < fast


def test_prefix_is_tokens_or_a_share(run: Run) -> None:
    flags = ("deepseek-v3", "h200-sxm", "--tp", "8", "--isl", "8k", "--osl", "1k", "--concurrency", "4")
    none, tokens, share = (
        explained(run, *flags, *more)["served"]["ttft_s"]["value"]
        for more in ((), ("--prefix", "4k"), ("--prefix", "50%"))
    )
    assert tokens == share < none


def test_more_than_the_user_asked_for_is_overridden(run: Run) -> None:
    flags = ("deepseek-v3", "h200-sxm", "--tp", "8", "--batch", "8", "--context", "4k")
    base = explained(run, *flags)["decode"]["step_s"]["value"]
    assert explained(run, *flags, "--set", "memory.bandwidth=x0.5")["decode"]["step_s"]["value"] > 1.3 * base
    assert explained(run, *flags, "--imbalance", "3")["decode"]["step_s"]["value"] > base
    served = ("deepseek-v3", "h200-sxm", "--tp", "8", "--isl", "4k", "--osl", "1k", "--batch", "8", "--mtp", "1")
    assert explained(run, *served, "--mtp-accept", "1.5")["served"]["tokens_per_step"]["value"] == 1.5
    cheap, dear = (explained(run, *served, "--price", p)["served"]["usd_per_mtok"]["value"] for p in ("1", "2 USD/h"))
    assert dear == pytest.approx(2 * cheap)


# ---- published arithmetic ----


def test_mla_cache_sizes(run: Run) -> None:
    def per_token(model: str, *more: str) -> float:
        return float(explained(run, model, "h200-sxm", "--tp", "8", *STEP, *more)["memory"]["kv_bytes_per_token"])

    assert per_token("deepseek-v3") == 61 * 1152 == 70272
    assert per_token("deepseek-v3", "--kv-dtype", "fp8") == 35136
    assert per_token("deepseek-v3.2", "--kv-dtype", "fp8_ds_mla") == 48068
    assert per_token("deepseek-v3", "--mtp", "1") == 71424
    # under TP8 a replicated latent is 2.25 times the share of a cache of 8 KV heads
    assert per_token("deepseek-v3") / 61 / (per_token("llama-3-70b") / 80) == 2.25


def test_gqa_cache_sizes(run: Run) -> None:
    one = explained(run, "llama-3-70b", "h200-sxm", *STEP)["memory"]
    split = explained(run, "llama-3-70b", "ascend-910b3", "--tp", "4", "--pp", "2", *STEP)["memory"]
    assert one["kv_bytes_per_token"] == 327680
    assert split["kv_bytes_per_token"] == 40960
    assert split["kv_bytes_per_token_fullest"] >= 40960


def test_deepseek_r1_on_a_node_of_h200_holds_some_680_thousand_tokens(run: Run) -> None:
    flags = ("deepseek-r1", "h200-sxm", "--tp", "8", *STEP, "--memory-fraction", "0.92")
    memory = explained(run, *flags)["memory"]
    assert memory["kv_tokens"] == pytest.approx(680e3, rel=0.08)
    overhead = memory["total_bytes"] - memory["weight_bytes"] - memory["kv_bytes"]
    assert 2 * GIB < overhead < 9 * GIB
    sharded = explained(run, *flags, "--dcp", "8")["memory"]
    assert sharded["kv_tokens"] == pytest.approx(8 * memory["kv_tokens"], rel=1e-4)


def test_deepseek_v3_needs_sixteen_h100_or_eight_h200(run: Run) -> None:
    node = ("--tp", "8", *STEP, "--memory-fraction", "0.92")
    result = run("explain", "deepseek-v3", "h100-sxm", *node, "--format", "json")
    data = json.loads(result.out)
    assert result.code == 0 and data["fits"] is False and data["rules"] == ["MLA201"]
    assert data["reasons"][0].startswith("MLA201 weights-do-not-fit: weights 8")
    assert "16 chips would hold it in the same dtypes" in data["notes"]
    short = data["memory"]["weight_bytes"] - data["memory"]["usable_bytes"]
    assert short == pytest.approx(671.03e9 / 8 - 0.92 * 85.52e9, abs=1.8e9) and short > 0
    assert data["decode"]["step_s"]["value"] > 0  # priced all the same
    assert explained(run, "deepseek-v3", "h100-sxm", "--pp", "2", *node)["fits"] is True
    assert explained(run, "deepseek-v3", "h200-sxm", *node)["fits"] is True


def test_illegal_degrees_are_priced_and_told(run: Run) -> None:
    data = explained(run, "deepseek-v3", "h200-sxm", "--tp", "3", *STEP)
    assert any("128 attention heads do not divide by TP 3" in reason for reason in data["reasons"])
    assert data["decode"]["step_s"]["value"] > 0
    assert "MLA102" in explained(run, "deepseek-v3", "h200-sxm", "--tp", "8", "--dcp", "3", *STEP)["rules"]
    assert "MLA104" in explained(run, "deepseek-v3", "h200-sxm", "--tp", "8", "--ep", "3", *STEP)["rules"]


# ---- bad usage ----


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("", "nothing is asked: give --batch and --context"),
        ("--batch 4", "--batch alone: nothing is asked"),
        ("--isl 4k", "--isl alone: nothing is asked"),
        ("--context 4k", "--context needs --batch"),
        ("--osl 4k", "--osl needs --isl"),
        ("--isl 4k --osl 1k", "--isl and --osl need a load"),
        ("--concurrency 4 --prefill 64", "--concurrency and --rate go with --isl and --osl"),
        ("--tp 0 --prefill 64", "Invalid value for '--tp': 0"),
        ("--prefill 0", "--prefill: at least 1 token"),
        ("--prefill 4.5", "--prefill: 4.5 is not a whole number of tokens"),
        ("--prefill many", "--prefill: 'many' is not a number of tokens"),
        ("--pp 99 --prefill 64", "--pp 99: deepseek-v3 has 61 layers"),
        ("--ep 2 --prefill 64", "--ep 2: the experts lie on the tp x dp = 1 chips"),
        ("--tp 2 --dcp 4 --prefill 64", "--dcp 4 divides the ranks of --tp 2"),
        ("--tp 8 --cp 3 --prefill 64", "--cp 3 divides the ranks of --tp 8"),
        ("--tp 8 --dcp 2 --kv-layout replicated --prefill 64", "--kv-layout replicated goes with --dcp 1"),
        ("--tp 8 --dcp 1 --kv-layout sequence-sharded --prefill 64", "goes with --dcp above 1"),
        ("--prefill 64 --kv-layout sharded", "'sharded' is not one of replicated, latent-sharded, sequence-sharded"),
        ("--prefill 64 --engine vlm", "unknown engine 'vlm'; did you mean 'vllm'?"),
        ("--prefill 64 --engine vllm@1.0", "unknown version '1.0' of vllm"),
        ("--prefill 64 --price 3GB", "--price: '3GB' is a size in bytes"),
        ("--prefill 64 --reserve 6", "--reserve: '6' has no unit; expected a size in bytes such as '6 GiB'"),
        ("--prefill 64 --memory-fraction 92", "--memory-fraction: above 0 and at most 1"),
        ("--prefill 64 --imbalance nan", "--imbalance: nan is not a finite number"),
        ("--prefill 64 --mtp-accept 2", "--mtp-accept 2: --mtp 0 drafts nothing"),
        ("--prefill 64 --mtp 1 --mtp-accept 3", "yields at most 2 tokens"),
        ("--prefill 64 --set memory.bandwith=x2", "did you mean 'bandwidth'?"),
        ("--isl 4k --osl 1k --rate 5s", "--rate: '5s' is a time; expected a rate per second"),
        ("--isl 4k --osl 1k --batch 1 --prefix 4k", "--prefix 4096: from 0 to 4095 tokens"),
        ("--isl 4k --osl 1k --batch 1 --prefix 150%", "--prefix: 150% is more than the whole prompt"),
        ("--prefill 64 --prefill-chunk 0", "--prefill-chunk: at least 1 token"),
        ("--prefill 64 -o .", ".: is a folder"),
        ("--prefill 64 -o no/such/file", "there is no folder no/such"),
    ],
)
def test_bad_usage_is_one_clear_line(run: Run, flags: str, said: str) -> None:
    result = run("explain", "deepseek-v3", "h200-sxm", *flags.split())
    assert (result.code, result.out) == (2, "")
    assert said in result.err and len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama-3-70b", "h200-sxm", "--mtp", "1", *STEP), "--mtp 1: llama-3-70b has no MTP layer"),
        (("llama-3-70b", "h200-sxm", "--weight-dtype", "fp8", *STEP), "quantising it is not modelled"),
        (("llama-3-70b", "h200-sxm", "--kv-layout", "latent-sharded", *STEP), "caches no latent"),
        (("llama-3-70b", "h200-sxm", "--kv-dtype", "fp8_ds_mla", *STEP), "caches no latent"),
        (("deepseek-v33", "h200-sxm", *STEP), "unknown model 'deepseek-v33'; did you mean 'deepseek-v3"),
        (("deepseek-v3", "h200-smx", *STEP), "unknown chip 'h200-smx'; did you mean 'h200-sxm'?"),
    ],
)
def test_what_a_model_or_chip_lacks_is_told(run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run("explain", *arguments)
    assert (result.code, result.out) == (2, "") and said in result.err


# ---- texts ----


def told(run: Run, *more: str) -> Result:
    result = run("explain", "deepseek-v3", "h200-sxm", "--tp", "8", "--dp", "2", *more)
    assert result.code == 0, result.err
    return result


def test_the_text_names_files_memory_and_operators_in_80_columns(run: Run) -> None:
    result = told(run, "--isl", "4k", "--osl", "1k", "--concurrency", "64", "--mtp", "1")
    lines = result.out.splitlines()
    assert lines[0] == "DeepSeek-V3 on h200-sxm: TP8 DP2 EP16, 16 chips (2 nodes of 8)"
    assert all(len(line) <= 80 or "/" in line for line in lines)  # a path is never cut
    assert "\x1b" not in result.out
    assert any(line.startswith("model ") and line.endswith("models/deepseek-v3.yaml") for line in lines)
    weights = next(line.split() for line in lines if line.startswith("weights "))
    assert float(weights[1]) * 1e9 == pytest.approx(float(weights[2]) * GIB, rel=1e-3)
    times = [line.split() for line in lines if line.startswith(("routed_experts ", "attention_core "))]
    assert len(times) == 4 and all(row[2] in ("us", "ms") for row in times)
    assert "Served: 4,096 tokens in, 1,024 out, 64 in flight" in result.out
    assert result.out.endswith("\n") and not any(line != line.rstrip() for line in lines)


def test_operators_stand_by_falling_time(run: Run) -> None:
    out = told(run, "--batch", "32", "--context", "4608").out
    table = out[out.index("operator ") :].splitlines()[1:]
    shares = [float(line.split(" %")[0].split()[-1]) for line in table if " smaller" not in line]
    assert shares == sorted(shares, reverse=True) and shares[0] > 30


def test_csv_and_markdown_hold_every_operator(run: Run) -> None:
    flags = ("--batch", "32", "--context", "4608")
    rows = told(run, *flags, "--format", "csv").out.splitlines()
    assert rows[0] == "phase,name,time_s,flops,bytes,link_bytes,bound,share"
    assert sum(float(row.split(",")[-1]) for row in rows[1:]) == pytest.approx(1.0)
    md = told(run, *flags, "--format", "md").out
    assert md.startswith("# DeepSeek-V3 on h200-sxm") and "## Memory per chip" in md
    assert md.count("| routed_experts |") == 1
    assert len([line for line in md.splitlines() if line.startswith("| ")]) > len(rows)


def test_a_result_goes_to_a_file_as_a_whole(run: Run, tmp_path: Path) -> None:
    result = told(run, *STEP, "--format", "json", "-o", "out.json")
    assert result.out == "" and "written to out.json" in result.err
    assert json.loads((tmp_path / "out.json").read_text())["schema"] == "mlaplan.explain/1"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_version_keeps_the_fits_of_its_engine(run: Run) -> None:
    flags = ("deepseek-v3", "h200-sxm", "--tp", "8", *STEP, "--engine")
    newest, named = explained(run, *flags, "vllm"), explained(run, *flags, "vllm@0.33.0")
    assert newest["decode"]["step_s"] == named["decode"]["step_s"]
