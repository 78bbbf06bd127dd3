"""Decode context parallelism in `explain` and `recommend`: what is sent, how it is told, what an engine refuses."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run

EIGHT = ("explain", "deepseek-v3", "b200-sxm", "--tp", "8", "--dcp", "8", "--ep", "1")
STEP = (*EIGHT, "--batch", "16", "--context", "64k")
BODY = 16 * 128  # query tokens x heads of the group
GROUP = 7 / 8 * 61  # what each of eight ranks sends, over all layers


def parts(run: Run, *more: str) -> tuple[dict[str, float], dict[str, object]]:
    result = run(*STEP, *more, "--format", "json")
    assert result.code == 0, result.err
    data = json.loads(result.out)
    sent = {op["name"]: op["link_bytes"] for op in data["decode"]["operators"] if op["name"].startswith("dcp_")}
    return sent, data["strategy"]["context_parallel"]


@pytest.mark.parametrize(("engine", "partial"), [("vllm", 2), ("sglang", 4), ("generic", 4)])
def test_an_engine_sends_what_its_kernels_write(run: Run, engine: str, partial: int) -> None:
    sent, told = parts(run, "--engine", engine)
    assert sent == pytest.approx(
        {
            "dcp_query_gather": GROUP * BODY * 576 * 2,
            "dcp_lse_gather": GROUP * BODY * 8 * 4,
            "dcp_output_merge": GROUP * BODY * 512 * partial,
        }
    )
    assert told["merge"] == "ag_rs" and told["partial_bytes"] == partial and told["interleave_tokens"] == 1
    assert list(told["collectives_s"]) == ["ag_rs", "a2a"]  # type: ignore[call-overload]


@pytest.mark.parametrize(("engine", "partial"), [("vllm", 2), ("sglang", 2), ("generic", 4)])
def test_an_all_to_all_takes_both_in_one_message(run: Run, engine: str, partial: int) -> None:
    sent, told = parts(run, "--engine", engine, "--dcp-merge", "a2a")
    assert sent["dcp_output_exchange"] == pytest.approx(GROUP * BODY * (512 * partial + 4))
    assert set(sent) == {"dcp_query_gather", "dcp_output_exchange"} and told["merge"] == "a2a"


def test_the_text_says_how_and_what_the_other_way_takes(run: Run) -> None:
    shown = " ".join(run(*STEP, "--engine", "vllm").out.split())
    assert "single tokens to each rank in turn; queries gathered, fp32 log-sum-exps gathered, 16-bit" in shown
    assert "a step, by --dcp-merge a2a" in shown


def test_runs_of_tokens_leave_one_rank_with_more(run: Run) -> None:
    """80 tokens over eight ranks: ten each, or a run of 16 on five of them."""
    at = ("explain", "deepseek-v3", "h200-sxm", "--tp", "8", "--dcp", "8", "--ep", "1", "--batch", "1")
    core = {}
    for runs in ("1", "16"):
        out = run(*at, "--context", "80", "--dcp-interleave", runs, "--format", "json").out
        core[runs] = next(o["bytes"] for o in json.loads(out)["decode"]["operators"] if o["name"] == "attention_core")
    assert core["16"] - core["1"] == pytest.approx(61 * 6 * 1152)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--engine", "vllm@0.15.1", "--dcp-merge", "a2a"), "--dcp-merge a2a: vLLM 0.15.1 merges by ag_rs"),
        (("--engine", "vllm@0.9.2", "--dcp-merge", "ag_rs"), "vLLM 0.9.2 has no decode context parallelism"),
        (("--engine", "sglang", "--dcp-interleave", "16"), "SGLang 0.5.23 deals out single tokens; expected 1"),
        (("--dcp", "1", "--dcp-merge", "a2a"), "--dcp-merge a2a goes with --dcp above 1"),
        (("--dcp", "1", "--dcp-interleave", "4"), "--dcp-interleave 4 goes with --dcp above 1"),
        (("--dcp-merge", "ring"), "'ring' is not one of 'ag_rs', 'a2a'"),
        (("--dcp-interleave", "0"), "0 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_one_line(run: Run, more: tuple[str, ...], says: str) -> None:
    result = run(*STEP, *more)
    assert result.code == 2 and result.out == "" and says in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--dcp-interleave", "48", "--block-size", "64"), "blocks of 64 and runs of 48 tokens"),
        (("--dcp-interleave", "16", "--mtp", "1"), "deals out single tokens then, no runs of 16"),
    ],
)
def test_what_the_engine_refuses_is_told_and_priced(run: Run, more: tuple[str, ...], says: str) -> None:
    result = run(*STEP, "--engine", "vllm", *more)
    assert result.code == 0 and says in " ".join(result.out.split())


def test_the_command_says_the_merge_where_the_engine_has_the_flag(run: Run) -> None:
    asked = ("recommend", "deepseek-v3", "h200-sxm", "--devices", "8", "--isl", "4k", "--osl", "512", "--concurrency")
    asked = (*asked, "16", "--tp", "8", "--dcp", "8", "--mtp", "0", "--kv-dtype", "fp8", "--top", "1")
    new = run(*asked, "--emit", "vllm", "--dcp-merge", "a2a", "--dcp-interleave", "64").out
    assert "--dcp-comm-backend a2a" in new and "--cp-kv-cache-interleave-size 64" in new
    assert "runs of 64 tokens to each rank in turn" in " ".join(new.split())
    default = run(*asked, "--emit", "vllm").out
    assert "--dcp-comm-backend ag_rs" in default and "interleave" not in default
    old = run(*(a if a != "fp8" else "bf16" for a in asked), "--emit", "vllm@0.11.0").out
    assert "--decode-context-parallel-size 8" in old and "--dcp-comm-backend" not in old
