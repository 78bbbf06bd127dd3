"""Files that are shipped are read without validation: each is valid, and reading gives what validation gives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mlaplan
from mlaplan.engines.load import at_version, engine_versions
from mlaplan.engines.profile import Profile
from mlaplan.specs import shipped, source
from mlaplan.specs.chip import Calibration, Chip
from mlaplan.specs.defaults import ClassFits
from mlaplan.specs.model import Model
from mlaplan.specs.pydantic_schema import adapter
from mlaplan.specs.spec import Spec, reader

PACKAGE = Path(mlaplan.__file__).parent
ROOT = PACKAGE.parent
FOLDERS: dict[Path, Any] = {
    ROOT / "hardware": Chip,
    ROOT / "models": Model,
    PACKAGE / "engines" / "profiles": Profile,
    PACKAGE / "specs" / "class_fits": ClassFits,
}
FILES = [path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))]


def documents(path: Path) -> Iterator[tuple[Any, source.Document]]:
    """What is read from a file: of an engine, the facts of each version."""
    spec, document = FOLDERS[path.parent], source.read(path)
    if spec is Profile:
        for version in engine_versions(path.stem):
            yield spec, at_version(document, version)
    else:
        yield Calibration if path.stem.endswith(".cal") else spec, document


def plain(value: Any) -> Any:
    """Everything in a spec, what was given apart from what was left out."""
    if isinstance(value, Spec):
        fields = type(value).model_fields
        return type(value).__name__, value._given, {name: plain(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else (type(value), value)


@pytest.mark.parametrize("path", FILES, ids=shipped.key)
def test_a_shipped_file_is_valid_and_read_as_such(path: Path) -> None:
    for spec, document in documents(path):
        read = reader(spec)
        assert read is not None
        assert plain(read(document.data)) == plain(adapter(spec).validate_python(document.data))


def test_the_list_of_shipped_files_is_up_to_date() -> None:
    text = "".join(f"{shipped.digest(path.read_bytes())}  {shipped.key(path)}\n" for path in FILES)
    if os.environ.get("MLAPLAN_UPDATE"):
        shipped.LIST.write_text(text, encoding="utf-8")
    assert shipped.LIST.read_text(encoding="utf-8") == text, "run: MLAPLAN_UPDATE=1 pytest tests/specs/test_shipped.py"


def test_a_changed_file_is_validated(tmp_path: Path) -> None:
    good = (ROOT / "hardware" / "h200-sxm.yaml").read_bytes()
    (tmp_path / "hardware").mkdir()
    copy = tmp_path / "hardware" / "h200-sxm.yaml"
    copy.write_bytes(good)
    assert source.read(copy).shipped
    copy.write_bytes(good.replace(b"\n", b"\r\n"))
    assert source.read(copy).shipped
    copy.write_bytes(good + b"# mine\n")
    assert not source.read(copy).shipped
    other = tmp_path / "h200-sxm.yaml"
    other.write_bytes(good)
    assert not source.read(other).shipped
