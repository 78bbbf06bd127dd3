"""Served rows of `silicon_sample.csv`, read from the installed aiconfigurator-core package, never committed.

The rows are dumps of the InferenceX benchmark: mean TTFT and TPOT of a closed loop with lengths uniform from 80 to
100 % of the nominal ones. Used are DeepSeek-R1 in fp8 on 8 H200 as TP8 with unsplit experts, each once: repeats
under DeepSeek-V3, with a date that differs by rounding, and of a TensorRT-LLM release that most likely ran MTP
(8.6 ms where the same release's MoE-TP rows have 13.8) are left out.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlaplan.validation.points import Point

PACKAGE = "aiconfigurator_core"
FILE = "systems/silicon_sample.csv"
SUSPECTED_MTP = ("1.1.0rc2.post2",)
# what the published launch scripts set and the rows do not repeat
# source: SemiAnalysisAI/InferenceX benchmarks/dsr1_fp8_h200.sh and the TensorRT-LLM script beside it
LAUNCH: dict[str, dict[str, Any]] = {
    "sglang": {"engine": "sglang", "kv_dtype": "bf16", "prefill_chunk": 32768, "era": "2026-03"},
    "trtllm": {"engine": "trtllm", "kv_dtype": "fp8", "prefill_chunk": 8192, "era": "2025-11"},
}


def path() -> Path | None:
    """The file in the installed package, None where it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    found = Path(next(iter(spec.submodule_search_locations))) / FILE
    return found if found.is_file() else None


@lru_cache(maxsize=1)
def points() -> tuple[Point, ...]:
    """TPOT and TTFT of each row; nothing where the package is not installed."""
    file = path()
    if file is None:
        return ()
    with file.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if _wanted(row)]
    seen: dict[tuple[str, int, int, int], dict[str, str]] = {}
    for row in rows:
        seen.setdefault(_key(row), row)
    return tuple(point for key, row in sorted(seen.items()) for point in _points(key, row))


def _wanted(row: dict[str, str]) -> bool:
    whole = {"tp_size": 8, "attention_dp_size": 1, "moe_ep_size": 1}
    return (
        row["model_path"] == "deepseek-ai/DeepSeek-R1"
        and row["system"] == "h200_sxm"
        and row["mode"] == "agg"
        and row["precision"] == "fp8"
        and row["backend"] in LAUNCH
        and row["backend_version"] not in SUSPECTED_MTP
        and all(row[name] and float(row[name]) == value for name, value in whole.items())
    )


def _key(row: dict[str, str]) -> tuple[str, int, int, int]:
    return row["backend"], int(row["isl"]), int(row["osl"]), int(float(row["batch_size"]))


def _points(key: tuple[str, int, int, int], row: dict[str, str]) -> list[Point]:
    backend, isl, osl, concurrency = key
    launch = LAUNCH[backend]
    of = {name: launch[name] for name in ("kv_dtype", "prefill_chunk")}
    version = row["backend_version"] or "of November 2025"
    return [
        Point(
            id=f"silicon-{backend}-{isl}-{osl}-c{concurrency}-{metric}", set="served", group="silicon",
            value=float(row[f"silicon_{metric}_ms"]) / 1e3, metric=metric, measure="served",
            source="InferenceX rows in aiconfigurator-core 0.12.0, systems/silicon_sample.csv", grade="A",
            use="holdout", fitted=False, engine=launch["engine"], chip="h200-sxm", model="deepseek-r1",
            software=f"{backend} {version}", era=launch["era"], series=f"InferenceX, {backend}",
            strategy={"tp": 8, "ep": 1, **of},
            workload={"isl": isl, "osl": osl, "concurrency": concurrency, "shortest": 0.8},
        )
        for metric in ("tpot", "ttft")
    ]  # fmt: skip
