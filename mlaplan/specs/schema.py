"""JSON Schema of the spec files, for completion and checks in an editor. Written to docs/schema/ by
`python -m mlaplan.specs.schema`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from mlaplan.specs.chip import Calibration, Chip
from mlaplan.specs.model import Model
from mlaplan.specs.spec import Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FOLDER = Path("docs/schema")
SPECS: dict[str, type[Spec]] = {"chip": Chip, "calibration": Calibration, "model": Model}


def schema(kind: str) -> dict[str, Any]:
    """The schema of a `chip`, a `calibration` or a `model` file."""
    found = SPECS[kind].model_json_schema()
    # pydantic names a definition after its Python types; its title is the readable name
    names = {name: definition.get("title", name) for name, definition in found["$defs"].items()}
    found["$defs"] = {names[name]: definition for name, definition in found["$defs"].items()}
    return {"$schema": DIALECT, "title": f"mlaplan {kind}", **_tidied(found, names)}


def text(kind: str) -> str:
    """The schema as it stands in docs/schema/."""
    return json.dumps(schema(kind), indent=2, allow_nan=False) + "\n"


def write(folder: Path = FOLDER) -> list[Path]:
    """Writes every schema into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in SPECS:
        paths.append(folder / f"{kind}.json")
        paths[-1].write_text(text(kind), encoding="utf-8")
    return paths


def _tidied(value: Any, names: dict[str, str]) -> Any:
    """With readable references, without the titles made of field names and the defaults that say `absent`."""
    if isinstance(value, list):
        return [_tidied(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        name = value["$ref"].removeprefix("#/$defs/")
        value = {**value, "$ref": f"#/$defs/{names[name]}"}
    return {key: _tidied(item, names) for key, item in value.items() if not _is_noise(key, item)}


def _is_noise(key: str, item: Any) -> bool:
    return (key == "title" and isinstance(item, str)) or (key == "default" and item in (None, math.inf, {}, []))


if __name__ == "__main__":
    for path in write():
        print(path)
