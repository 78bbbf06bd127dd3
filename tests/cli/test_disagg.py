"""`recommend --disagg`: the verdict, the plan file of two pools, every format, what is refused."""

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
from tests.cli.conftest import Run

LLAMA = "recommend llama-3-70b ascend-910b3 --devices 8 --isl 4096 --osl 512 --ttft 3s --tpot 60ms"


@cache
def _kept(line: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        main(shlex.split(line))
    return out.getvalue()


def data(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_kept(f"{line} --format json"))
    return found


def test_auto_says_which_wins_and_from_where_on() -> None:
    found = data(f"{LLAMA} --disagg auto")
    apart, together = found["disagg"], found["plans"][0]["served"]
    more = apart["split"]["tok_s_chip"]["value"] > together["tok_s_chip"]["value"]
    assert apart["wins"] == ("apart" if more else "together")
    assert len(apart["curve"]) >= 5
    shown = next(p for p in apart["curve"] if p["isl_tokens"] == 4096)
    assert shown["apart_tok_s_chip"] == pytest.approx(apart["split"]["tok_s_chip"]["value"])
    assert shown["together_tok_s_chip"] == pytest.approx(together["tok_s_chip"]["value"], rel=0.02)


def test_ttft_is_the_sum_of_its_parts() -> None:
    s = data(f"{LLAMA} --disagg on")["disagg"]["split"]
    front = 8e-3 + 3e-6 * 4096
    assert s["ttft_s"]["value"] == pytest.approx(s["wait_s"] + s["prefill_s"] + s["transfer"]["exposed_s"] + front)


def test_sending_after_the_prefill_shows_all_of_it() -> None:
    later = data(f"{LLAMA} --disagg on --kv-overlap none")["disagg"]["split"]["transfer"]
    assert later["exposed_s"] == later["time_s"] and later["sends"] == "after"


def test_a_slow_link_makes_the_split_worse() -> None:
    fast, slow = (data(f"{LLAMA} --disagg on {x}")["disagg"]["split"] for x in ("", "--kv-link 200MB/s"))
    assert slow["tok_s_chip"]["value"] < fast["tok_s_chip"]["value"]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_commands_of_both_pools_and_the_router(run: Run, engine: str, tmp_path: Path) -> None:
    line = "recommend llama-3-70b h100-sxm --devices 16 --isl 4096 --osl 256 --disagg on"
    result = run(*shlex.split(f"{line} --emit {engine} --format json"))
    found = json.loads(result.out)
    launch, pools = found["launch"], found["disagg"]["split"]["pools"]
    assert result.code == 0 and launch["problem"] is None
    prefill, decode, router = launch["commands"]
    assert ("kv_producer" in prefill and "kv_consumer" in decode) or "--disaggregation-mode prefill" in prefill
    assert f"{pools['prefill']['instances']} server" in prefill.splitlines()[0]
    last = pools["prefill"]["instances"]
    assert f"$PREFILL_{last}" in router and f"$PREFILL_{last + 1}" not in router and "$DECODE_1" in router
    assert f"--port {8192}" in launch["benchmark"]
    (tmp_path / "pools.sh").write_text("\n".join([prefill, decode, router]))
    checked = run("check", "pools.sh", "--chip", "h100-sxm", "--strict")
    assert checked.code == 0 and "error" not in checked.out, checked.out


@pytest.mark.parametrize(("kind", "files"), [("kthena", 3), ("lws", 4)])
def test_manifests_of_two_pools_are_written(run: Run, kind: str, files: int, tmp_path: Path) -> None:
    result = run(*shlex.split(f"{LLAMA} --disagg on --emit {kind} -o k8s --save-plan plan.json"))
    assert result.code == 0, result.err
    assert len(list((tmp_path / "k8s").iterdir())) == files and "kubectl apply" in result.out
    pools = json.loads((tmp_path / "plan.json").read_text())["pools"]
    serving = next((tmp_path / "k8s").glob("*modelserving.yaml" if kind == "kthena" else "*prefill*.yaml")).read_text()
    assert f"prefill: {pools['prefill']['instances']} cop" in serving and "MooncakeConnectorV1" in serving
    checked = run("check", "k8s", "plan.json")
    assert checked.code == 0 and "0 errors, 0 warnings" in checked.out + checked.err and "info" not in checked.out


def test_together_is_emitted_where_it_wins(run: Run, tmp_path: Path) -> None:
    line = "recommend llama-3-70b ascend-910b3 --devices 8 --isl 512 --osl 2048 --disagg auto --emit lws -o k8s"
    result = run(*shlex.split(line))
    assert result.code == 0 and (tmp_path / "k8s" / "llama-3-70b-leaderworkerset.yaml").exists()


def test_arrivals_are_told(run: Run) -> None:
    even, random = (data(f"{LLAMA} --disagg on {x}")["disagg"]["split"] for x in ("", "--rate 0.5"))
    assert (even["arrivals"], random["arrivals"]) == ("even", "poisson")
    assert even["poisson"]["share"] == 0.8 and random["poisson"]["share"] == 1.0
    assert random["poisson"]["ttft_s"] == pytest.approx(random["ttft_s"]["value"])
    assert "taken as evenly spaced" in " ".join(run(*shlex.split(f"{LLAMA} --disagg on")).out.split())


def test_verbs_that_read_one_pool_name_what_reads_two(run: Run) -> None:
    assert run(*shlex.split(f"{LLAMA} --disagg on --save-plan plan.json")).code == 0
    for words, said in (
        ("explain plan.json", "mlaplan explain llama-3-70b ascend-910b3 --tp 4"),
        ("recommend plan.json h200-sxm --devices 8", "is a saved plan, expected MODEL CHIP"),
        ("compare plan.json plan.json", "mlaplan simulate runs the plan"),
    ):
        result = run(*words.split())
        assert result.code == 2 and said in result.err and len(result.err.strip().splitlines()) == 1
    explain = run(*shlex.split("explain plan.json")).err
    commands = explain.partition("priced by: ")[2].strip().split(" and mlaplan ")
    for command in commands:
        assert run(*shlex.split(command.removeprefix("mlaplan "))).code == 0


def test_a_plan_of_two_pools_that_was_edited_is_seen(run: Run, tmp_path: Path) -> None:
    assert run(*shlex.split(f"{LLAMA} --disagg on --save-plan plan.json")).code == 0
    good = (tmp_path / "plan.json").read_text()

    def edited(change: Any) -> str:
        plan = json.loads(good)
        change(plan)
        (tmp_path / "edited.json").write_text(json.dumps(plan))
        result = run("check", "edited.json")
        return result.out if result.code == 1 else ""

    def halved(plan: dict[str, Any]) -> None:
        plan["pools"]["decode"]["requests_per_s_of_one"] /= 2

    def wider(plan: dict[str, Any]) -> None:
        for strategy in (plan["pools"]["prefill"]["strategy"],):
            strategy["tp"], strategy["pp"] = 2, 2

    assert "MLA801" in edited(halved)
    assert "wants the TP degree that prefills to be a multiple of the other" in edited(wider)
    assert "the pools have 8 devices, not 9" in edited(lambda plan: plan.update(devices=9))
    assert "instances of the decode pool" in edited(lambda plan: plan["pools"]["decode"].update(instances=3))
    assert "unknown connector" in edited(lambda plan: plan["transfer"].update(connector="nixl"))


def test_the_simulator_sends_as_planned(run: Run) -> None:
    """The plan's own link and overlap: what shows of a prompt's cache is what the plan says."""
    from mlaplan.validation.measured import plan_data, planned_transfer

    for extra in ("", "--kv-overlap layer", "--engine generic"):
        assert run(*shlex.split(f"{LLAMA} --disagg on {extra} --save-plan plan.json")).code == 0
        plan = plan_data("plan.json")
        sent = planned_transfer("plan.json", plan, 4096)
        assert sent(4096) == pytest.approx(plan["transfer"]["exposed_s"], rel=1e-6)
        assert sent(2048) <= 1.01 * sent(4096)


def test_two_kinds_of_chips(run: Run, tmp_path: Path) -> None:
    line = "recommend llama-3-70b h200-sxm --devices 8 --isl 4096 --osl 256 --disagg on --prefill-chip h100-sxm"
    result = run(*shlex.split(f"{line} --save-plan plan.json --format json"))
    found = json.loads(result.out)["disagg"]["split"]["pools"]
    assert (found["prefill"]["chip"], found["decode"]["chip"]) == ("h100-sxm", "h200-sxm")
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["prefill_chip"]["name"] == "h100-sxm" and plan["chip"]["name"] == "h200-sxm"


def test_a_plan_of_two_pools_is_read_by_every_verb(run: Run, tmp_path: Path) -> None:
    assert run(*shlex.split(f"{LLAMA} --disagg on --save-plan plan.json")).code == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["schema"] == "mlaplan.plan/1"
    assert plan["devices"] == plan["pools"]["prefill"]["devices"] + plan["pools"]["decode"]["devices"]
    assert plan["strategy"]["tp"] == plan["pools"]["decode"]["strategy"]["tp"]
    assert run("check", "plan.json").code == 0


def test_a_plan_of_two_pools_is_simulated_as_two(run: Run) -> None:
    line = LLAMA.replace("--devices 8", "--devices 16 --tp 8")
    assert run(*shlex.split(f"{line} --disagg on --save-plan plan.json")).code == 0
    found = run(*shlex.split("simulate plan.json --rate 0.3 --requests 40"))
    assert found.code == 0, found.err
    assert "for outputs" in found.out and "for prompts" in found.out


@pytest.mark.parametrize(("how", "mode"), [("table", "on"), ("md", "auto"), ("csv", "auto")])
def test_every_format(run: Run, how: str, mode: str) -> None:
    result = run(*shlex.split(f"{LLAMA} --disagg {mode} --format {how}"))
    assert result.code == 0
    if how == "csv":
        assert [row.split(",")[0] for row in result.out.splitlines()] == ["role", "together", "prefill", "decode"]
    if how == "table":
        assert max(map(len, result.out.splitlines())) <= 80 and "P:D" in result.out


def test_nothing_serves_apart(run: Run) -> None:
    result = run(*shlex.split("recommend llama-3-70b ascend-910b3 --devices 2 --isl 4096 --osl 512 --disagg on"))
    assert result.code == 1 and "APART: no two pools" in result.out


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("--kv-link 10GB/s", "--kv-link goes with --disagg on or auto"),
        ("--disagg on --kv-connector nixl", "unknown connector of vllm_ascend@0.23.0 'nixl'"),
        ("--kv-connector mooncake", "--kv-connector goes with --disagg on or auto"),
        ("--disagg on --engine generic --kv-connector nixl", "--kv-connector goes with --engine or --emit"),
        ("--disagg on --kv-connector mooncake --kv-overlap layer", "sends after the prompt is computed"),
        (
            "--disagg on --pp 2",
            "--pp 2: the MooncakeConnectorV1 of vLLM-Ascend 0.23.0 has pp 1 only in the decode pool",
        ),
        ("--disagg on --prefill-chip ascend-910c-die", "joins chips of one generation, not ascend-910c-die"),
        ("--disagg on --prefill-chip h100-sxm", "hand no cache to each other; --engine generic prices them"),
        ("--disagg on --emit kthena --pd 1:1", "--pd gives both roles one plan; --disagg on finds a plan and copies"),
        ("--disagg auto --objective pareto", "--disagg auto sizes pools by throughput, not by --objective pareto"),
        ("--disagg on --objective latency", "not by --objective latency"),
        ("--disagg on --kv-link 10", "--kv-link: '10' has no unit"),
        ("--disagg on --kv-link 0GB/s", "--kv-link: above 0"),
        ("--disagg on --prefill-chip h100-smx", "h100-sxm"),
        ("--disagg maybe", "maybe"),
    ],
)
def test_bad_input_is_refused(run: Run, extra: str, said: str) -> None:
    result = run(*shlex.split(f"{LLAMA} {extra}"))
    assert result.code == 2 and said in result.err and result.out == ""
    assert "Traceback" not in result.err
