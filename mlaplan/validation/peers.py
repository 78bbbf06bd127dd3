"""What other tools reach on the same rows: the committed figures of one run of them.

`peers.json` is written by `benchmarks/peers.py`, which runs the tools; nothing is computed here.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

SCHEMA = "mlaplan.peers/1"
FILE = Path(__file__).with_name("peers.json")
OTHERS = {"aiconfigurator_default": "default", "aiconfigurator_sol": "SOL", "infersim": "InferSim"}


@lru_cache(maxsize=1)
def committed() -> dict[str, Any]:
    """The figures in the data file."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return found


def of(*ids: str) -> list[dict[str, Any]]:
    """The groups of these ids; `mla_decode` names all of `mla_decode:...`, `all_reduce` no `all_reduce_custom:...`."""
    return [g for g in committed()["groups"] if any(f"{g['id']}:".startswith(f"{name}:") for name in ids)]


def elsewhere(*ids: str) -> str:
    """The range of each tool's mean errors over these groups, in words; only where it answers every row.

    `default` and `SOL` are modes of aiconfigurator.
    """
    groups = of(*ids)
    told = []
    for tool, name in OTHERS.items():
        found = [g["figures"][tool] for g in groups]
        errors = sorted(f["mape"] for f, g in zip(found, groups, strict=True) if f.get("rows") == g["rows"])
        if errors:
            low, high = f"{errors[0]:.0%}", f"{errors[-1]:.0%}"
            told.append(f"{name} {low if low == high else f'{low[:-1]} to {high}'}")
    return ", ".join(told)
