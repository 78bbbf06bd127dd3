"""The parts of a sweep on disk: each is written whole or not at all, and tells whose it is.

`OUT.parts/` holds a manifest, which says what is asked and how the points are divided, and one file for each range of
points that is done. A part is written to another name, flushed to the disk and renamed; so is the result. Whatever
stops a run leaves whole parts only, and a later run goes on from them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mlaplan.errors import MlaplanError

SCHEMA = "mlaplan.sweep-parts/1"
MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"


class Unwritten(MlaplanError):
    """A part or the result that cannot be written."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question is divided: points, points of a part, and the digest of all that is asked."""

    digest: str
    points: int
    chunk: int
    form: str

    @property
    def count(self) -> int:
        """Parts."""
        return -(-self.points // self.chunk)

    def range_of(self, part: int) -> tuple[int, int]:
        """Points of a part: the first, and the one after the last."""
        return part * self.chunk, min((part + 1) * self.chunk, self.points)


class Parts:
    """The folder of parts beside a result."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan

    @classmethod
    def begin(cls, out: Path, plan: Plan, resume: bool, own_chunk: bool) -> Parts:
        """The folder, new or continued. own_chunk: the size of parts is the user's own and may not differ."""
        folder = out.with_name(out.name + ".parts")
        manifest = folder / MANIFEST
        if not manifest.exists():  # nothing there, or ended before its first part
            if folder.exists() and any(folder.iterdir()) and not _only_unfinished(folder):
                raise MlaplanError(
                    f"{folder}: is in the way: it holds no parts of a sweep; remove it or choose another -o"
                )
            parts = cls(folder, plan)
            parts._create()
            return parts
        if not resume:
            raise MlaplanError(f"{folder}: holds an unfinished sweep: go on with it by --resume, or remove it")
        known = _read(manifest)
        if known.digest != plan.digest or known.points != plan.points:
            raise MlaplanError(
                f"{folder}: holds parts of another question (axes, options, specs or version differ): remove it to "
                "start anew, or choose another -o"
            )
        if known.form != plan.form:
            raise MlaplanError(f"{folder}: holds parts in {known.form}, not {plan.form}; expected the same --format")
        if own_chunk and known.chunk != plan.chunk:
            raise MlaplanError(
                f"{folder}: holds parts of {known.chunk} points: --chunk {plan.chunk} cannot go on with them"
            )
        parts = cls(folder, known)
        parts._clean()
        return parts

    def _create(self) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise Unwritten(f"{self.folder}: cannot be made: {error.strerror or error}") from None
        p = self.plan
        told = {"schema": SCHEMA, "digest": p.digest, "points": p.points, "chunk": p.chunk, "format": p.form}
        self._write(self.folder / MANIFEST, (json.dumps(told, indent=2) + "\n").encode())

    def _clean(self) -> None:
        for left in self.folder.glob(f"*{UNFINISHED}"):
            with suppress(OSError):
                left.unlink()

    def path(self, part: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{part:06d}"

    def done(self) -> list[int]:
        """Parts that are whole."""
        return [part for part in range(self.plan.count) if self.path(part).exists()]

    def write(self, part: int, content: bytes) -> None:
        """A part, whole or not at all."""
        self._write(self.path(part), content)

    def _write(self, path: Path, content: bytes) -> None:
        with WholeFile(path) as stream:
            stream.write(content)

    def files(self) -> Iterator[Path]:
        """All parts in order."""
        for part in range(self.plan.count):
            yield self.path(part)

    def remove(self) -> None:
        """The folder, once the result is written; the manifest goes last."""
        for path in self.files():
            path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class WholeFile:
    """A file that appears under its name when it is complete and on the disk; else there is none."""

    def __init__(self, path: Path, beside: Path | None = None) -> None:
        self.path = path
        self.unfinished = (beside or path).with_name((beside or path).name + UNFINISHED)

    def __enter__(self) -> IO[bytes]:
        try:
            self.stream = self.unfinished.open("wb")
        except OSError as error:
            raise Unwritten(f"{self.path}: cannot be written: {error.strerror or error}") from None
        return self.stream

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if error is None:
                self.stream.flush()
                os.fsync(self.stream.fileno())
            self.stream.close()
            if error is None:
                self.unfinished.replace(self.path)
                _sync(self.path.parent)
        except OSError as problem:
            error = error or problem
        if error is not None:
            with suppress(OSError):
                self.stream.close()
            with suppress(OSError):
                self.unfinished.unlink()
        if isinstance(error, OSError):
            raise Unwritten(f"{self.path}: cannot be written: {error.strerror or error}") from None


def _sync(folder: Path) -> None:
    """The names in a folder to the disk; not every system lets a folder be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _only_unfinished(folder: Path) -> bool:
    return all(path.name.endswith(UNFINISHED) for path in folder.iterdir())


def _read(manifest: Path) -> Plan:
    try:
        told = json.loads(manifest.read_text("utf-8"))
        if told["schema"] != SCHEMA:
            raise ValueError
        return Plan(told["digest"], int(told["points"]), int(told["chunk"]), told["format"])
    except (OSError, ValueError, KeyError, TypeError):
        raise MlaplanError(f"{manifest}: is no manifest of a sweep; remove {manifest.parent} to start anew") from None
