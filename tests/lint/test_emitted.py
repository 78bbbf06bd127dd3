"""Whatever `recommend --emit` prints passes `check` for that chip, count and version."""

from __future__ import annotations

import itertools
import random

import pytest

from mlaplan.cli.launching import request
from mlaplan.engines import MODULES, emit, engine_versions, load_profile
from mlaplan.errors import MlaplanError
from mlaplan.plan import question, recommend
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.workload import Overrides, Workload
from tests.lint.conftest import report_of

CHIPS = ("h200-sxm", "b200-sxm", "mi300x", "a100-sxm-80g", "h20", "ascend-910b1", "ascend-910c-die")
MODELS = ("deepseek-v3", "deepseek-v3.2", "kimi-k2", "deepseek-v2-lite", "glm-4.7-flash", "qwen2.5-72b", "glm-5")
ENGINES = [f"{name}@{version}" for name in MODULES for version in engine_versions(name)]
RUNS = 3  # combinations of an engine


def combinations(engine: str) -> list[tuple[str, str, int]]:
    """Chips the engine runs on, models and counts, in an order that is always the same."""
    profile = load_profile(engine)
    chips = [chip for chip in CHIPS if load_chip(chip).efficiency_class in profile.runs_on]
    found = list(itertools.product(chips, MODELS, (8, 16)))
    random.Random(engine).shuffle(found)
    return found


def said(engine: str, chip: str, model: str, devices: int) -> tuple[int, list[str]]:
    """Commands of the best plan, and findings in them above info."""
    profile, spec = load_profile(engine), load_chip(chip, (), engine.split("@")[0])
    q = question(spec, load_model(model), profile, Workload(2000, 500, 64), Overrides())
    texts: list[str] = []
    for plan in recommend(q, devices, top=1).plans:
        try:
            texts += emit(engine, request(q, plan.strategy, plan.pp_layers))
        except MlaplanError:  # what an engine cannot express is refused before
            continue
    texts = [text for text in texts if not text.splitlines()[-1].startswith("ray start")]
    found = [one.head() for text in texts for one in report_of(text, chip=chip, devices=devices, model=model).findings
             if one.severity != "info"]  # fmt: skip
    return len(texts), found


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_emitted_passes(engine: str) -> None:
    count = 0
    for chip, model, devices in combinations(engine):
        emitted, found = said(engine, chip, model, devices)
        assert not found, (chip, model, devices, found)
        count += emitted > 0
        if count == RUNS:
            break
    assert count
