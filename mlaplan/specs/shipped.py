"""Which spec files are as they were when they were last validated: those are read without validation.

`shipped.txt` has the digest of every such file. A test validates all of them and says when the list is old. A file
that was changed since is validated like a user's own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("shipped.txt")


def is_shipped(path: str | Path, raw: bytes) -> bool:
    """Whether a file in a folder of this name has the bytes that it is shipped with."""
    listed = _listed().get(key(Path(path)))
    return listed is not None and listed == digest(raw)


def key(path: Path) -> str:
    """`hardware/h200-sxm.yaml`"""
    return f"{path.parent.name}/{path.name}"


def digest(raw: bytes) -> str:
    """Identifies the text of a file, whatever ends its lines."""
    from hashlib import blake2b

    return blake2b(raw.replace(b"\r\n", b"\n"), digest_size=16).hexdigest()


@cache
def _listed() -> dict[str, str]:
    pairs = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return {name: found for found, name in pairs}
