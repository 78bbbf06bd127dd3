"""What `--disagg` finds, as commands and manifests: the plan's own copies and devices, nothing for `check` to say.

Drawn over chips, also of two kinds, models, engines, connectors and loads.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from mlaplan.cli import emitting_apart
from mlaplan.engines import load_profile, parse
from mlaplan.engines.connectors import chips_told, connectors
from mlaplan.errors import MlaplanError
from mlaplan.fleet.crossover import Both
from mlaplan.fleet.decision import Decision, decide
from mlaplan.fleet.split import Ask
from mlaplan.manifests import KINDS, manifests
from mlaplan.plan import question, recommend
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.workload import Overrides, Workload
from tests.lint.conftest import report_of
from tests.manifests.plans import ENGINES, devices, groups
from tests.manifests.test_checked import KNOWN

PAIRS = (
    ("h200-sxm", "h200-sxm"), ("h100-sxm", "h200-sxm"), ("b200-sxm", "b200-sxm"), ("mi300x", "mi300x"),
    ("ascend-910b3", "ascend-910b3"), ("ascend-910b3", "ascend-910b4"), ("ascend-910c-die", "ascend-910c-die"),
)  # fmt: skip
MODELS = ("deepseek-v3", "kimi-k2", "deepseek-v2-lite", "glm-4.7-flash", "llama-3-70b", "qwen2.5-72b")
WORK = (Workload(2000, 300), Workload(8000, 200, concurrency=64), Workload(3000, 500, rate=1.0))
RUNS = 2  # splits of an engine


def splits(engine: str) -> Iterator[tuple[str, Decision]]:
    """Splits of an engine, in an order that is its own."""
    profile = load_profile(engine)
    drawn = list(itertools.product(PAIRS, MODELS, (8, 16), WORK))
    random.Random(engine).shuffle(drawn)
    for (first, second), model, count, work in drawn:
        chips = [load_chip(name, (), engine.split("@")[0]) for name in (first, second)]
        if any(c.efficiency_class not in profile.runs_on or c.name in profile.not_on for c in chips):
            continue
        p, d = (question(c, load_model(model), profile, work, Overrides()) for c in chips)
        for c in connectors(engine, chips[1].efficiency_class):
            if chips_told(c, *chips) is not None:
                continue
            both = Both(d, p, d, Ask(count, c.sends, None, c), {}, {}, None)  # type: ignore[arg-type]
            found = decide(recommend(d, count, top=1), both, Overrides(), "on", curve=False)
            if found.split is not None:
                yield f"{model} on {count} x {first}:{second} by {c.name}", found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_split_is_emitted_as_it_was_planned(engine: str) -> None:
    made = 0
    for told, found in splits(engine):
        s = found.split
        assert s is not None
        launch = emitting_apart.commands(found, engine)
        if launch.problem is not None:  # in words: what the engine cannot express of one pool
            assert launch.problem.strip() and "Traceback" not in launch.problem
            continue
        made += 1
        sides = {"prefill": s.prefill, "decode": s.decode}
        for text in launch.commands[:-1]:
            if text.splitlines()[-1].startswith("ray start"):
                continue
            plan = parse(engine, text, attention="gqa" if "llama" in told or "qwen" in told else "mla")
            one = sides[plan["handover"].role].strategy
            shown = {name: plan[name] for name in ("tp", "pp", "dp", "batch", "kv_dtype", "block_size", "mtp")}
            assert shown == {name: getattr(one, name) for name in shown}, told
            report = report_of(text, "pool.sh")
            bad = [f.head() for f in report.findings if f.code not in {"MLA004", *KNOWN}]  # no chip in a command
            assert not bad, (told, bad)
        for kind in KINDS:
            deployment = emitting_apart.deployment(found, engine)
            try:
                written = manifests(kind, deployment)
            except MlaplanError as error:
                assert "router" in str(error) or "alike" in str(error), (told, error)
                continue
            for role, copies, pods, leader, worker in groups(kind, written):
                side = sides[role]
                of_copy = devices(leader) + (pods - 1) * (devices(worker) if worker else 0)
                assert (copies, copies * of_copy) == (side.instances, side.chips), told
            assert deployment.chips == s.chips
            for one in written:
                bad = [f.head() for f in report_of(one.text, one.name).findings if f.code not in KNOWN]
                unlabelled = not deployment.one_kind and "nodeSelector" not in one.text  # its chips are to be filled in
                assert not bad or (unlabelled and all("MLA004" in b for b in bad)), (told, kind, bad)
        if made == RUNS:
            return
    assert made
