"""What each verb imports: names, not times, since a slow import hides on a fast machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlaplan.cli.app import VERBS
from mlaplan.cli.check import check

REPO = Path(__file__).resolve().parent.parent
HEAVY = {"numpy", "pandas", "matplotlib", "rich", "pydantic", "yaml", "ml_dtypes"}


def modules(arguments: list[str], folder: Path) -> set[str]:
    """Modules that one command imports, in a fresh interpreter in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "mlaplan", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rsplit("|", 1)[1].strip() for line in lines}
    assert "mlaplan" in names  # the trace is there
    return names


def imported(arguments: list[str], folder: Path) -> set[str]:
    """Top-level packages that one command imports."""
    return {name.split(".")[0] for name in modules(arguments, folder)}


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["recommend", "--help"], set()),
        (["report", "--help"], set()),
        (["compare", "--help"], set()),
        (["plot", "--help"], set()),
        (["check", str(REPO / "hardware" / "h200-sxm.yaml")], {"yaml"}),
        (["check", str(REPO / "models" / "deepseek-v3.yaml")], {"yaml"}),
        # files that are shipped were validated before
        (["list", "chips"], {"yaml"}),
        (["list", "models"], {"yaml"}),
        (["show", "h200-sxm"], {"yaml"}),
        (["show", "deepseek-v3"], {"yaml"}),
        (["new", "chip", "mine"], set()),
    ],
    ids=lambda value: " ".join(value).replace(str(REPO), "") if isinstance(value, list) else "",
)
def test_a_verb_imports_no_more_than_it_needs(arguments: list[str], needed: set[str], tmp_path: Path) -> None:
    assert imported(arguments, tmp_path) & HEAVY <= needed


SCRIPT = "# vLLM 0.33.0\nvllm serve some/model --tensor-parallel-size 8\n"
POD = """apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  containers:
    - name: server
      image: vllm/vllm-openai:v0.33.0
      args: [--model, some/model, --tensor-parallel-size, "8"]
      resources: {limits: {nvidia.com/gpu: 8}}
"""
# slow to import, and nothing that reading and judging a launch takes
NEVER = {"asyncio", "decimal", "email", "fractions", "http", "importlib.metadata", "json", "logging", "multiprocessing",
         "statistics", "mlaplan.engines.request", "mlaplan.explain", "mlaplan.plan", "mlaplan.search",
         "mlaplan.simulation", "mlaplan.specs.hf"}  # fmt: skip
PRICES = {"numpy", "mlaplan.costs.engine", "mlaplan.costs.step", "mlaplan.lint.pricing"}


@pytest.mark.parametrize("text", [SCRIPT, POD], ids=["script", "manifest"])
@pytest.mark.parametrize(
    ("options", "prices"),
    [
        ("", False),
        ("--model deepseek-v3", False),  # rules on degrees
        ("--model deepseek-v3 --chip h200-sxm", True),  # what memory holds
    ],
)
def test_checking_a_launch_imports_the_cost_model_only_for_rules_that_compute(
    text: str, options: str, prices: bool, tmp_path: Path
) -> None:
    name = "serve.sh" if text is SCRIPT else "pod.yaml"
    (tmp_path / name).write_text(text)
    found = modules(["check", name, *options.split()], tmp_path)
    assert {one.split(".")[0] for one in found} & HEAVY == ({"yaml", "numpy"} if prices else {"yaml"})
    assert found & PRICES == (PRICES if prices else set())
    assert not found & NEVER


def test_typer_compiles_no_annotation_of_check() -> None:
    assert not [name for name, told in check.__annotations__.items() if isinstance(told, str)]


@pytest.mark.parametrize(
    ("arguments", "verbs"), [(["--help"], set()), (["--version"], set()), (["list", "chips"], {"list_"})], ids=str
)
def test_only_the_verb_that_was_asked_for_is_imported(arguments: list[str], verbs: set[str], tmp_path: Path) -> None:
    # the trace of imports does not show those by name
    code = f"import sys, mlaplan.__main__ as m; m.main({arguments!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = done.stderr.split()
    names = {"list_" if verb == "list" else verb for verb in VERBS}
    assert {name for name in names if f"mlaplan.cli.{name}" in found} == verbs


@pytest.mark.parametrize(
    "words",
    [
        "explain deepseek-v3 h200-sxm --tp 8 --batch 8 --context 4096 --format json",
        "recommend deepseek-v2-lite h200-sxm --devices 2 --isl 512 --osl 128",
    ],
    ids=lambda words: words.split()[0],
)
def test_pricing_takes_numpy_and_no_table_or_plot_library(words: str, tmp_path: Path) -> None:
    found = modules(words.split(), tmp_path)
    assert "numpy" in found
    assert not found & {"pandas", "matplotlib", "rich", "ml_dtypes", "scipy", "pydantic"}
    assert "numpy.ma" not in found
    # the study of query chunks is a line of `explain`, and of no list of plans
    assert ("mlaplan.costs.overlap" in found) == words.startswith("explain")
