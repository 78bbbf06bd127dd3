"""`mlaplan simulate`: the run of a plan in every format, its limits, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.__main__ import main
from mlaplan.cli.simulating import progress

SHORT = ("--isl", "uniform:200:900", "--osl", "40", "--requests", "60", "--rate", "4")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan of a small model, made once."""
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    words = "recommend deepseek-v2-lite h100-sxm --devices 2 --isl 1k --osl 128 --concurrency 16 --engine vllm"
    assert (
        main([*words.split(), "--tp", "1", "--dp", "1", "--save-plan", str(file), "-o", str(file.parent / "answer")])
        == 0
    )
    return str(file)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["simulate", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_text_fits_a_terminal_and_is_the_same_each_time(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, told = run(capsys, plan, *SHORT)
    assert (code, told) == (0, "")
    assert max(map(len, text.splitlines())) <= 80
    for word in ("TTFT", "TPOT", "between outputs", "queue", "p99", "throughput", "busy", "cache"):
        assert word in text
    assert run(capsys, plan, *SHORT)[1] == text
    assert run(capsys, plan, *SHORT, "--seed", "3")[1] != text


def test_json_names_its_schema_and_units(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, plan, *SHORT, "--ttft", "p95:1h", "--tpot", "1h", "--format", "json")
    data: dict[str, Any] = json.loads(text)
    assert code == 0
    assert data["schema"] == "mlaplan.simulate/1"
    assert data["load"]["requests"] == 60
    assert data["load"]["concurrency"] is None
    assert data["limits"] == {
        "ttft": {"percentile": 95, "time_s": 3600}, "tpot": {"percentile": None, "time_s": 3600}, "met": True,
    }  # fmt: skip
    assert data["within_limits"] == 1
    assert data["times"]["ttft_s"]["p50"] <= data["times"]["ttft_s"]["p95"] <= data["times"]["ttft_s"]["max"]
    series = data["serve"]["series"]
    assert len({len(column) for column in series.values()}) == 1
    assert max(series["kv_held_share"]) <= data["serve"]["peak_kv_held_share"] + 1e-12 <= 1
    assert data["prefill"] is None
    fast, slow = (data["band"][end] for end in ("fast", "slow"))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert fast[name]["p95"] < data["times"][name]["p95"] < slow[name]["p95"]
    assert slow["output_tok_s"] <= data["output_tok_s"] <= fast["output_tok_s"]


def test_the_band_can_be_left_out(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\nband " in run(capsys, plan, *SHORT)[1]
    assert "\nband " not in run(capsys, plan, *SHORT, "--no-band")[1]
    assert json.loads(run(capsys, plan, *SHORT, "--no-band", "--format", "json")[1])["band"] is None


def test_csv_has_a_row_for_each_request_and_md_a_table(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(run(capsys, plan, *SHORT, "--format", "csv")[1])))
    assert len(rows) == 60
    assert all(200 <= int(row["prompt_tokens"]) <= 900 and row["output_tokens"] == "40" for row in rows)
    assert all(float(row["end_s"]) > float(row["sent_s"]) for row in rows)
    assert "| TTFT | " in run(capsys, plan, *SHORT, "--format", "md")[1]


def test_a_missed_limit_is_said_and_exits_with_1(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, plan, *SHORT, "--ttft", "p99:1us")
    assert code == 1
    assert "missed: up to 1.00 us" in text
    assert "0 % of requests within the times" in text


def test_the_plans_own_load_is_taken(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(run(capsys, plan, "--format", "json")[1])
    assert (data["load"]["concurrency"], data["load"]["requests"]) == (16, 160)
    assert data["load"]["mean_prompt_tokens"] == 1024


def test_a_trace_at_its_own_rate_at_another_and_in_a_closed_loop(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    def of(*arguments: str) -> dict[str, Any]:
        found = run(capsys, plan, "--trace", "chat", "--requests", "80", *arguments, "--format", "json")[1]
        return dict(json.loads(found))

    own, even, burst = of(), of("--rate", "2"), of("--rate", "2", "--burstiness", "0.05")
    assert own["serve"]["hit_tokens"] > 0
    assert even["load"]["rate_per_s"] == pytest.approx(2)
    assert even["load"]["mean_prompt_tokens"] == own["load"]["mean_prompt_tokens"]
    assert burst["times"]["queue_s"]["p95"] > even["times"]["queue_s"]["p95"]
    assert of("--concurrency", "4")["load"]["rate_per_s"] is None
    assert of("--no-prefix-cache")["serve"]["hit_tokens"] == 0


def test_prompts_on_another_plan(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(run(capsys, plan, "--prefill", plan, *SHORT, "--format", "json")[1])
    assert data["prefill"]["computed_prompt_tokens"] > 0
    assert data["serve"]["computed_prompt_tokens"] == 0
    code, text, _ = run(capsys, plan, "--prefill", plan, *SHORT)
    assert code == 0
    assert "for prompts" in text


def test_requests_are_written_with_or_without_a_run(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.jsonl"
    code, text, _ = run(capsys, "--synthetic", "30", "--rate", "2", "--seed", "5", "--write-trace", str(file))
    assert (code, text) == (0, "")
    assert len(file.read_text().splitlines()) == 30
    direct = run(capsys, plan, "--synthetic", "30", "--rate", "2", "--seed", "5", "--format", "csv")[1]
    assert direct.count("\n") == run(capsys, plan, "--trace", str(file), "--format", "csv")[1].count("\n") == 31


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_picture_is_the_same_each_time(
    suffix: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{i}.{suffix}" for i in range(2)]
    for file in files:
        run(capsys, plan, "--trace", "chat", "--requests", "60", "--ttft", "p95:2s", "--plot", str(file))
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("PLAN --trace missing.jsonl", "missing.jsonl: cannot be read"),
        ("PLAN --trace chat --isl 4k", "each says what is sent; give one"),
        ("PLAN --trace chat --synthetic 4", "each says what is sent; give one"),
        ("PLAN --rate 3 --concurrency 4", "--concurrency and --rate both fix the load"),
        ("PLAN --burstiness 0", "--burstiness 0: expected a number from 0.01 to 100"),
        ("PLAN --burstiness nan", "--burstiness nan: expected"),
        ("PLAN --burstiness 2 --concurrency 4", "a request follows another, not a clock"),
        ("PLAN --synthetic 9 --requests 5", "give one of them"),
        ("PLAN --isl normal:3:4", "did you mean 'lognormal'?"),
        ("PLAN --ttft q95:2s", "--ttft: 'q95:2s': unknown 'q95'; expected such as p95:2s"),
        ("PLAN --ttft p950:2s", "unknown 'p950'"),
        ("PLAN --ttft p95:2", "did you mean '2ms' or '2s'?"),
        ("PLAN --tpot 0s", "allows no time"),
        ("PLAN --plot x.foo", "cannot be drawn"),
        ("PLAN --rate 0", "--rate: above 0"),
        ("PLAN --trace chat --requests 1 --rate 3", "come all at once"),
        ("", "expected a PLAN to run, or --write-trace"),
        ("--write-trace t.jsonl", "nothing says what is sent"),
        ("--synthetic 5 --write-trace t.jsonl", "conversations need --rate or --concurrency"),
        ("--isl 5 --osl 5 --write-trace t.jsonl", "expected --rate or --concurrency"),
        ("--synthetic 5 --rate 2 --write-trace t.jsonl --plot p.svg", "without a PLAN nothing runs"),
        ("missing.json", "missing.json: cannot be read"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: str,
    told: str,
    plan: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = run(capsys, *[plan if word == "PLAN" else word for word in arguments.split()])
    assert (code, out) == (2, "")
    assert told in error
    assert error.count("\n") == 1


def test_nothing_that_fits_is_said(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, plan, "--isl", "3m", "--osl", "10", "--requests", "3", "--rate", "1")
    assert code == 1
    assert "3 requests are longer than the cache of a rank" in " ".join(text.split())


def test_a_bar_is_for_terminals_alone(capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert progress(io.StringIO()) is None
    tell = progress(Terminal())
    assert tell is not None
    for done in range(1, 201):
        tell(done, 200)
    shown = capsys.readouterr().err
    assert " 50 %" in shown
    assert shown.endswith("\r")
    assert shown.count("simulating") == 101


def test_the_picture_is_drawn_in_the_style_of_all_others(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.svg"
    assert run(capsys, plan, *SHORT, "--plot", str(file))[0] == 0
    from mlaplan.report.plots import style

    drawn = file.read_text().lower()
    assert all(style.look(i).color.lower() in drawn for i in (0, 2, 3))
    own = (Path(style.__file__).parents[1] / "simulate_plot.py").read_text()
    assert "#" not in own.partition('"""')[2].partition('"""')[2].replace("# ", "")  # no colours of its own
