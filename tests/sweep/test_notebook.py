"""The notebook under docs runs from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="the extra notebook is not installed")
    client = pytest.importorskip("nbclient", reason="the extra notebook is not installed")
    pytest.importorskip("ipykernel", reason="the extra notebook is not installed")
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    notebook = nbformat.read(REPO / "docs" / "sweep.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # what it shows is made anew
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert any("gives way to" in out.get("text", "") for out in shown)
