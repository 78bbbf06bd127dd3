"""Where a result goes: stdout, or a file that is replaced as a whole."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from mlaplan.errors import MlaplanError

PICTURES = (".png", ".svg", ".pdf", ".jpg")


def write(result: str, file: str | None) -> None:
    """The result to stdout, or to the file; stderr then says where it is."""
    if file is None or file == "-":
        print(result)
        return
    write_file(file, result + "\n")
    print(f"written to {file}", file=sys.stderr)


def terminal_width(file: str | None) -> int | None:
    """Columns of the terminal that a result goes to, at least 80; None for a pipe or a file, which take whole lines."""
    if file not in (None, "-") or not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return max(get_terminal_size().columns, 80)


def check(file: str | None) -> None:
    """Refuses a file that cannot be written, before the work for it is done."""
    if file is None or file == "-":
        return
    if not file:
        raise MlaplanError("the name of the file to write is empty; expected a name, or - for stdout")
    path = Path(file)
    if path.is_dir():
        raise MlaplanError(f"{file}: is a folder; expected a file to write to")
    if not path.parent.is_dir():
        raise MlaplanError(f"{file}: cannot be written: there is no folder {path.parent}")


def check_picture(file: str | None) -> None:
    """Refuses a picture that cannot be drawn, before the work for it is done."""
    if file is None:
        return
    check(file)
    if Path(file).suffix.lower() not in PICTURES:
        raise MlaplanError(f"{file}: cannot be drawn: expected a name that ends in {', '.join(PICTURES)}")


def write_file(file: str, content: str) -> None:
    """Write all of the file or nothing: a reader never sees a part, a failure keeps what was there."""
    path = Path(file)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device has no other name to be replaced by
            path.write_text(content, encoding="utf-8")
            return
        _replace(path.resolve(), content)
    except OSError as error:
        raise MlaplanError(f"{file}: cannot be written: {error.strerror or error}") from None


def _replace(path: Path, content: str) -> None:
    import tempfile  # with what it imports it takes longer than all else here

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
