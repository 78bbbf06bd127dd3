"""A real Dask cluster of two worker processes: the same bytes, and nothing lost with a worker that is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mlaplan.errors import MlaplanError
from mlaplan.sweep.run import Means, to_file

from .toy import REPO, toy

distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")]))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as found:
        yield found


def test_a_killed_worker_loses_nothing(tmp_path: Path, cluster: Any) -> None:
    study, killed = toy(), []

    def tell(_points: int, _priced: int) -> None:
        """Kills a worker as soon as the first part is there."""
        if not killed:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    to_file(study, tmp_path / "here.csv", "csv", Means())
    to_file(study, tmp_path / "there.csv", "csv", Means(dask=cluster.scheduler_address, chunk=3, tell=tell))
    assert killed
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_no_scheduler(tmp_path: Path) -> None:
    with pytest.raises(MlaplanError, match=r"--dask tcp://127.0.0.1:9: no scheduler answers there"):
        to_file(toy(), tmp_path / "out.csv", "csv", Means(dask="tcp://127.0.0.1:9"))


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MlaplanError, match=r"pip install 'mlaplan\[dask\]'"):
        to_file(toy(), tmp_path / "out.csv", "csv", Means(dask="tcp://127.0.0.1:9"))
