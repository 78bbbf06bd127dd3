"""Other tools on the same rows: the page shows the committed figures, and those of mlaplan are of today."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from mlaplan.report import peers_table
from mlaplan.validation import peers

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "accuracy.md"
ANEW = "run `python benchmarks/peers.py --update`"
TOLERANCE = 5e-4  # of a mean error; figures are written with four digits


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPO / "benchmarks"))


@pytest.fixture
def script():
    """The script as a module."""
    import peers as found

    assert Path(found.__file__) == REPO / "benchmarks" / "peers.py"
    yield found
    sys.modules.pop("peers")


def test_the_page_shows_the_data_file():
    text = PAGE.read_text("utf-8")
    data = peers.committed()
    assert data["schema"] == peers.SCHEMA
    assert peers_table.markdown(data) in text, ANEW
    assert peers_table.versions(data) in text, ANEW
    assert data["versions"]["aiconfigurator-core"] == "0.12.0"


def test_bars_and_table_tell_the_same_of_the_served_rows():
    text = PAGE.read_text("utf-8")
    for engine, title in (("sglang", "SGLang"), ("trtllm", "TensorRT-LLM")):
        bar = re.search(rf"R1 on 8 H200, {title} rows, TPOT \| [^|]* \| ([\d.]+)%", text)
        assert bar is not None
        own = peers.of(f"served:{engine}:tpot")[0]["figures"]["mlaplan"]["mape"]
        assert own == pytest.approx(float(bar[1]) / 100, abs=TOLERANCE + 5e-4), ANEW


def test_own_figures_on_the_tables_of_h800_and_h20_are_of_today():
    from peer.groups import of_points

    for group in of_points(None):
        data = group.data()
        written = peers.of(data["id"])[0]
        assert data["rows"] == written["rows"], ANEW
        for name in ("mape", "bias", "median"):
            assert data["figures"]["mlaplan"][name] == pytest.approx(written["figures"]["mlaplan"][name], abs=1e-3), (
                ANEW
            )


def test_a_better_peer_is_named_and_a_part_of_the_rows_is_not_the_whole():
    def told(rows: int, mape: float) -> dict[str, float]:
        return {"rows": rows, "mape": mape, "bias": -mape, "median": mape}

    figures = {"mlaplan": told(9, 0.05), "aiconfigurator_sol": told(9, 0.6), "aiconfigurator_default": told(9, 0.03),
               "infersim": told(4, 0.01)}  # fmt: skip
    group = {"id": "a", "part": "tables", "title": "rows", "rows": 9, "figures": figures}
    assert peers_table.least(group) == "aiconfigurator, default"
    row = peers_table.markdown({"groups": [group]}).splitlines()[4]
    assert row == (
        "| rows | 9 | 5.0% (-5%) | 60.0% (-60%) | 3.0% (-3%) | 1.0% (-1%), 4 rows | aiconfigurator, default |"
    )


def test_errors_of_a_group_count_only_answers():
    from peer.figures import Group

    group = Group("g", "tables", "g")
    first, second = np.array([1.0, 2.0]), np.array([4.0])
    group.add(first, mlaplan=np.array([1.1, 1.8]), aiconfigurator_sol="no such chip", infersim="no such chip")
    group.add(second, mlaplan=second, aiconfigurator_sol=np.array([2.0]), infersim="not asked")
    found = group.data()["figures"]
    assert found["mlaplan"] == {"rows": 3, "mape": 0.0667, "bias": 0.0, "median": 0.1}
    assert found["aiconfigurator_sol"] == {"rows": 1, "mape": 0.5, "bias": -0.5, "median": 0.5}
    assert found["infersim"] == {"why_not": "no such chip"}
    assert found["aiconfigurator_default"] == {"why_not": "not run"}


def test_ids_name_whole_groups():
    assert {g["id"] for g in peers.of("all_reduce")} == {"all_reduce"}
    assert {g["id"] for g in peers.of("gemm:sglang:fp8")} == {"gemm:sglang:fp8"}
    assert len(peers.of("mla_decode")) == 4
    assert peers.elsewhere() == ""
    assert peers.elsewhere("h800-profile") == "InferSim 15%"


def one_line(text: str) -> str:
    assert text.endswith("\n") and text.count("\n") == 1 and "Traceback" not in text
    return text


@pytest.mark.parametrize(("version", "says"), [(None, "is not installed"), ("0.11.0", "is 0.11.0")])
def test_a_missing_package_is_one_line_and_exit_code_2(script, version, says, monkeypatch, capsys):
    from peer import aic

    monkeypatch.setattr(aic, "installed", lambda: version)
    assert script.main([]) == 2
    told = one_line(capsys.readouterr().err)
    assert says in told and "mlaplan[silicon]" in told


def test_a_folder_that_is_no_checkout_is_one_line(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "_missing", lambda: None)
    assert script.main(["--infersim", str(tmp_path)]) == 2
    assert "has no main.py; expected a checkout of alibaba/InferSim" in one_line(capsys.readouterr().err)
    assert script.main(["--update", "--format", "json"]) == 2
    assert "--update" in one_line(capsys.readouterr().err)


def test_an_update_without_infersim_keeps_its_figures_of_the_same_rows(script):
    def data(rows: int, theirs: dict[str, object], **versions: str) -> dict[str, object]:
        return {"versions": versions, "groups": [{"id": "a", "rows": rows, "figures": {"infersim": theirs}}]}

    before = data(3, {"rows": 3, "mape": 0.1}, InferSim="f2293da")
    same, other = data(3, {"why_not": "not run"}), data(4, {"why_not": "not run"})
    assert script.kept(same, before) == 1
    assert same["groups"] == before["groups"] and same["versions"] == {"InferSim": "f2293da"}
    assert script.kept(other, before) == 0
    assert other["groups"][0]["figures"]["infersim"] == {"why_not": "not run"} and not other["versions"]
