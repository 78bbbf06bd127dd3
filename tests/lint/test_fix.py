"""Safe edits as a diff and in the file; findings that a baseline accepts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

OLD = "# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 --disable-log-requests \\\n  --swap-space 4\n"
NEW = OLD.replace("--disable-log-requests", "--no-enable-log-requests")


def test_a_diff_changes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(OLD)
    result = run("check", "a.sh", "--fix")
    assert result.code == 1
    assert result.out.splitlines() == [
        "--- a.sh", "+++ a.sh", "@@ -1,3 +1,3 @@", " # vLLM 0.33.0",
        "-vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --disable-log-requests \\",
        "+vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --no-enable-log-requests \\",
        "   --swap-space 4",
    ]  # fmt: skip
    assert (tmp_path / "a.sh").read_text() == OLD


def test_edits_are_written_with_the_files_own_line_ends(run: Run, tmp_path: Path) -> None:
    for name, end, mark in (("unix.sh", "\n", ""), ("dos.sh", "\r\n", "\ufeff")):
        (tmp_path / name).write_bytes((mark + OLD.replace("\n", end)).encode())
        result = run("check", name, "--fix", "--write")
        assert f"{name}: 1 edited" in result.err
        assert (tmp_path / name).read_bytes() == (mark + NEW.replace("\n", end)).encode()
        assert run("check", name, "--fix").out == ""


def test_a_position_in_a_folded_text_is_edited(run: Run, tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - image: vllm/vllm-openai:v0.33.0\n"
        "      command: [sh, -c]\n      args:\n        - >-\n          vllm serve deepseek-ai/DeepSeek-V3 -tp 8\n"
        "          --disable-log-requests --max-model-len 8192\n"
    )
    (tmp_path / "a.yaml").write_text(text)
    run("check", "a.yaml", "--fix", "--write")
    assert (tmp_path / "a.yaml").read_text() == text.replace("--disable-log", "--no-enable-log")


def test_a_place_that_holds_another_word_is_left_alone(run: Run, tmp_path: Path) -> None:
    """An escape in a quoted text moves what follows; a key of a config file is no flag."""
    script = '"vllm serve m \\x2d-disable-log-requests --swap-space 4"'
    texts = {
        "a.yaml": "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - image: vllm/vllm-openai:v0.33.0\n"
        f"      command: [sh, -c, {script}]\n",
        "b.yaml": "# vLLM 0.33.0\nmodel: m\ntensor-parallel-size: 8\nmax-num-seqs: 8\ndisable-log-requests: true\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        run("check", name, "--fix", "--write")
        assert (tmp_path / name).read_text() == text


def test_write_goes_with_fix(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(OLD)
    assert run("check", "a.sh", "--write").code == 2


def test_a_baseline(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(OLD)
    assert run("check", "a.sh", "--write-baseline", "known.json").code == 0
    assert json.loads((tmp_path / "known.json").read_text())["schema"] == "mlaplan.baseline/1"
    (tmp_path / "a.sh").write_text("\n\n" + OLD)
    result = run("check", "a.sh", "--baseline", "known.json")
    assert (result.code, result.out) == (0, "")
    assert "in the baseline" in result.err
    (tmp_path / "a.sh").write_text(OLD + "vllm serve deepseek-ai/DeepSeek-V3 --swap-space 9\n")
    assert run("check", "a.sh", "--baseline", "known.json").out.count(": error") == 1
    (tmp_path / "known.json").write_text("{}")
    assert run("check", "a.sh", "--baseline", "known.json").err.startswith("known.json: no baseline")
    assert run("check", "a.sh", "--baseline", "gone.json").code == 2
