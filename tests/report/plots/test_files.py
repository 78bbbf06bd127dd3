"""Pictures are deterministic files without a date, in every form, whatever the user's own settings are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlaplan.errors import MlaplanError
from mlaplan.report.picture import save
from tests.report.plots.examples import one_front

REPO = Path(__file__).resolve().parents[3]
DRAW = """
import sys
from mlaplan.report.picture import save
from tests.report.plots.examples import EXAMPLES
for kind in ("pareto", "heatmap", "breakdown"):
    module, data = EXAMPLES[kind]
    figure = module.figure(data(), 3.3)
    for form in ("svg", "png", "pdf"):
        save(figure, f"{sys.argv[1]}/{kind}.{form}")
assert "matplotlib.pyplot" not in sys.modules
"""


def drawn(folder: Path, seed: str, settings: str) -> dict[str, bytes]:
    folder.mkdir()
    (folder / "matplotlibrc").write_text(settings)
    env = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONHASHSEED": seed, "MATPLOTLIBRC": str(folder)}
    subprocess.run([sys.executable, "-c", DRAW, str(folder)], env=env, check=True, timeout=600, cwd=REPO)
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name != "matplotlibrc"}


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    first = drawn(tmp_path / "a", "1", "")
    second = drawn(tmp_path / "b", "2", "font.size: 20\nlines.linewidth: 9\naxes.prop_cycle: cycler(color=['r'])\n")
    assert len(first) == 9
    assert first == second
    for name, content in first.items():
        assert b"dc:date" not in content and b"CreationDate" not in content, name


def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    from mlaplan.report.plots import pareto

    figure = pareto.figure(one_front())
    target = tmp_path / "front.svg"
    target.write_text("old")
    with pytest.raises(MlaplanError, match="cannot be drawn"):
        save(figure, str(tmp_path / "none" / "front.svg"))
    with pytest.raises(MlaplanError, match="cannot be drawn"):
        save(figure, str(tmp_path / "front.xyz"))
    assert target.read_text() == "old"
    save(figure, str(target))
    assert target.read_text().startswith("<?xml")
    assert [p.name for p in tmp_path.iterdir()] == ["front.svg"]
