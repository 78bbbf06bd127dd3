"""The JSON Schema in docs/schema is the one of the code, and says what the files may hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mlaplan.specs import schema, source
from mlaplan.units import UNITS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", schema.SPECS)
def test_the_committed_schema_is_up_to_date(kind: str) -> None:
    committed = (ROOT / schema.FOLDER / f"{kind}.json").read_text()
    assert committed == schema.text(kind), "run: python -m mlaplan.specs.schema"


@pytest.mark.parametrize("kind", schema.SPECS)
def test_every_reference_exists(kind: str) -> None:
    text = schema.text(kind)
    names = set(re.findall(r'"\$ref": "#/\$defs/([^"]+)"', text))
    assert names
    assert names <= set(json.loads(text)["$defs"])


@pytest.mark.parametrize(
    ("kind", "files"), [("chip", "hardware/*.yaml"), ("calibration", "hardware/*.cal.yaml"), ("model", "models/*.yaml")]
)
def test_the_keys_of_shipped_files_are_in_the_schema(kind: str, files: str) -> None:
    known = schema.schema(kind)["properties"]
    found = [path for path in sorted(ROOT.glob(files)) if path.stem.endswith(".cal") == (kind == "calibration")]
    assert found
    for path in found:
        assert set(source.read(path).data) <= set(known)


def patterns(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["pattern"]} if "examples" in value else set()
        return own.union(*(patterns(item) for item in value.values()))
    return set().union(*(patterns(item) for item in value)) if isinstance(value, list) else set()


def test_patterns_accept_units_of_one_dimension_only() -> None:
    found = patterns(schema.schema("chip"))
    assert len(found) == 6
    for pattern in found:
        matches = {d: {bool(re.search(pattern, f"1.5e3 {unit}")) for unit in units} for d, units in UNITS.items()}
        assert [True in found and False not in found for found in matches.values()].count(True) == 1
        assert not re.search(pattern, "1.5e3")
