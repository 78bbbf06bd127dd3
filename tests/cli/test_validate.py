"""The verb `validate`: tables, bars, formats, the gate, and files of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_kernels_by_group(run: Run) -> None:
    result = run("validate", "--set", "kernels")
    assert result.code == 0
    assert "mla-decode" in result.out and "experts-h800" in result.out
    assert "in band" in result.out
    assert "r1-h200" not in result.out  # bars of other sets


@pytest.mark.parametrize(("by", "line"), [("chip", "h800-sxm"), ("engine", "generic")])
def test_one_line_for_each(run: Run, by: str, line: str) -> None:
    result = run("validate", "--set", "collectives", "--by", by)
    assert f"by {by}" in result.out and line in result.out


def test_json_holds_every_point(run: Run) -> None:
    result = run("validate", "--set", "collectives", "--set", "steps", "--format", "json")
    data = json.loads(result.out)
    assert data["schema"] == "mlaplan.validate/1"
    assert data["sets"] == ["collectives", "steps"]
    one = next(p for p in data["points"] if p["id"] == "ds-profile-decode")
    assert one["measured"] == 2324 and one["predicted"]["low"] < one["predicted"]["value"]
    assert one["error"] == pytest.approx(one["predicted"]["value"] / 2324 - 1)
    assert one["source"].startswith("https://") and one["terms_s"]
    bar = next(b for b in data["bars"] if b["id"] == "dsv3-h800")
    assert bar["points"] == ["ds-profile-prefill", "ds-profile-decode"]


def test_the_gate_fails_where_a_bar_is_missed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlaplan.validation import bars

    monkeypatch.setattr(
        bars, "of_points", lambda *_: [bars.Bar("x", "kernels", "t", "l", "v", False, why=("because",))]
    )
    result = run("validate", "--set", "kernels", "--gate")
    assert result.code == 1
    assert "MISSED" in result.out and "because" in result.out
    assert run("validate", "--set", "kernels").code == 0
    monkeypatch.setattr(bars, "of_points", lambda *_: [bars.Bar("x", "kernels", "t", "l", "v", True)])
    assert run("validate", "--set", "kernels", "--gate").code == 0


def test_markdown_and_plot(run: Run, tmp_path: Path) -> None:
    result = run("validate", "--set", "collectives", "--format", "md", "-o", "page.md", "--plot", "parity.svg")
    assert result.code == 0
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Accuracy") and "| expert-parallel |" in page and "InferSim" in page
    assert "<svg" in (tmp_path / "parity.svg").read_text()


def test_articles_stand_alone(run: Run) -> None:
    result = run("validate", "--set", "articles", "--format", "json")
    assert result.code == 0
    claims = json.loads(result.out)["claims"]
    assert {"article", "claim", "verdict", "reason"} <= set(claims[0])
    assert run("validate", "--set", "articles").out.strip()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--measured", "bench.json"], "--measured and --plan go together"),
        (["--plan", "plan.json"], "--measured and --plan go together"),
        (["--measured", "bench.json", "--plan", "plan.json", "--gate"], "takes no --gate"),
        (["--set", "articles", "--gate"], "stands alone"),
        (["--set", "kernel"], "'kernel' is not one of"),
        (["--measured", "none.json", "--plan", "none.json"], "none.json: cannot be read"),
        (["--set", "collectives", "--plot", "nowhere/parity.svg"], "nowhere/parity.svg: cannot be written: there is"),
        (["--set", "collectives", "--plot", "parity.xyz"], "parity.xyz: cannot be drawn: expected a name"),
    ],
)
def test_bad_usage_is_one_line(run: Run, arguments: list[str], said: str) -> None:
    result = run("validate", *arguments)
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err
