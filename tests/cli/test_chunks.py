"""`mlaplan chunks`: the commands of its help, its data, its plot, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlaplan.costs import slices
from mlaplan.costs.overlap import pipeline
from tests.cli.conftest import Run

K3 = ("chunks", "deepseek-v2", "k3", "--devices", "8", "--batch", "32", "--context", "2048")
SC11 = ("chunks", "deepseek-v3", "sc11", "--devices", "8", "--batch", "128", "--context", "512")
TRACE = "batch,q_len,kv_len,comm_us,queue_depth\n" + "32,1,2048,960,0\n" * 5 + "4,64,4096,300,2\n"


def test_the_text_says_what_is_decided(run: Run) -> None:
    result = run(*K3)
    assert (result.code, result.err) == (0, "")
    out = " ".join(result.out.split())
    assert "q_chunk 1: one query token a sequence: 16 rows of heads, nothing to cut" in out
    assert "recv_slice 32 KiB if the cache is gathered" in out
    assert "depth 6 slices staged" in out
    assert "fewer bytes than a gather above 356 tokens" in out
    assert "The K3 article, 64 KiB at depth 4, absorbed: on the plateau" in out
    assert "The K3 article, 64 KiB at depth 4, naive: 6% above the best" in out
    assert "no threshold on batch alone follows" in out
    assert all(len(line) <= 80 for line in result.out.splitlines())


@pytest.mark.parametrize("chip", ["sc11", "ascend-910b3", "h100-sxm", "mi300x", "b200-sxm"])
def test_every_text_keeps_to_80_columns(run: Run, chip: str) -> None:
    result = run("chunks", "deepseek-v3", chip, "--devices", "8", "--batch", "32", "--context", "8k", "--q-len", "2")
    assert result.code == 0
    assert [line for line in result.out.splitlines() if len(line) > 80] == []
    assert "Attention over the cores of one chip" in result.out


def test_a_chip_with_a_network_has_two_tiers(run: Run) -> None:
    out = run("chunks", "deepseek-v3", "h100-sxm", "--devices", "8", "--batch", "32", "--context", "8k").out
    assert "By link: how late a slice may be" in out
    assert "By link" not in run(*K3).out


def test_one_chip_gathers_nothing(run: Run) -> None:
    result = run("chunks", "deepseek-v3", "sc11", "--devices", "1", "--batch", "4", "--context", "4k")
    assert result.code == 0
    assert "Ways to gather" not in result.out
    data = json.loads(run(*SC11[:4], "1", *SC11[5:], "--format", "json").out)
    assert data["decision"]["gathered"] is None
    assert data["border"] is None


def test_json(run: Run) -> None:
    result = run(*K3, "--form", "naive", "--format", "json")
    data = json.loads(result.out)
    assert data["schema"] == "mlaplan.chunks/1"
    assert data["form"] == "naive"
    decided = data["decision"]["gathered"]
    assert (decided["q_chunk"], decided["recv_slice_bytes"], decided["pipeline_depth"]) == (1, 131072, 4)
    naive = data["gather"]["naive"]
    assert len(naive["sweep"]) == 9 * 16
    t = naive["timeline"]
    assert t["step_s"] == pytest.approx(naive["picked"]["step_s"])
    assert t["binding"] == "link"
    assert t["utilisation"] + t["exposed_s"] / t["step_s"] == pytest.approx(1)
    assert set(t["bubbles_s"]) <= {"fill", "link", "staging", "merge"}
    names = [w["name"] for w in data["alternatives"]]
    assert names == ["replicated", "gathered in slices", "gathered", "sequence-sharded", "latent-sharded"]
    assert data["decision"]["own_memory"]["core_mapping"] in ("heads", "batch", "sequence", "mixed")
    assert data["crossover_tokens"]["bytes_over_gathered"] == 356


def test_merge_in_16_bit_by_all_to_all(run: Run) -> None:
    data = json.loads(run(*K3, "--merge", "a2a", "--merge-bytes", "2", "--format", "json").out)
    assert 241 < data["crossover_tokens"]["bytes_over_gathered"] < 243


def test_figures_can_be_set(run: Run) -> None:
    small = json.loads(run(*K3, "--q-len", "256", "--set", "on_chip[0].capacity=8 MiB", "--format", "json").out)
    large = json.loads(run(*K3, "--q-len", "256", "--format", "json").out)
    # 16 heads a chip: a chunk of 32 is 4 MiB, of 64 is 8 MiB; 0.8 of 8 and of 24 MiB hold 32 and 128
    assert small["decision"]["gathered"]["q_chunk"] == 32
    assert large["decision"]["gathered"]["q_chunk"] == 128


def test_replay(run: Run) -> None:
    Path("trace.csv").write_text(TRACE)
    result = run(*K3, "--form", "naive", "--replay", "trace.csv", "--policy", "formula", "--format", "json")
    data = json.loads(result.out)["replay"]
    assert data["trace"] == "trace.csv"
    by = {p["policy"]: p for p in data["policies"]}
    assert set(by) == {"static", "formula", "feedback", "formula, any chunk"}
    assert len(by["feedback"]["steps"]) == 6
    assert by["feedback"]["regret_share"] < by["formula"]["regret_share"]
    text = run(*K3, "--form", "naive", "--replay", "trace.csv", "--policy", "static").out
    assert "Replay of trace.csv, 6 steps" in text
    assert "static <" in text


def test_drawn_traffic(run: Run) -> None:
    out = run(*K3, "--form", "naive", "--traffic", "noisy", "--seed", "7").out
    assert "Replay of noisy traffic, seed 7, 200 steps" in out
    assert out == run(*K3, "--form", "naive", "--traffic", "noisy", "--seed", "7").out


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_plot(run: Run, suffix: str) -> None:
    result = run(*SC11, "--plot", f"timeline.{suffix}")
    assert result.code == 0
    assert result.err == f"written to timeline.{suffix}\n"
    content = Path(f"timeline.{suffix}").read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    if suffix == "svg":
        assert b"SDMA: DDR to L2" in content or len(content) > 20_000


def test_the_plot_of_one_chip(run: Run) -> None:
    result = run(
        "chunks", "deepseek-v3", "sc11", "--devices", "1", "--batch", "64", "--context", "512", "--plot", "x.png"
    )
    assert result.code == 0
    assert Path("x.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("chunks", "llama-3-70b", *K3[2:]), "llama-3-70b has no MLA: its attention is of another kind"),
        (("chunks", "deepseek-v3.2", *K3[2:]), "selects its tokens (sparse attention)"),
        ((*K3[:4], "256", *K3[5:]), "--devices 256: deepseek-v2 has 128 heads; expected 128 chips at most"),
        ((*K3[:4], "16", *K3[5:]), "--devices 16: k3 has no network; expected 8 chips at most"),
        ((*K3, "--replay", "none.csv"), "none.csv: cannot be read"),
        ((*K3, "--replay", "a.csv", "--traffic", "mixed"), "--replay and --traffic: give one of them"),
        ((*K3[:-1], "0"), "--context 0: expected at least 1 token"),
        ((*K3, "--attention", "ml"), "--attention ml: expected one of mla; did you mean 'mla'?"),
        ((*K3, "--plot", "picture.xyz"), "picture.xyz: cannot be drawn"),
        (("chunks", "deepseek-v3", "k33", *K3[3:]), "k3"),
        ((*K3, "--jitter", "nan"), "--jitter nan: expected a number from 0 to 10"),
        ((*K3, "--merge-bytes", "3"), "--merge-bytes 3: no dtype has three bytes; expected 2 or 4"),
        ((*K3, "--policy", "static"), "--policy static: there are no steps to tell; expected --replay or --traffic"),
        ((*K3, "--seed", "1"), "--seed 1: nothing is drawn; expected --traffic"),
        ((*K3, "--batch", "1000000000"), "'--batch': 1000000000 is not in the range"),
    ],
)
def test_what_is_refused(run: Run, arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert complaint in result.err
    assert "Traceback" not in result.err


def test_a_plan_shows_its_chunks(run: Run) -> None:
    wanted = ("deepseek-v3", "h200-sxm", "--tp", "8", "--dcp", "8", "--isl", "8k", "--osl", "1k", "--concurrency", "32")
    out = " ".join(run("explain", *wanted).out.split())
    assert "q_chunk 1 x 64 heads, slices of 64 tokens (72 KiB), 2 deep, in registers, shared_memory" in out
    data = json.loads(run("explain", *wanted, "--format", "json").out)
    chunking = data["strategy"]["chunking"]
    assert (chunking["q_chunk"], chunking["recv_slice_bytes"], chunking["pipeline_depth"]) == (1, 73728, 2)
    assert chunking["core_mapping"] == "mixed"


def test_the_timeline_of_the_plot_is_the_step_of_the_table(run: Run) -> None:
    from mlaplan.costs import chunks
    from mlaplan.specs.lookup import load_chip, load_model

    run(*K3)
    plan = chunks.gather_plan(load_chip("k3"), load_model("deepseek-v2").attention["mla"], "absorbed", 32, 2048, 16, 8)
    p = pipeline(plan.work, plan.rates, plan.picked.slice_bytes, plan.picked.depth)
    assert slices.timeline(p).total_s == pytest.approx(plan.picked.step_s)
