"""A benchmark's result against the plan it ran: both formats, gaps explained, bad files in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.__main__ import main
from mlaplan.errors import MlaplanError
from mlaplan.report import measured_text
from mlaplan.validation import bench_files
from mlaplan.validation.measured import compare


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    arguments = "recommend deepseek-r1 h200-sxm --devices 8 --tp 8 --isl 1k --osl 256 --concurrency 16 --engine sglang"
    assert main([*arguments.split(), "--mtp", "0", "--save-plan", str(path), "-o", str(path.with_name("out.txt"))]) == 0
    return path


def vllm_result(**changed: Any) -> dict[str, Any]:
    """As `vllm bench serve --save-result` writes it."""
    return {
        "backend": "vllm", "model_id": "deepseek-ai/DeepSeek-R1", "num_prompts": 160, "request_rate": "inf",
        "max_concurrency": 16, "duration": 60.0, "completed": 160, "total_input_tokens": 160 * 1024,
        "total_output_tokens": 160 * 256, "request_throughput": 2.67, "output_throughput": 682.7,
        "total_token_throughput": 3413.3, "mean_ttft_ms": 150.0, "median_ttft_ms": 140.0, "mean_tpot_ms": 18.0,
        "median_tpot_ms": 17.9, "mean_itl_ms": 18.0, **changed,
    }  # fmt: skip


def sglang_result(**changed: Any) -> dict[str, Any]:
    """As `sglang.bench_serving --output-file` appends it."""
    return {
        "backend": "sglang", "dataset_name": "random-ids", "request_rate": float("inf"), "max_concurrency": 16,
        "random_input_len": 1024, "random_output_len": 256, "random_range_ratio": 1.0, "duration": 60.0,
        "completed": 160, "total_input_tokens": 160 * 1024, "total_output_tokens": 160 * 256,
        "total_throughput": 3413.3, "mean_ttft_ms": 150.0, "median_ttft_ms": 140.0, "mean_tpot_ms": 18.0,
        "median_tpot_ms": 17.9, "accept_length": None, **changed,
    }  # fmt: skip


def write(path: Path, *results: dict[str, Any]) -> str:
    path.write_text("\n".join(json.dumps(r) for r in results) + "\n")
    return str(path)


def test_both_formats_say_the_same(tmp_path: Path, plan: Path) -> None:
    one = compare(write(tmp_path / "vllm.json", vllm_result()), str(plan))
    other = compare(write(tmp_path / "sglang.jsonl", sglang_result()), str(plan))
    assert (one.bench.tool, other.bench.tool) == ("vLLM", "SGLang")
    assert one.rows == other.rows
    assert [row.metric for row in one.rows] == ["ttft", "tpot", "output_tok_s", "total_tok_s"]
    assert one.rows[2].measured == pytest.approx(160 * 256 / 60)


def test_the_last_line_of_several_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "two.jsonl", sglang_result(mean_tpot_ms=99.0), sglang_result(mean_tpot_ms=20.0))
    assert bench_files.read(path).metrics["tpot"] == pytest.approx(0.020)


def test_what_was_predicted_is_in_the_band_and_needs_no_reason(tmp_path: Path, plan: Path) -> None:
    first = compare(write(tmp_path / "a.json", vllm_result()), str(plan))
    tpot = next(row for row in first.rows if row.metric == "tpot").predicted.value
    again = compare(write(tmp_path / "b.json", vllm_result(mean_tpot_ms=1e3 * tpot)), str(plan))
    row = next(row for row in again.rows if row.metric == "tpot")
    assert row.inside and row.error == pytest.approx(0.0, abs=1e-9) and row.could_explain == ()


def test_a_gap_is_put_down_to_terms(tmp_path: Path, plan: Path) -> None:
    found = compare(write(tmp_path / "slow.json", vllm_result(mean_tpot_ms=60.0)), str(plan))
    row = next(row for row in found.rows if row.metric == "tpot")
    assert not row.inside and row.error < -0.3
    assert any(reason.startswith("routed_experts x ") for reason in row.could_explain)
    assert float(row.could_explain[0].split(" x ")[1]) > 1
    text = measured_text.report(found)
    assert "outside" in text and "Could explain the gap" in text


def test_the_load_that_ran_is_predicted(tmp_path: Path, plan: Path) -> None:
    result = vllm_result(total_input_tokens=160 * 4096, max_concurrency=4)
    found = compare(write(tmp_path / "other.json", result), str(plan))
    assert any("4,096" in note for note in found.notes)
    assert any("kept 4" in note for note in found.notes)
    planned = compare(write(tmp_path / "planned.json", vllm_result()), str(plan))
    assert found.rows[0].predicted.value != planned.rows[0].predicted.value


def test_lengths_that_vary_are_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "spread.json", vllm_result(input_lens=[800, 900, 1000]))
    assert bench_files.read(path).shortest == pytest.approx(0.8)


def test_an_offered_rate_is_a_steady_state(tmp_path: Path, plan: Path) -> None:
    found = compare(write(tmp_path / "rate.json", vllm_result(max_concurrency=None, request_rate=2.0)), str(plan))
    assert any("steady state" in note for note in found.notes)
    out = next(row for row in found.rows if row.metric == "output_tok_s")
    assert out.predicted.value == pytest.approx(2.0 * 256, rel=0.05)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is empty"),
        ("not json", "is not JSON"),
        ("[1, 2]", "holds no benchmark result"),
        ('{"completed": 3}', "has no 'duration'"),
        (json.dumps(vllm_result(completed=0)), "no request was completed"),
        (json.dumps(vllm_result(mean_tpot_ms="fast")), "'mean_tpot_ms' is 'fast'"),
        (json.dumps(vllm_result(mean_ttft_ms=float("nan"))), "'mean_ttft_ms' is nan"),
        (json.dumps(vllm_result(duration=0.0)), "must be above 0"),
        (json.dumps(vllm_result(completed=True)), "'completed' is True"),
    ],
)
def test_a_bad_result_is_told_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(MlaplanError) as told:
        bench_files.read(str(path))
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert str(told.value).startswith(str(path))


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(MlaplanError, match="No such file"):
        bench_files.read(str(tmp_path / "none.json"))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MlaplanError, match="not UTF-8"):
        bench_files.read(str(tmp_path / "binary.json"))
    with pytest.raises(MlaplanError, match="cannot be read"):
        bench_files.read(str(tmp_path))


def broken(plan: Path, **changed: Any) -> str:
    data = json.loads(plan.read_text())
    for name, value in changed.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    path = plan.with_name("broken.json")
    path.write_text(json.dumps(data))
    return str(path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema": "mlaplan.recommend/1"}, "is no plan"),
        ({"chip": None}, "has no 'chip'"),
        ({"workload": {"isl_tokens": 5}}, "has no 'osl_tokens'"),
        ({"chip": {"kind": "chip"}}, "chip."),
        ({"strategy": {"tp": 8}}, "expected a whole plan file"),
    ],
)
def test_a_bad_plan_is_told_in_one_line(tmp_path: Path, plan: Path, changed: dict[str, Any], said: str) -> None:
    bench = write(tmp_path / "bench.json", vllm_result())
    with pytest.raises(MlaplanError) as told:
        compare(bench, broken(plan, **changed))
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_a_plan_that_is_not_json(tmp_path: Path) -> None:
    bench = write(tmp_path / "bench.json", vllm_result())
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(MlaplanError, match=r"plan\.json:1:2: is not JSON"):
        compare(bench, str(tmp_path / "plan.json"))
