"""Every file that `recommend --emit lws|kthena` writes passes `check`, with nothing said beside it."""

from __future__ import annotations

import itertools
import random

import pytest

from mlaplan.cli.launching import request
from mlaplan.engines import load_profile
from mlaplan.engines.handover import paired
from mlaplan.errors import MlaplanError
from mlaplan.fleet.split import kv_heads
from mlaplan.manifests import KINDS, Deployment, Role, manifests
from mlaplan.plan import question, recommend
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.workload import Overrides, Workload
from tests.lint.conftest import report_of
from tests.manifests.plans import ENGINES, devices, groups

CHIPS = ("h200-sxm", "b200-sxm", "gb200", "mi300x", "h20", "ascend-910b3", "ascend-910c-die")
MODELS = ("deepseek-v3", "kimi-k2", "deepseek-v2-lite", "glm-4.7-flash", "llama-3-70b")
KNOWN = {"MLA553"}  # of vLLM-Ascend before 0.23: heads that graph mode may not take, which nobody planned away
RUNS = 2  # combinations of an engine


def deployments(engine: str, chip: str, model: str, count: int) -> list[Deployment]:
    """The best plan, serving alone and in both roles; none where nothing is feasible."""
    spec, profile = load_chip(chip, (), engine.split("@")[0]), load_profile(engine)
    q = question(spec, load_model(model), profile, Workload(2000, 500, 64), Overrides())
    out = []
    for plan in recommend(q, count, top=1).plans:
        wanted = request(q, plan.strategy, plan.pp_layers)
        alone = (Role("server", wanted, wanted.replicas),)
        out.append(Deployment(model.replace(".", "-"), engine, spec, alone, model))
        try:
            p, d = paired(engine, None, wanted, wanted, kv_heads(q))
        except MlaplanError:  # a pipeline, or a divided cache
            continue
        both = (Role("prefill", p, wanted.replicas), Role("decode", d, 1))
        out.append(Deployment(model.replace(".", "-"), engine, spec, both, model))
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_written_passes(engine: str) -> None:
    runs_on = load_profile(engine).runs_on
    chips = [chip for chip in CHIPS if load_chip(chip).efficiency_class in runs_on]
    found = list(itertools.product(chips, MODELS, (8, 32)))
    random.Random(engine).shuffle(found)
    made = 0
    for chip, model, count in found:
        files = 0
        for d, kind in itertools.product(deployments(engine, chip, model, count), KINDS):
            try:
                written = manifests(kind, d)
            except MlaplanError:  # roles a kind has not, and what an engine cannot express
                continue
            files += len(written)
            asked = sum(n * (devices(leader) + (pods - 1) * (devices(worker) if worker else 0))
                        for _, n, pods, leader, worker in groups(kind, written))  # fmt: skip
            assert asked == d.chips
            assert d.split or asked == count
            for one in written:
                report = report_of(one.text, one.name)
                bad = [finding.head() for finding in report.findings if finding.code not in KNOWN]
                assert not bad, (chip, model, count, bad)
        made += files > 0
        if made == RUNS:
            return
    assert made


def test_a_wrong_count_is_seen() -> None:
    (d, *_) = deployments("vllm", "h200-sxm", "deepseek-v3", 8)
    text = manifests("kthena", d)[0].text.replace("nvidia.com/gpu: '8'", "nvidia.com/gpu: '4'")
    assert [one.code for one in report_of(text, "x.yaml").findings if one.severity == "error"] == ["MLA531"]
