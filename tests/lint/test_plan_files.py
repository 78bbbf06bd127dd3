"""Saved plans that somebody edited: every slip told at its line, with what was meant."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from mlaplan.__main__ import main
from mlaplan.lint.text import Source
from mlaplan.validation import saved

QUESTION = "recommend deepseek-v2-lite h100-sxm --devices 2 --isl 1k --osl 128 --concurrency 16 --engine vllm --ttft 2s"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A plan of a small model, made once."""
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    assert main([*QUESTION.split(), "--save-plan", str(file), "-o", str(file.parent / "answer")]) == 0
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def findings(data: dict[str, Any]) -> list[str]:
    from mlaplan.lint.plans import check_plan

    text = json.dumps(data, indent=1)
    found = check_plan(Source("plan.json", text, text.splitlines()))
    lines = text.splitlines()
    assert all(one.line and 1 <= one.line <= len(lines) for one in found)
    return [f"{lines[one.line - 1].strip()} -> {one.message}" for one in found if one.line]


def edited(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The plan with another value at a dotted path; `...` takes the key out."""
    copied: dict[str, Any] = json.loads(json.dumps(data))
    *above, last = path.split(".")
    place = reduce(lambda here, key: here[key], above, copied)
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return copied


def test_a_plan_as_it_was_written_is_clean(whole: dict[str, Any]) -> None:
    assert findings(whole) == []


@pytest.mark.parametrize(
    ("path", "value", "line", "message"),
    [
        ("strategy.tp", -8, '"tp": -8', "strategy.tp: got -8; expected a whole number of at least 1"),
        ("strategy.cp", 0, '"cp": 0', "strategy.cp: got 0"),
        ("strategy.batch", 2.5, '"batch": 2.5', "strategy.batch: got 2.5; expected a whole number"),
        ("strategy.batch", 10**7, '"batch": 1', "got 10000000; expected a whole number of at most 1000000"),
        ("strategy.mtp", True, '"mtp": true', "strategy.mtp: got true"),
        ("strategy.two_batch_overlap", 2, '"two_batch_overlap": 2', "a whole number of at most 1"),
        ("strategy.kv_dtype", "fp88", '"kv_dtype": "fp88"', "did you mean 'fp8'?"),
        ("strategy.kv_layout", "sequence-sharded", '"kv_layout"', "did you mean 'sequence_sharded'?"),
        ("strategy.weight_dtype", "bf-16", '"weight_dtype"', "did you mean 'bf16'?"),
        ("strategy.batchs", 3, '"batchs": 3', "unknown key 'batchs' in strategy; did you mean 'batch'?"),
        ("strategy.replicas", ..., '"strategy": {', "missing key 'replicas' in strategy; expected a whole number"),
        ("strategy.devices", 16, '"devices": 16', "16 is not tp "),
        ("strategy.ep", 3, '"ep": 3', "does not divide tp x dp"),
        ("strategy.dcp", 3, '"dcp": 3', "does not divide tp"),
        ("strategy.pp_layers", [20], '"pp_layers": [', "20 layers in all, the model has 27; expected 27"),
        ("workload.isl_tokens", "1024", '"isl_tokens": "1024"', "expected a whole number; write it without quotes"),
        ("workload.prefix_tokens", 4096, '"prefix_tokens": 4096', "4096 of 1024 prompt tokens; expected fewer"),
        ("workload.ttft_s", "2 s", '"ttft_s": "2 s"', "workload.ttft_s: got '2 s'; expected a number above 0"),
        ("workload.rate_per_s", 3, '"rate_per_s": 3', "concurrency and rate_per_s both fix the load"),
        ("workload.tpot", 0.05, '"tpot": 0.05', "unknown key 'tpot' in workload"),
        ("objective", "thruput", '"objective": "thruput"', "did you mean 'throughput'?"),
        ("overrides.memory_fraction", 1.5, '"memory_fraction": 1.5', "a number above 0 and at most 1"),
        ("overrides.dcp_merge", "a2", '"dcp_merge": "a2"', "did you mean 'a2a'?"),
        ("chip.memory.bandwidth.value", "3 TB", '"value": "3 TB"', "chip.memory.bandwidth.value: '3 TB' is a size"),
        ("chip.pek", {}, '"pek": {}', "unknown key 'pek' in chip"),
        ("model.hidden_size", -2048, '"hidden_size": -2048', "model.hidden_size: got -2048"),
        ("engine.profile.memory.graphs.value", "1", '"value": "1"', "engine.profile.memory.graphs.value"),
        ("engine.name", "sglang", '"name": "sglang"', "'sglang' is not the profile's 'vllm'"),
        ("prediction", ..., "{", "missing key 'prediction'"),
        ("prediction.served.tok_s_chip.value", "9", '"value": "9"', "no number at prediction.served"),
        ("schema", "mlaplan.plan/2", '"schema"', "schema 'mlaplan.plan/2'; expected 'mlaplan.plan/1'"),
        ("schema", "mlaplan.recommend/1", '"schema"', "is no plan; expected the file that `mlaplan recommend"),
    ],
)  # fmt: skip
def test_every_slip_is_told_at_its_place(whole: dict[str, Any], path: str, value: Any, line: str, message: str) -> None:
    found = findings(edited(whole, path, value))
    assert any(one.startswith(line) or f"{line}" in one.split(" -> ")[0] for one in found), found
    assert any(message in one for one in found), found


def test_all_slips_are_told_at_once(whole: dict[str, Any]) -> None:
    data = edited(edited(edited(whole, "strategy.tp", -8), "workload.osl_tokens", 0), "model.layers", [])
    assert [one.split(" -> ")[1].split(":")[0] for one in findings(data)] == [
        "model.layers", "workload.osl_tokens", "strategy.tp",
    ]  # fmt: skip


def test_a_plan_of_another_version_is_named_by_every_reader(whole: dict[str, Any], tmp_path: Path) -> None:
    from mlaplan.errors import MlaplanError

    file = tmp_path / "new.json"
    file.write_text(json.dumps(edited(whole, "schema", "mlaplan.plan/7")))
    with pytest.raises(MlaplanError, match=r"new\.json: .*'mlaplan\.plan/7'; expected 'mlaplan\.plan/1'"):
        saved.read_plan(str(file))


def test_an_excerpt_is_judged_by_what_it_has() -> None:
    part = {"schema": "mlaplan.plan/1", "strategy": {"batch": 32, "dp": 8, "devices": 8, "tp": -8},
            "prediction": {"served": {"tok_s_chip": {"value": 700}}}}  # fmt: skip
    assert [one.split(" -> ")[1] for one in findings(part)] == [
        "strategy.tp: got -8; expected a whole number of at least 1"
    ]
