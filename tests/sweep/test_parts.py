"""Parts: the same bytes whatever the workers and chunks, and after any interruption; nothing half written."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlaplan.errors import MlaplanError
from mlaplan.sweep import read
from mlaplan.sweep.formats import GROUP_ROWS
from mlaplan.sweep.parts import MANIFEST, UNFINISHED, Parts, Unwritten
from mlaplan.sweep.run import Means, _no_interruption, _plan, to_file

from .toy import environment, run, toy, words

GRID = {"isl": "128:1k:x2", "osl": "16,64", "concurrency": "1:64:x4", "devices": "2,4"}
POINTS = 4 * 2 * 4 * 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The CSV of the grid, from one uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "out.csv"
    to_file(toy(**GRID), out, "csv", Means())
    return out.read_bytes()


def test_the_result_is_the_same_for_any_chunk(tmp_path: Path, whole: bytes) -> None:
    for chunk in (1, 5, 1000):
        to_file(toy(**GRID), tmp_path / "out.csv", "csv", Means(chunk=chunk))
        assert (tmp_path / "out.csv").read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert whole.count(b"\n") == POINTS + 1


def test_the_result_is_the_same_for_any_number_of_workers(tmp_path: Path, whole: bytes) -> None:
    for workers in (2, 3):
        to_file(toy(**GRID), tmp_path / "out.csv", "csv", Means(workers=workers, chunk=11))
        assert (tmp_path / "out.csv").read_bytes() == whole


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("plans", ["best", "pareto", "all"])
def test_every_format_holds_the_same_rows(tmp_path: Path, form: str, plans: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    given: dict[str, Any] = {"devices": "2", "osl": "1,16", "isl": "128", "plans": plans, "prefix": "0,0.25"}
    csv, other = tmp_path / "a.csv", tmp_path / f"b.{form}"
    to_file(toy(("memory.bandwidth=x1,x2",), **given), csv, "csv", Means())
    to_file(toy(("memory.bandwidth=x1,x2",), **given), other, form, Means(chunk=3))
    a, b = read(str(csv)), read(str(other))
    assert list(a.columns) == list(b.columns)
    assert (a.dtypes.astype(str) == b.dtypes.astype(str)).all()
    assert a.equals(b.astype(a.dtypes))


def test_parquet_has_row_groups_that_no_chunk_decides(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")
    for chunk in (3, 50):
        to_file(toy(**GRID), tmp_path / f"{chunk}.parquet", "parquet", Means(chunk=chunk))
    assert (tmp_path / "3.parquet").read_bytes() == (tmp_path / "50.parquet").read_bytes()
    file = pq.ParquetFile(tmp_path / "3.parquet")
    assert file.num_row_groups == -(-POINTS // GROUP_ROWS)


# ---- interruptions ----


def parts_of(out: Path) -> int:
    return len(list(out.with_name(f"{out.name}.parts").glob("part-??????")))


def until(out: Path, process: subprocess.Popen[str], parts: int) -> None:
    """Waits until so many parts are there, or the process ends."""
    while process.poll() is None and parts_of(out) < parts:
        time.sleep(0.005)


def test_killed_at_random_moments_and_resumed(tmp_path: Path, whole: bytes) -> None:
    out, pick = tmp_path / "out.csv", random.Random()
    command = [*words(**GRID), "-o", "out.csv", "--chunk", "4", "--resume"]
    kills = []
    for _ in range(4):
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)  # fmt: skip
        until(out, process, parts_of(out) + pick.randint(0, 4))
        time.sleep(pick.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills.append((process.returncode, parts_of(out)))
        if process.returncode == 0:
            break
        assert not out.exists() or out.read_bytes() == whole
    assert -signal.SIGKILL in [code for code, _ in kills], kills
    done = run(command, tmp_path)
    assert done.returncode == 0, (kills, done.stderr)
    assert out.read_bytes() == whole, kills
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("moment", ["join", "after the rename"])
def test_killed_at_the_end(tmp_path: Path, whole: bytes, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last two moments of a run, which a random one hardly meets."""
    from mlaplan.sweep import run as running
    from mlaplan.sweep.parts import Parts

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    out = tmp_path / "out.csv"
    with monkeypatch.context() as patch:
        if moment == "join":
            patch.setattr(running, "_join", killed)
        else:
            patch.setattr(Parts, "remove", killed)
        with pytest.raises(Killed):
            to_file(toy(**GRID), out, "csv", Means())
    (tmp_path / "out.csv.parts" / f"out.csv{UNFINISHED}").write_text("half")
    outcome = to_file(toy(**GRID), out, "csv", Means(resume=True))
    assert outcome.kept == POINTS
    assert outcome.feasible
    assert out.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_interrupted_by_the_user(tmp_path: Path, whole: bytes, workers: str) -> None:
    out = tmp_path / "out.csv"
    command = [*words(**GRID), "-o", "out.csv", "--chunk", "4", "--workers", workers]
    # a shell starts what runs in its background deaf to ^C, and that is handed down
    hearing = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True, preexec_fn=hearing)  # fmt: skip
    until(out, process, 3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    shown, told = process.communicate()
    assert process.returncode == 130, told
    assert not shown
    count = parts_of(out)
    assert told == f"interrupted; {count} of 16 parts are whole in out.csv.parts: go on with --resume\n"
    assert count >= 3
    assert not list(tmp_path.rglob(f"*{UNFINISHED}"))
    assert run([*command, "--resume"], tmp_path).returncode == 0
    assert out.read_bytes() == whole


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_full_disk(tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    command = [*words(**{**GRID, "osl": "16"}), "-o", f"out.{form}", "--chunk", "2"]
    limit = 15_000

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    done = run(command, tmp_path, preexec_fn=small_files)
    if form == "csv":  # parts are small, the result is not
        assert done.returncode == 2, done.stderr
        told = "out.csv: cannot be written: File too large; 16 of 16 parts are whole in out.csv.parts: go on with"
        assert done.stderr == f"{told} --resume\n"
    limit = 1000
    done = run([*command, "--resume"], tmp_path, preexec_fn=small_files)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be written: File too large" in done.stderr
    assert not (tmp_path / f"out.{form}").exists()
    assert not list(tmp_path.rglob(f"*{UNFINISHED}"))
    assert run([*command, "--resume"], tmp_path).returncode == 0
    assert len(read(str(tmp_path / f"out.{form}"))) == POINTS // 2


def test_a_part_that_cannot_be_written_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 8:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        Unwritten, match=r"No space left on device; 3 of \d+ parts are whole in .*: go on with --resume"
    ):
        to_file(toy(**GRID), tmp_path / "out.csv", "csv", Means(chunk=4))
    monkeypatch.undo()
    assert to_file(toy(**GRID), tmp_path / "out.csv", "csv", Means(resume=True)).kept == 3 * 4


def test_a_worker_that_is_killed(tmp_path: Path, whole: bytes) -> None:
    command = [*words(**GRID), "-o", "out.csv", "--chunk", "2", "--workers", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    until(tmp_path / "out.csv", process, 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        process.communicate()
        pytest.skip("the system does not list the children of a process")
    workers = [int(child) for child in children.read_text().split()
               if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]  # fmt: skip
    os.kill(workers[0], signal.SIGKILL)
    _, told = process.communicate()
    assert process.returncode == 2
    assert told.startswith("a worker process was killed, which a lack of memory does; ")
    assert told.count("\n") == 1
    assert run([*command, "--resume"], tmp_path).returncode == 0
    assert (tmp_path / "out.csv").read_bytes() == whole


# ---- whose parts these are ----


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A result that is missing its end."""
    from mlaplan.sweep import run as running

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running, "_join", stop)
        with pytest.raises(running.Interrupted):
            to_file(toy(), tmp_path / "out.csv", "csv", Means(chunk=8))
    return tmp_path / "out.csv"


@pytest.mark.parametrize(
    ("other", "means", "form", "told"),
    [
        ({}, Means(chunk=8), "csv", "holds an unfinished sweep: go on with it by --resume, or remove it"),
        ({"tpot": "2ms"}, Means(resume=True), "csv", "holds parts of another question"),
        ({"isl": "128:1k:x4"}, Means(resume=True), "csv", "holds parts of another question"),
        ({}, Means(resume=True, chunk=9), "csv", "holds parts of 8 points: --chunk 9 cannot go on with them"),
        ({}, Means(resume=True), "jsonl", "holds parts in csv, not jsonl"),
    ],
)
def test_parts_of_another_question_are_refused(
    stopped: Path, other: dict[str, str], means: Means, form: str, told: str
) -> None:
    with pytest.raises(MlaplanError, match=told):
        to_file(toy(**other), stopped, form, means)
    assert to_file(toy(), stopped, "csv", Means(resume=True)).kept == toy().size


def test_a_manifest_that_is_none(stopped: Path) -> None:
    (stopped.with_name("out.csv.parts") / MANIFEST).write_text("{}")
    with pytest.raises(MlaplanError, match="is no manifest of a sweep"):
        to_file(toy(), stopped, "csv", Means(resume=True))


def test_a_folder_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "out.csv.parts").mkdir()
    (tmp_path / "out.csv.parts" / "mine").write_text("kept")
    with pytest.raises(MlaplanError, match="is in the way"):
        to_file(toy(), tmp_path / "out.csv", "csv", Means(resume=True))
    assert (tmp_path / "out.csv.parts" / "mine").read_text() == "kept"


def test_a_run_that_fails_before_its_first_part_leaves_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise MlaplanError("no cluster")

    monkeypatch.setattr("mlaplan.sweep.run.cluster", refused)
    with pytest.raises(MlaplanError, match=r"^no cluster$"):
        to_file(toy(**GRID), tmp_path / "out.csv", "csv", Means(dask="tcp://a:1"))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signals to hold back")
def test_an_interruption_waits_until_a_worker_has_started() -> None:
    held = False
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in a shell's background is deaf to it
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: SIM117
            with _no_interruption():
                # to this thread: another one, of a numerical library, would take it at a time of its own
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
                held = True
    finally:
        signal.signal(signal.SIGINT, before)
    assert held


@pytest.mark.parametrize("content", [b"", b"\xa3\xff\n", b"a,b,c\n"])
def test_a_damaged_part_is_told(tmp_path: Path, content: bytes) -> None:
    study, out = toy(**GRID), tmp_path / "out.csv"
    parts = Parts.begin(out, _plan(study, "csv", Means(chunk=8)), False, True)
    parts.path(0).write_bytes(content)
    with pytest.raises(MlaplanError, match="part-000000: is damaged; remove it"):
        to_file(study, out, "csv", Means(chunk=8, resume=True))
    assert parts.folder.exists()
