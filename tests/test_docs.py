"""The pages say what is so: verbs, flags, files, codes, keys, links and the output shown in the README."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from mlaplan import errors
from mlaplan.cli.app import VERBS, command_line
from mlaplan.rules import all_rules
from mlaplan.specs.lookup import FOLDERS, OVERLAY
from mlaplan.strategy import NAMES

REPO = Path(__file__).resolve().parent.parent
README = REPO / "README.md"
PAGES = [README, *sorted((REPO / "docs").glob("*.md"))]
COST_MODEL = REPO / "docs" / "cost-model.md"
NOMENCLATURE = REPO / "docs" / "nomenclature.md"
FORMULAS = sorted([*(REPO / "mlaplan" / "costs").glob("*.py"), *(REPO / "mlaplan" / "serving").glob("*.py")])
FORMULAS = [path for path in FORMULAS if path.read_text("utf-8").strip()]

page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
formula_file = pytest.mark.parametrize("path", FORMULAS, ids=lambda path: f"{path.parent.name}/{path.stem}")


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def section(path: Path, title: str) -> str:
    """What stands under a heading, down to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text_of(path), re.M | re.S)
    assert found, f"{path.name} has no section '{title}'"
    return found[1]


# ---- verbs and flags ----


def commands() -> dict[str, Any]:
    return {
        verb: typer.main.get_command(command_line([verb])).commands[verb]  # type: ignore[attr-defined]
        for verb in VERBS
    }


def test_every_verb_is_in_the_readme() -> None:
    missing = [verb for verb in commands() if f"mlaplan {verb}" not in text_of(README)]
    assert not missing


def engine_flags() -> set[str]:
    """Flags of any engine at any version, and the wrong ones in the examples of rules."""
    from mlaplan.engines.flags import load_flags
    from mlaplan.lint.rules import lint_rules

    known = {flag for name in ("vllm@0.9.2", "vllm@0.33.0", "sglang@0.5.5", "sglang@0.5.23")
             for flag in load_flags(*name.split("@")).lifetimes}  # fmt: skip
    known |= {f"--no-{flag[2:]}" for flag in known if flag.startswith("--")}
    return known.union(*(re.findall(r"--[a-z][a-z-]+", rule.bad + rule.good + rule.fix) for rule in lint_rules()))


@page
def test_every_flag_that_a_page_names_exists(path: Path) -> None:
    known = {flag for c in commands().values() for p in c.params for flag in (*p.opts, *p.secondary_opts)}
    known |= {"--help", "--version", "--no-deps"}  # the last is pip's
    elsewhere = engine_flags()
    known |= set(re.findall(r'add_argument\((?:"-\w", )?"(--[a-z]+)"', text_of(REPO / "benchmarks" / "peers.py")))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text_of(path)))
    assert named - elsewhere <= known


@page
def test_every_command_that_a_page_names_exists(path: Path) -> None:
    named = set(re.findall(r"(?:^ {4}|^\$ |`)(?:\S+/)?mlaplan ([a-z]+)", text_of(path), re.M))
    assert named <= set(commands())


# ---- files ----


def anchors(path: Path) -> set[str]:
    """Headings as GitHub turns them into fragments."""
    titles = re.findall(r"^#+ (.+)$", text_of(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@page
def test_links_within_the_repository_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), target
        if fragment:
            assert fragment in anchors(place), target


@pytest.mark.parametrize(("kind", "what"), [("chip", "chips"), ("model", "models")])
def test_every_shipped_file_is_listed(kind: str, what: str) -> None:
    listed = {row["name"] for row in json.loads(shell(f"mlaplan list {what} --format json"))[what]}
    shipped = {path.stem for path in (REPO / FOLDERS[kind]).glob("*.yaml") if not path.stem.endswith(".cal")}
    assert listed == {name for name in shipped if not name.endswith(OVERLAY)}


@page
def test_no_page_holds_a_path_of_one_machine(path: Path) -> None:
    assert not re.search(r"(?<![\w.])/(home|root|work|tmp|usr|opt|Users)/", text_of(path))


# ---- what the pages show ----

SHOWN = re.compile(r"^```\n\$ (mlaplan (?:[^\n]*\\\n)*[^\n]*)\n(.*?)^```$", re.M | re.S)


@cache
def shell(command: str) -> str:
    """What a shell prints for a command line with pipes, in 80 columns; paths as seen from the repository."""
    env = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "80", "NO_COLOR": "1", "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-c", f'mlaplan() {{ "$PYTHON" -m mlaplan "$@"; }}\n{command}'],
        cwd=REPO, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{REPO}{os.sep}", "").rstrip("\n") + "\n"


@page
def test_a_page_shows_what_the_commands_print(path: Path) -> None:
    """With MLAPLAN_UPDATE=1 in the environment the page is brought up to date instead."""
    if os.environ.get("MLAPLAN_UPDATE"):
        fresh = SHOWN.sub(lambda m: f"```\n$ {m[1]}\n{shell(m[1])}```", text_of(path))
        path.write_text(fresh, "utf-8")
        text_of.cache_clear()
    assert "\n$ mlaplan" not in SHOWN.sub("", text_of(path))  # every example is recognised
    for shown in SHOWN.finditer(text_of(path)):
        assert shown[2] == shell(shown[1]), "MLAPLAN_UPDATE=1 pytest tests/test_docs.py brings it up to date"


def test_the_readme_shows_a_recommendation_in_eighty_columns() -> None:
    shown = [m[2] for m in SHOWN.finditer(text_of(README))]
    assert any("tok/s" in output for output in shown)
    assert max(len(line) for output in shown for line in output.splitlines()) <= 80


def test_the_keys_that_the_readme_names_are_in_the_output() -> None:
    listed = section(README, "Machine formats")
    named = re.findall(r"^\| `([a-z]+)` \| `(mlaplan\.[a-z]+/\d+)` \| (.+) \|$", listed, re.M)
    assert {verb for verb, _, _ in named} == set(EXAMPLES)
    for verb, schema, keys in named:
        document = json.loads(shell(f"mlaplan {EXAMPLES[verb]} --format json"))
        assert document["schema"] == schema
        for path in re.findall(r"`([^`]+)`", keys):
            assert holds(document, path), f"{verb}: no {path}"


EXAMPLES = {
    "recommend": "recommend deepseek-v3 h200-sxm --devices 16 --isl 4096 --osl 1024 --concurrency 512"
    " --tpot 60ms --ttft 5s",
    "explain": "explain deepseek-v3 h200-sxm --tp 8 --dp 2 --ep 16 --batch 32 --isl 4096 --osl 1024 --concurrency 64",
    "report": "report deepseek-v2-lite h200-sxm --devices 1 --isl 512 --osl 128 --concurrency 4",
    "compare": "compare deepseek-v2-lite --chips h200-sxm,h100-sxm --devices 1 --isl 512 --osl 128 --concurrency 4",
    "show": "show deepseek-v3",
    "list": "list chips",
    "check": "check models/deepseek-v3.yaml",
    "simulate": "recommend deepseek-v2-lite h100-sxm --devices 2 --concurrency 8 -o /dev/null --save-plan /dev/stdout"
    " | mlaplan simulate /dev/stdin --isl 500 --osl 50 --requests 20",
}


def holds(document: Any, path: str) -> bool:
    """Whether a document has a key path such as `plans[].served.tpot_s.value`."""
    for step in path.split("."):
        name, _, index = step.partition("[")
        if not isinstance(document, dict) or name not in document:
            return False
        document = document[name]
        if index:
            if not isinstance(document, list) or not document:
                return False
            document = document[0]
    return True


def test_the_exit_codes_are_told() -> None:
    listed = dict(re.findall(r"^\| (\d+) \| (.+) \|$", section(README, "Exit codes"), re.M))
    codes = (errors.EXIT_OK, errors.EXIT_FINDINGS, errors.EXIT_USAGE, errors.EXIT_INTERRUPT)
    assert set(listed) == {str(code) for code in codes}


# ---- vocabulary ----


def test_every_rule_is_in_the_nomenclature_as_it_stands() -> None:
    listed = re.findall(r"^\| (MLA\d{3}) \| ([\w-]+) \| (.+) \|$", text_of(NOMENCLATURE), re.M)
    assert listed == [(rule.code, rule.slug, rule.reason) for rule in all_rules()]


def test_every_column_of_a_strategy_is_in_the_nomenclature() -> None:
    listed = re.findall(r"^\| (\w+) \|", section(NOMENCLATURE, "Strategy"), re.M)
    assert set(NAMES) <= set(listed)


# ---- formulas ----


@formula_file
def test_the_cost_model_names_the_file_and_its_sources(path: Path) -> None:
    source, told = path.read_text("utf-8"), text_of(COST_MODEL)
    papers = set(re.findall(r"\d{4}\.\d{5}", source))
    assert papers <= set(re.findall(r"\d{4}\.\d{5}", told))
    if papers:
        assert f"{path.parent.name}/{path.name})" in told


def test_the_equations_of_the_served_workload_stand_in_the_cost_model() -> None:
    source = (REPO / "mlaplan" / "serving" / "steady.py").read_text("utf-8")
    told = " ".join(section(COST_MODEL, "Served workload").split())
    equations = re.findall(r"^ {4}(\w+ += .+?)(?: {4,}.*)?$", ast.get_docstring(ast.parse(source)) or "", re.M)
    assert len(equations) >= 3
    for equation in equations:
        assert " ".join(equation.split()) in told


UNIT_OF_NAME = {"[s]": ("_s", "_times"), "[B]": ("_bytes",), "[FLOP]": ("_flops",)}


@formula_file
def test_every_formula_tells_its_meaning_and_unit(path: Path) -> None:
    """Public functions that give a number have a docstring, and its unit is the one in the name."""
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or node.returns is None:
            continue
        told = ast.get_docstring(node)
        if ast.unparse(node.returns) in ("Numeric", "float", "int"):
            assert told, f"{node.name} has no docstring"
        for unit, suffixes in UNIT_OF_NAME.items():
            if told and unit in told.splitlines()[0] and ast.unparse(node.returns) in ("Numeric", "float"):
                assert any(suffix in node.name for suffix in suffixes), f"{node.name} is told in {unit}"
