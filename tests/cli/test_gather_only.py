"""`--gather-only`: under attention DP all ranks see all tokens, whatever dispatch the engine has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

STEP = ("explain", "deepseek-r1", "h200-sxm", "--engine", "trtllm", "--dp", "8", "--ep", "8", "--prefill", "2048")
STEP = (*STEP, "--isl", "1024")


def operators(run: Run, *words: str) -> dict[str, float]:
    found = json.loads(run(*STEP, *words, "--format", "json").out)["prefill"]["operators"]
    return {o["name"]: o["time_s"] for o in found if o["time_s"] > 0}


def test_tokens_are_gathered_where_the_faster_way_is_a_dispatch(run: Run) -> None:
    free, held = operators(run), operators(run, "--gather-only")
    assert "moe_dispatch" in free and "moe_dp_gather" not in free
    assert "moe_dp_gather" in held and "moe_dispatch" not in held
    assert sum(held.values()) > sum(free.values())


def test_a_plan_is_launched_without_the_backend_that_dispatches(run: Run) -> None:
    words = ("recommend", "deepseek-r1", "h200-sxm", "--devices", "8", "--engine", "trtllm", "--dp", "8", "--ep", "8")
    words = (*words, "--isl", "4k", "--osl", "1k", "--emit", "trtllm")
    free, held = run(*words).out, run(*words, "--gather-only").out
    assert "backend: WIDEEP" in free and "backend: WIDEEP" not in held


def test_an_engine_that_only_dispatches_says_so() -> None:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.engines.limits import gather_only
    from mlaplan.engines.load import load_profile
    from mlaplan.errors import MlaplanError

    only = EngineCosts._make([None] * len(EngineCosts._fields))._replace(gather=False)
    with pytest.raises(MlaplanError, match="by a dispatch only"):
        gather_only(load_profile("trtllm"), only)


def test_a_study_takes_it_as_true_or_false(run: Run, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    text = "kind: study\nmodel: deepseek-r1\nchips: h200-sxm\ndevices: 8\ndp: 8\nep: 8\nengine: trtllm\nbatch: 64\n"
    study.write_text(text + "gather_only: maybe\n")
    result = run("sweep", "--config", str(study))
    assert result.code == 2 and "study.yaml:9" in result.err and "true or false" in result.err
    rows = []
    for word in ("false", "true"):
        study.write_text(text + f"gather_only: {word}\n")
        rows.append(run("sweep", "--config", str(study), "--format", "csv").out)
    assert rows[0] != rows[1]
