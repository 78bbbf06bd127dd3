"""A saved plan holds specs that read back to what the prediction was made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlaplan.engines.load import load_profile
from mlaplan.engines.profile import Profile
from mlaplan.explain import explain
from mlaplan.plan import question
from mlaplan.report import plan_file
from mlaplan.report.tables import as_json
from mlaplan.specs.defaults import kernels
from mlaplan.specs.lookup import chip_names, load_chip, load_model, model_names
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload


@pytest.mark.parametrize("name", ["h200-sxm", "k3", "sc11", "mi300x"])
def test_a_chip_reads_back(name: str, tmp_path: Path) -> None:
    chip = load_chip(name)
    assert name in dict(chip_names())
    path = tmp_path / "chip.json"
    path.write_text(as_json(_document(chip=name)["chip"]))
    again = load_chip(str(path))
    assert again.model_dump(exclude={"efficiency"}) == chip.model_dump(exclude={"efficiency"})
    # what came from the class is the chip's own now, so that later defaults change nothing
    assert kernels(again) == kernels(chip) == again.efficiency


@pytest.mark.parametrize("name", [name for name, _ in model_names()])
def test_every_model_reads_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(as_json(_document(model=name)["model"]))
    assert load_model(str(path)).model_dump() == load_model(name).model_dump()


@pytest.mark.parametrize("name", ["generic", "vllm", "sglang"])
def test_an_engine_reads_back(name: str) -> None:
    saved = json.loads(as_json(_document(engine=name)["engine"]))
    assert Profile.model_validate(saved["profile"]) == load_profile(f"{name}@{saved['version']}")


def _document(model: str = "deepseek-v2-lite", chip: str = "h200-sxm", engine: str = "generic") -> dict:  # type: ignore[type-arg]
    work = Workload(128, 16, 4)
    q = question(load_chip(chip), load_model(model), load_profile(engine), work, Overrides())
    return plan_file.document(q, explain(q, Strategy(batch=4)), Overrides(), "throughput")
