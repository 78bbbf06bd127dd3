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
        ("--disagg auto --emit vllm", "--emit writes one engine's command"),
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
