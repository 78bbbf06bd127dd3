"""Files for continuous integration: they name options that exist, and match what is printed."""
# ruff: noqa: E501

from __future__ import annotations

import json
import re
from pathlib import Path

import typer
import yaml

from mlaplan.cli.app import command_line
from mlaplan.lint.rules import lint_rules
from mlaplan.report.check_text import text
from tests.cli.conftest import Run
from tests.lint.conftest import report_of

REPO = Path(__file__).parents[2]


def options() -> set[str]:
    check = typer.main.get_command(command_line(["check"])).commands["check"]  # type: ignore[attr-defined]
    return {flag for parameter in check.params for flag in parameter.opts}


def test_the_hook() -> None:
    (hook,) = yaml.safe_load((REPO / ".pre-commit-hooks.yaml").read_text())
    words = hook["entry"].split()
    assert words[:2] == ["mlaplan", "check"]
    assert set(words[2:]) <= options()
    assert re.search(hook["files"], "k8s/deploy.yaml")
    assert not re.search(hook["files"], "main.py")


def test_changed_files_without_deployments_pass(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("echo hello\n")
    (tmp_path / "b.yaml").write_text("a: 1\n")
    result = run("check", "--changed", "a.sh", "b.yaml")
    assert (result.code, result.out) == (0, "")
    (tmp_path / "c.sh").write_text("vllm serve deepseek-ai/DeepSeek-V3 -tp 6\n")
    assert run("check", "--changed", "a.sh", "c.sh").code == 1


def test_the_action() -> None:
    action = yaml.safe_load((REPO / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    commands = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    used = {
        word for command in commands if "mlaplan check" in command for word in re.findall(r"(?<!\S)--?[a-z-]+", command)
    }
    assert used <= options()
    inputs = {name for command in (json.dumps(step) for step in action["runs"]["steps"]) for name in re.findall(r"inputs\.([\w-]+)", command)}  # fmt: skip
    assert inputs == set(action["inputs"])
    assert all("${{" not in command for command in commands), "inputs reach the shell through the environment only"


def test_the_problem_matcher() -> None:
    (matcher,) = json.loads((REPO / "docs" / "ci" / "problem-matcher.json").read_text())["problemMatcher"]
    pattern = matcher["pattern"][0]
    for rule in lint_rules():
        if rule.bad:
            heads = [
                line for line in text(report_of(rule.bad, rule.file)).splitlines() if re.match(rf"{rule.file}:", line)
            ]
            assert heads
            for line in heads:
                match = re.fullmatch(pattern["regexp"], line)
                assert match, line
                assert match[pattern["file"]] == rule.file
                assert match[pattern["line"]].isdigit()
