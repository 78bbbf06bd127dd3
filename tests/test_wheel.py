"""Which copy of the shipped chips and models is read: the repository's in development, else the wheel's.

An editable install also copies the data to site-packages, where it goes stale: it must never be read. The
wheel itself is built and run by .ci/run, since building one takes a network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mlaplan.specs import lookup

REPO = Path(__file__).resolve().parent.parent


def run(arguments: list[str], folder: Path, path: list[Path]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-m", "mlaplan", *arguments],
        cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package laid out as the wheel's settings say, with no repository around it."""
    site = tmp_path / "site"
    shutil.copytree(REPO / "mlaplan", site / "mlaplan", ignore=shutil.ignore_patterns("__pycache__"))
    settings = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert set(included) == set(lookup.FOLDERS.values())
    for source, target in included.items():
        shutil.copytree(REPO / source, site / target)
    return site


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(("what", "folder"), [("chips", "hardware"), ("models", "models")])
def test_the_wheel_brings_every_chip_and_model(what: str, folder: str, installed: Path, empty: Path) -> None:
    done = run(["list", what, "--format", "json"], empty, [installed])
    assert done.returncode == 0, done.stderr
    names = {row["name"] for row in json.loads(done.stdout)[what]}
    assert names == {path.stem for path in (REPO / folder).glob("*.yaml") if not path.stem.endswith(".cal")}
    assert str(REPO) not in done.stdout


def test_a_stale_copy_in_site_packages_is_never_read(tmp_path: Path, empty: Path) -> None:
    stale = tmp_path / "site-packages" / "mlaplan" / "_data" / "hardware"
    stale.mkdir(parents=True)
    (stale / "h200-sxm.yaml").write_text("kind: chip\nname: of yesterday\n")
    (stale / "gone.yaml").write_text("kind: chip\n")
    done = run(["list", "chips", "--format", "json"], empty, [tmp_path / "site-packages", REPO])
    assert done.returncode == 0, done.stderr
    assert "gone" not in {row["name"] for row in json.loads(done.stdout)["chips"]}


def test_a_repository_around_the_package_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mlaplan"
    (package / "_data" / "models").mkdir(parents=True)
    (tmp_path / "models").mkdir()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(lookup, "PACKAGE", package)
    assert lookup.folders("model")[1:] == [tmp_path / "models"]
    (tmp_path / "pyproject.toml").unlink()
    assert lookup.folders("model")[1:] == [package / "_data" / "models"]
