"""Text with carets, workflow commands, SARIF, JSON; selecting, ignoring, exit codes."""
# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.report import annotations
from tests.cli.conftest import Run
from tests.lint.conftest import report_of

BAD = (
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-V3 -tp 6 --swap-space 4 --enforce-eager\n"
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "bad.sh").write_text(BAD)
    (tmp_path / "good.sh").write_text("# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 --max-num-seqs 8 --max-model-len 8192\n")  # fmt: skip
    (tmp_path / "warn.sh").write_text("# vLLM 0.33.0\nvllm serve x -tp 8 --max-num-seqs 8 --max-num-seqs 4\n")


def test_text(run: Run) -> None:
    result = run("check", "bad.sh", "--select", "MLA1,MLA402")
    assert result.code == 1
    assert result.out == (
        "bad.sh:3:36: error MLA101 DeepSeek-V3: 128 attention heads do not divide by TP 6 [heads-per-rank]\n"
        "    vllm serve deepseek-ai/DeepSeek-V3 -tp 6 --swap-space 4 --enforce-eager\n"
        "                                       ^^^\n"
        "    help: use TP 1, 2, 4, 8, 16, 32, 64\n"
        "bad.sh:3:42: error MLA402 vLLM 0.33.0 has no flag --swap-space: it exists from 0.9.2 to 0.15.1 [removed-flag]\n"
        "    vllm serve deepseek-ai/DeepSeek-V3 -tp 6 --swap-space 4 --enforce-eager\n"
        "                                             ^^^^^^^^^^^^\n"
    )
    assert result.err == "1 file checked: 2 errors, 0 warnings\n"


def test_exit_codes(run: Run) -> None:
    assert run("check", "good.sh").code == 0
    assert run("check", "warn.sh").code == 0
    assert run("check", "warn.sh", "--strict").code == 1
    assert run("check", "bad.sh").code == 1
    assert run("check", "bad.sh", "--exit-zero").code == 0
    assert run("check", "gone.sh", "--exit-zero").code == 2
    assert run("check", "good.sh", "--chip", "h200-smx").code == 2
    assert run("check", "good.sh", "--engine-version", "new").err.startswith("--engine-version new: no version")
    misspelt = run("check", "good.sh", "--engine-version", "vllm-ascen@0.23.0")
    assert misspelt.code == 2 and "'vllm-ascen'; did you mean 'vllm-ascend'?" in misspelt.err


def test_a_command_line(run: Run) -> None:
    words = "check --chip h200-sxm --devices 8 --model deepseek-v3 -- vllm serve deepseek-ai/DeepSeek-V3"
    result = run(*words.split(), "--tensor-parallel-size", "8", "--block-size", "32", "--enforce-eager")
    assert result.code == 0
    assert "<command>:1:77: warning MLA701 --enforce-eager makes a decode step" in result.out
    assert "<command>:1:61: info MLA503 vLLM 0.11.0 takes FLASHMLA" in result.out
    assert run("check", "--").code == 2
    assert "no launch command of a known engine after --" in run("check", "--", "ls", "-l").err


def test_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    class Stdin:
        buffer = io.BytesIO(BAD.encode())

    monkeypatch.setattr(sys, "stdin", Stdin())
    result = run("check", "-")
    assert result.code == 1
    assert result.out.startswith("<stdin>:3:36: error MLA101")


def test_no_input_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plain.sh").write_text("echo hello\n")
    assert run("check", "plain.sh").code == 2
    assert "holds nothing to check" in run("check", "plain.sh").err
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.yaml").write_text("a: 1\n")
    result = run("check", "d")
    assert (result.code, result.err) == (
        2,
        "nothing to check was found; expected launch scripts, manifests, or specs\n",
    )


def test_select_and_ignore(run: Run) -> None:
    assert "MLA402" not in run("check", "bad.sh", "--ignore", "removed-flag").out
    assert run("check", "bad.sh", "--select", "MLA7").code == 0
    assert run("check", "bad.sh", "--select", "MLA9").code == 2


def test_inline_ignores(run: Run, tmp_path: Path) -> None:
    launch = "vllm serve deepseek-ai/DeepSeek-V3 -tp 6"
    (tmp_path / "a.sh").write_text(f"# vLLM 0.33.0\n{launch} # mlaplan: ignore[MLA101]\n# mlaplan: ignore[heads-per-rank, MLA503]\n{launch}\n")  # fmt: skip
    result = run("check", "a.sh", "--ignore", "MLA004")
    assert result.code == 0
    assert result.out.splitlines()[0] == ("a.sh:3:35: warning MLA003 nothing to ignore here for MLA503 [unused-ignore]")
    assert result.out.count(": warning") == 1


def test_github(run: Run) -> None:
    result = run("check", "warn.sh", "bad.sh", "--format", "github")
    lines = result.out.splitlines()
    kinds = [line.split(" ", 1)[0] for line in lines]
    assert kinds == sorted(kinds, key=["::error", "::warning", "::notice"].index)
    assert lines[0] == (
        "::error file=bad.sh,line=3,col=36,endColumn=39,title=MLA101 heads-per-rank::DeepSeek-V3: 128 attention heads do "
        "not divide by TP 6%0Ahelp: use TP 1, 2, 4, 8, 16, 32, 64"
    )
    assert lines[-1].startswith("::notice title=mlaplan::2 files checked: 2 errors, ")


def test_json(run: Run) -> None:
    data = json.loads(run("check", "bad.sh", "--format", "json", "-o", "-").out)
    assert (data["schema"], data["files"], data["deployments"], data["errors"]) == ("mlaplan.check/1", 1, 1, 2)
    first = data["findings"][0]
    assert (first["code"], first["slug"], first["line"], first["col"]) == ("MLA101", "heads-per-rank", 3, 36)


def test_a_file(run: Run, tmp_path: Path) -> None:
    result = run("check", "bad.sh", "--format", "sarif", "-o", "out.sarif")
    assert (result.code, result.out) == (1, "")
    valid_sarif(json.loads((tmp_path / "out.sarif").read_text()))


LEVELS = {"none", "note", "warning", "error"}


def valid_sarif(log: dict[str, Any]) -> None:
    """What the 2.1.0 schema requires of the parts that are written here."""
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    for run_ in log["runs"]:
        assert set(run_) <= {"tool", "results", "columnKind", "invocations"}
        assert run_["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        assert all(isinstance(one["executionSuccessful"], bool) for one in run_["invocations"])
        driver = run_["tool"]["driver"]
        assert driver["name"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(set(ids)) == len(ids)
        for rule in driver["rules"]:
            assert all(rule[part]["text"] for part in ("shortDescription", "fullDescription", "help"))
            assert rule["defaultConfiguration"]["level"] in LEVELS
        for result in run_["results"]:
            assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations", "properties"}
            assert result["message"]["text"]
            assert result["level"] in LEVELS
            assert ids[result["ruleIndex"]] == result["ruleId"]
            for location in result["locations"]:
                place = location["physicalLocation"]
                assert place["artifactLocation"]["uri"]
                region = place.get("region", {"startLine": 1})
                assert region["startLine"] >= 1
                assert region.get("endColumn", 2) >= region.get("startColumn", 1) >= 1


def test_sarif_of_every_example() -> None:
    from mlaplan.lint.rules import lint_rules

    for rule in lint_rules():
        if rule.bad:
            valid_sarif(annotations.sarif(report_of(rule.bad, rule.file)))


def test_rules(run: Run) -> None:
    assert run("rules").out.splitlines()[1].split()[:2] == ["MLA001", "error"]
    sheet = run("rules", "block-size-kernel").out
    for part in ("MLA503 block-size-kernel (error)", "why ", "fix ", "versions ", "source ", "bad:", "good:"):
        assert part in sheet
    assert run("rules", "MLA999").code == 2
