"""`mlaplan check`: findings, exit codes, folders, and the report for scripts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "toy-chip.yaml", tmp_path / "good.yaml")
    text = (FIXTURES / "toy-chip.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(text.replace("80 GB,", "80 GB/s,").replace("vendor:", "vendro:"))
    (tmp_path / "warn.yaml").write_text(text.replace("value: 200 TFLOPS", "value: 400 TFLOPS"))


def test_clean_files(run: Run) -> None:
    result = run("check", "good.yaml", str(FIXTURES / "toy-model.yaml"))
    assert (result.code, result.out) == (0, "")
    assert result.err == "2 files checked: 0 errors, 0 warnings\n"


def test_findings(run: Run) -> None:
    result = run("check", "good.yaml", "bad.yaml")
    assert result.code == 1
    assert result.out.splitlines() == [
        "bad.yaml:4:1: unknown key 'vendro'; did you mean 'vendor'?",
        "bad.yaml:14:21: memory.capacity.value: '80 GB/s' is a rate in bytes per second; "
        "expected a size in bytes such as '80 GB'",
    ]
    assert result.err == "2 files checked: 2 errors, 0 warnings\n"


def test_warnings_do_not_fail(run: Run) -> None:
    result = run("check", "warn.yaml")
    assert result.code == 0
    assert result.out.startswith("warn.yaml:11:16: warning: peak.fp8: 400 TFLOPS looks like a sparsity figure")
    assert result.err == "1 file checked: 0 errors, 1 warning\n"


def test_a_missing_file_is_2_and_the_others_are_checked(run: Run) -> None:
    result = run("check", "gone.yaml", "bad.yaml")
    assert result.code == 2
    assert result.out.count("\n") == 2
    assert result.err == "gone.yaml: no such file\n1 file checked: 3 errors, 0 warnings, 1 not readable\n"


def test_bad_bytes_are_findings(run: Run) -> None:
    Path("nul.yaml").write_bytes(b"kind: chip\nname: a\0b\n")
    Path("utf16.yaml").write_text("kind: chip", encoding="utf-16")
    Path("big.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    result = run("check", "nul.yaml", "utf16.yaml", "big.yaml")
    assert result.code == 1
    assert result.out.splitlines() == [
        "nul.yaml:2:8: the text holds a NUL character; expected plain text",
        "utf16.yaml: is encoded in UTF-16; expected UTF-8",
        "big.yaml: is larger than 1 MiB; expected a spec of at most 1 MiB",
    ]


def test_a_folder_is_its_specs_and_config_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a spec")
    (tmp_path / "generation_config.json").write_text("{}")
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": }')
    result = run("check", ".")
    assert result.code == 1
    assert result.err.startswith("4 files checked: 3 errors, 1 warning")
    assert "config.json:1:40: not valid JSON: unexpected '}'; expected a value" in result.out.splitlines()


def test_no_matching_input_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run("check", "empty")
    assert result.code == 2
    assert result.err == "empty: holds nothing to check; expected *.yaml, *.yml, *.sh or config.json\n"
    assert run("check").code == 2
    assert run("check", "").err == "an empty file name; expected a file or a folder\n"


def test_an_architecture_without_a_cost_model_is_a_warning(run: Run) -> None:
    result = run("check", str(FIXTURES / "configs" / "compressed_mqa.json"))
    assert result.code == 0
    assert "can be read but not priced" in result.out
    assert result.err == "1 file checked: 0 errors, 1 warning\n"


def test_the_same_file_twice_is_told_once(run: Run) -> None:
    assert run("check", "bad.yaml", "bad.yaml").out.count("\n") == 2


def test_json(run: Run) -> None:
    result = run("check", "bad.yaml", "warn.yaml", "gone.yaml", "--format", "json")
    data = json.loads(result.out)
    assert (data["schema"], data["files"], data["errors"], data["warnings"]) == ("mlaplan.check/1", 2, 3, 1)
    assert data["problems"][0] == {
        "file": "bad.yaml",
        "line": 4,
        "col": 1,
        "severity": "error",
        "code": None,
        "message": "unknown key 'vendro'",
        "expected": None,
        "hint": "did you mean 'vendor'?",
    }
    assert data["problems"][-1]["file"] == "gone.yaml"
    assert result.code == 2
