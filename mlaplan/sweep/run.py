"""A study to its rows: parts in this process, in several, or on a Dask cluster, and the file they are joined to.

A part is the same bytes wherever it is computed, so the result depends on neither workers nor the size of parts.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from mlaplan import __version__
from mlaplan.errors import EXIT_INTERRUPT, MlaplanError
from mlaplan.sweep import formats, front, rows
from mlaplan.sweep.answers import Planner
from mlaplan.sweep.parts import Parts, Plan, Unwritten, WholeFile
from mlaplan.sweep.study import Study

POINTS = 64  # of a part, rounded to whole families
MOST_PARTS = 2000
AHEAD = 2  # parts handed out per worker
Tell = Callable[[int, int], None]  # points ended, strategies priced


def silent(_points: int, _priced: int) -> None:
    """Tells nobody."""


class Interrupted(MlaplanError):
    """The user stopped the run."""

    exit_code = EXIT_INTERRUPT


class Done(NamedTuple):
    """A part: its content, and what it took."""

    content: bytes
    rows: int
    points: int
    priced: int
    feasible: bool  # whether any row is a plan


@dataclass(slots=True)
class Outcome:
    """What a run did; `kept`: points whose parts were there already; `feasible`: whether any row is a plan."""

    points: int = 0
    rows: int = 0
    priced: int = 0
    kept: int = 0
    feasible: bool = False


@dataclass(frozen=True)
class Means:
    """How a sweep is run: processes here, or a cluster; points of a part; whether to go on with what is there."""

    workers: int = 1
    dask: str | None = None
    chunk: int | None = None
    resume: bool = False
    tell: Tell = silent


def to_file(study: Study, out: Path, form: str, means: Means) -> Outcome:
    """Run the study and write its rows."""
    parts = Parts.begin(out, _plan(study, form, means), means.resume, means.chunk is not None)
    try:
        outcome = _parts(study, parts, means)
    except MlaplanError:
        if not parts.done():  # nothing to go on with: the next run needs no --resume
            parts.remove()
        raise
    try:
        with WholeFile(out, parts.folder / out.name) as stream:
            _join(study, parts, stream)
    except KeyboardInterrupt:
        raise Interrupted(_left("interrupted", parts)) from None
    except Unwritten as error:
        raise Unwritten(_left(str(error), parts)) from None
    parts.remove()
    return outcome


def to_stream(study: Study, out: IO[bytes], form: str, means: Means) -> Outcome:
    """Run the study and write its rows there at the end."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="mlaplan-sweep-") as folder:
        parts = Parts.begin(Path(folder) / "rows", _plan(study, form, means), False, True)
        try:
            outcome = _parts(study, parts, means)
        except Interrupted:
            raise Interrupted("interrupted: without -o nothing is kept") from None
        _join(study, parts, out)
    return outcome


def _plan(study: Study, form: str, means: Means) -> Plan:
    return Plan(study.digest(), study.size, means.chunk or chunk_of(study), form)


def chunk_of(study: Study) -> int:
    """Points of a part: whole families where they are small, and not too many parts."""
    if study.plans == "all":
        return 1  # a point may have some hundred thousand plans
    points = max(POINTS, -(-study.size // MOST_PARTS))
    return points // study.loads * study.loads or min(study.loads, POINTS)


def _join(study: Study, parts: Parts, out: IO[bytes]) -> None:
    form = formats.of(parts.plan.form, study.columns)
    fronts = None
    if study.plans == "best":
        fronts = front.of_parts(form, parts.files(), [axis.name for axis in study.axes])
    form.join(parts.files(), fronts, out)


def _left(message: str, parts: Parts) -> str:
    """The message, and what is whole."""
    done = len(parts.done())
    if not done:
        return message
    return f"{message}; {done} of {parts.plan.count} parts are whole in {parts.folder}: go on with --resume"


# ---- parts ----


def _parts(study: Study, parts: Parts, means: Means) -> Outcome:
    """Compute and write every part that is not there yet."""
    done = set(parts.done())
    todo = [part for part in range(parts.plan.count) if part not in done]
    outcome, form = Outcome(study.size), formats.of(parts.plan.form, study.columns)
    for part in done:
        first, last = parts.plan.range_of(part)
        outcome.kept += last - first
        try:
            found = [cell for (cell,) in form.cells(parts.path(part), ["feasible"])]
        except (ValueError, LookupError):
            found = []
        if len(found) < last - first:  # every point has a row or more
            raise MlaplanError(f"{parts.path(part)}: is damaged; remove it, and --resume computes it again")
        outcome.feasible |= any(cell in (True, "true") for cell in found)
    if outcome.kept:
        means.tell(outcome.kept, 0)
    try:
        for part, result in _computed(study, parts, todo, means):
            parts.write(part, result.content)
            outcome.rows += result.rows
            outcome.priced += result.priced
            outcome.feasible |= result.feasible
    except KeyboardInterrupt:
        raise Interrupted(_left("interrupted", parts)) from None
    except Unwritten as error:
        raise Unwritten(_left(str(error), parts)) from None
    except BrokenProcessPool:
        raise MlaplanError(_left("a worker process was killed, which a lack of memory does", parts)) from None
    return outcome


def _computed(study: Study, parts: Parts, todo: list[int], means: Means) -> Iterator[tuple[int, Done]]:
    token = parts.plan.digest
    if means.dask is None and (means.workers == 1 or len(todo) < 2):
        for part in todo:
            yield part, compute(token, study, parts.plan.form, *parts.plan.range_of(part), tell=means.tell)
        return
    with _executor(token, study, means, len(todo)) as (executor, ahead, payload):
        waiting: dict[Future[Done], int] = {}
        left = iter(todo)
        try:
            while True:
                for part in left:
                    first, last = parts.plan.range_of(part)
                    asked = (token, payload, parts.plan.form, first, last)
                    with _no_interruption():  # a process that starts now takes over what is held back
                        job = executor.submit(compute, *asked, version=__version__)
                    waiting[job] = part
                    if len(waiting) >= ahead:
                        break
                if not waiting:
                    return
                for job in wait(waiting, return_when=FIRST_COMPLETED).done:
                    part, result = waiting.pop(job), job.result()
                    means.tell(result.points, result.priced)
                    yield part, result
        finally:
            for job in waiting:
                job.cancel()


@contextmanager
def _executor(token: str, study: Study, means: Means, parts: int) -> Iterator[tuple[Executor, int, Study | None]]:
    """(executor, parts to hand out at once, the study to send along with each)."""
    if means.dask is not None:
        with cluster(means.dask) as (executor, threads):
            yield executor, AHEAD * threads, study
        return
    workers = min(means.workers, parts)
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(token, study)
    )
    try:
        yield pool, AHEAD * workers, None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _no_interruption() -> Iterator[None]:
    """Holds ^C back for so long: it is the parent's to tell, and a worker that still starts would tell it too."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def cluster(address: str) -> Iterator[tuple[Any, int]]:
    """The executor of a Dask cluster, and how many tasks it runs at once."""
    try:
        from distributed import Client
    except ImportError:
        raise MlaplanError("--dask needs dask's distributed: pip install 'mlaplan[dask]'") from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MlaplanError(f"--dask {address}: no scheduler answers there: {reason}") from None
    try:
        threads = sum(client.nthreads().values())
        if not threads:
            raise MlaplanError(f"--dask {address}: the cluster has no worker")
        yield client.get_executor(), threads
    except CancelledError:
        raise MlaplanError(f"--dask {address}: the scheduler gave a part up") from None
    finally:
        client.close()


# ---- in a worker ----

_planners: dict[str, Planner] = {}  # the one of the question at hand, with all it has learnt


def _begin(token: str, study: Study) -> None:
    """A worker process of our own: an interruption is the parent's to tell."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _planner(token, study)


def _planner(token: str, study: Study | None) -> Planner:
    if token not in _planners:
        assert study is not None
        _planners.clear()
        _planners[token] = Planner(study)
    return _planners[token]


def compute(
    token: str, study: Study | None, form: str, first: int, last: int, *, tell: Tell | None = None,
    version: str = __version__,
) -> Done:  # fmt: skip
    """The part of points from first to below last. study: None where the worker has it already."""
    if version != __version__:
        raise MlaplanError(f"a worker has mlaplan {__version__}, not {version}: its rows would be another version's")
    planner = _planner(token, study)
    written, found, priced, feasible = 0, 0, 0, False

    def batches() -> Iterator[formats.Rows]:
        nonlocal written, priced, found, feasible
        for batch in planner.answers(first, last):
            written, priced, found = written + batch.rows, priced + batch.priced, found + batch.points
            feasible |= any(batch.columns["feasible"])
            if tell is not None:
                tell(batch.points, batch.priced)
            yield batch.columns

    content = formats.of(form, planner.study.columns).encode(batches())
    return Done(content, written, found, priced, feasible)


def form_of(out: str | None, wanted: str | None) -> str:
    """csv, jsonl or parquet: as asked, else by the file's suffix; csv where neither says."""
    by_name = rows.SUFFIXES.get(Path(out).suffix.lower()) if out is not None else None
    if wanted is not None and by_name is not None and by_name != wanted:
        raise MlaplanError(f"{out}: the name says {by_name}, --format says {wanted}; expected the same")
    found = wanted or by_name or ("csv" if out is None else rows.form_of(out))
    if found == "parquet":
        rows.need_pyarrow(out or "--format parquet")
    return found
