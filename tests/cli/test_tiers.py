"""`mlaplan tiers`: fetch or recompute, what a trace finds, what a tier adds, what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

LLAMA = "tiers llama-3-70b ascend-910b3 --devices 8"
V3 = "tiers deepseek-v3 h100-sxm --devices 16 --trace chat --kv-dtype fp8 --dp 8 --pp 2 --tp 1 --mtp 0 --batch 128"


def data(run: Run, line: str) -> dict[str, Any]:
    result = run(*shlex.split(line), "--format", "json")
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def test_a_fetch_is_bytes_over_the_link(run: Run) -> None:
    found = data(run, f"{LLAMA} --tp 8 --kv-dtype bf16 --host-link 40GB/s")
    row = next(c for c in found["contexts"] if c["context_tokens"] == 8192)
    assert found["fetched_bytes_per_token"] == 40_960 and found["stored_bytes_per_token"] == 327_680
    assert row["fetch_0_s"] == pytest.approx(10e-6 + 8192 * 40_960 / 40e9)
    even = 8192 * 40_960 / (row["recompute_s"] - 10e-6)
    assert row["break_even_bytes_per_s"] == pytest.approx(even)
    assert row["fetch_is_faster"]


def test_a_link_below_break_even_is_no_use(run: Run) -> None:
    slow = data(run, f"{LLAMA} --tp 8 --kv-dtype bf16 --host-link 50MB/s --pool-link 50MB/s")
    assert not any(c["fetch_is_faster"] for c in slow["contexts"])


def test_a_tier_finds_more_and_serves_more(run: Run) -> None:
    found = data(run, f"{V3} --host-memory 2GB --pool 4TB")
    chips, host, pool = found["tiers"]
    assert chips["hit_share"] <= host["hit_share"] <= pool["hit_share"] <= found["most_found"]
    assert chips["tok_s_chip"] <= host["tok_s_chip"] <= pool["tok_s_chip"]
    assert host["held_tokens"] - chips["held_tokens"] == pytest.approx(16 * 2e9 / found["stored_bytes_per_token"])
    shares = [c["found"] for c in found["curve"]]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(found["most_found"])


def test_prompts_that_share_nothing_find_nothing(run: Run, tmp_path: Path) -> None:
    rows = [
        {"timestamp": i * 100, "input_length": 1024, "output_length": 10, "hash_ids": [2 * i, 2 * i + 1]}
        for i in range(50)
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = data(run, f"{LLAMA} --trace own.jsonl --host-memory 64GB")
    assert found["most_found"] == 0 and found["tiers"][0]["tok_s_chip"] == found["tiers"][1]["tok_s_chip"]


@pytest.mark.parametrize("how", ["table", "md", "csv"])
def test_formats(run: Run, how: str) -> None:
    result = run(*shlex.split(f"{LLAMA} --trace chat --host-memory 64GB --format {how}"))
    assert result.code == 0
    if how == "table":
        assert max(map(len, result.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("--host-memory 64GB", "--host-memory goes with --trace"),
        ("--trace no.jsonl", "no.jsonl"),
        ("--trace chat --host-memory 64", "--host-memory: '64' has no unit"),
        ("--host-link 0GB/s", "--host-link: above 0"),
        ("--tp 3", "--tp 3 does not divide --devices 8"),
    ],
)
def test_bad_input_is_refused(run: Run, extra: str, said: str) -> None:
    result = run(*shlex.split(f"{LLAMA} {extra}"))
    assert result.code == 2 and said in result.err and result.out == "" and "Traceback" not in result.err


def test_a_chip_without_a_network_has_no_pool(run: Run) -> None:
    result = run(*shlex.split("tiers llama-3-70b sc11 --devices 8 --trace chat --pool 1TB"))
    assert result.code in (1, 2) and "Traceback" not in result.err


def test_what_is_said_of_a_trace_is_said_with_a_trace_only(run: Run, tmp_path: Path) -> None:
    assert "the trace" not in run(*shlex.split(LLAMA)).out
    file = tmp_path / "one.jsonl"
    file.write_text('{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}')
    shown = " ".join(run(*shlex.split(f"{LLAMA} --trace {file}")).out.split())
    assert "No prompt begins with a whole block" in shown and "found tokens capacity" not in shown


def test_a_slow_link_is_worth_it_for_long_contexts_only(run: Run) -> None:
    """Computing grows with the square of a context, fetching with its length: 100 MB/s overtakes between."""
    line = "tiers deepseek-v3 h100-sxm --devices 16 --dp 8 --pp 2 --tp 1 --batch 64 --host-link 100MB/s"
    rows = {c["context_tokens"]: c for c in data(run, line)["contexts"]}
    for row in rows.values():
        assert (row["fetch_0_s"] < row["recompute_s"]) == (row["break_even_bytes_per_s"] < 100e6)
    assert (
        rows[8192]["fetch_0_s"] > rows[8192]["recompute_s"]
        and rows[131_072]["fetch_0_s"] < rows[131_072]["recompute_s"]
    )
