"""Which files a path stands for. Folders are walked to the bottom; links out of them are not followed."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import NamedTuple

from mlaplan.errors import MlaplanError

SUFFIXES = (".yaml", ".yml", ".sh", ".bash")
SKIPPED = {"node_modules", "__pycache__"}
MOST_FILES = 20_000


class Listed(NamedTuple):
    """The files of a path; `root` is the folder they were found in, None for a file that was named itself."""

    files: list[str]
    root: Path | None


def is_launch_suffix(name: str) -> bool:
    """Whether a file in a folder is read because of its name."""
    return name.lower().endswith(SUFFIXES) or PurePath(name).name == "config.json"


def files_of(given: str) -> Listed:
    """A file as it is given, or every file in a folder that may hold something to check."""
    if not given.strip() or "\0" in given:
        raise MlaplanError("an empty file name; expected a file or a folder")
    folder = Path(given)
    if not folder.is_dir():
        return Listed([given], None)
    root = folder.resolve()
    found: list[str] = []
    for here, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        for name in sorted(names):
            if not name.startswith(".") and _wanted(name) and _inside(path := Path(here, name), root):
                found.append(str(path))
        if len(found) > MOST_FILES:
            raise MlaplanError(f"{given}: holds more than {MOST_FILES:,} files; check its parts")
    if not found:
        raise MlaplanError(f"{given}: holds nothing to check; expected *.yaml, *.yml, *.sh or config.json")
    return Listed(found, root)


def _wanted(name: str) -> bool:
    return is_launch_suffix(name) or name.endswith("plan.json")


def _inside(path: Path, root: Path) -> bool:
    """Whether it is a file, and in the folder also where it is a link; folders that are links are not walked."""
    return path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(root))
