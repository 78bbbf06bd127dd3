"""A commented chip or model file to start from; the texts are in templates/."""

from __future__ import annotations

import re
from pathlib import Path

from mlaplan.errors import MlaplanError

TEMPLATES = Path(__file__).with_name("templates")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def text(kind: str, name: str) -> str:
    """The template of a `chip` or a `model` with its name filled in."""
    from mlaplan.specs.chip import EFFICIENCY_CLASSES

    template = (TEMPLATES / f"{kind}.yaml").read_text(encoding="utf-8")
    return template.replace("NAME", name).replace("CLASSES", ", ".join(EFFICIENCY_CLASSES))


def write(kind: str, name: str, *, overwrite: bool = False) -> Path:
    """Writes NAME.yaml into the current folder and returns its path."""
    name = name.removesuffix(".yaml")
    if not NAME.fullmatch(name):
        plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
        hint = f"; did you mean '{plain}'?" if plain else ""
        raise MlaplanError(f"'{name}' is not a plain name; expected lower-case letters, digits, '-', '_' and '.'{hint}")
    path = Path(f"{name}.yaml")
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as stream:
            stream.write(text(kind, name))
    except FileExistsError:
        raise MlaplanError(f"{path}: already exists; use --force to overwrite it") from None
    except OSError as error:
        raise MlaplanError(f"{path}: cannot be written: {error.strerror}") from None
    return path
