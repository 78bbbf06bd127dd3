"""Served rows of `silicon_sample.csv`, read from the installed aiconfigurator-core package, never committed.

The rows are dumps of the InferenceX benchmark: mean TTFT and TPOT of a closed loop with lengths uniform from 80 to
100 % of the nominal ones. Used are DeepSeek-R1 in fp8 on 8 H200 that the file calls TP8 with `moe_ep_size` 1, each
once: repeats under DeepSeek-V3, with a date that differs by rounding, and of a TensorRT-LLM release that most likely
ran MTP (8.6 ms at 4 requests where the rows without a version have 13.8) are left out.

What was run is in the benchmark's launch scripts, not in the file. Its TensorRT-LLM rows without a version are of
the time before 3 November 2025, when a result held neither the experts' ranks nor attention data parallelism
(utils/process_result.py), so the 1 in those columns stands for a field that was not there. The script of that time
launches every one of them with the experts over all 8 ranks, and prompts of 8192 tokens with more than 32 requests
as attention data parallel, prompts of which are held back for up to 60 steps until all ranks have one
(attention_dp_config: enable_balance, timeout_iters 60, batching_wait_iters 0). It lets a step hold one prompt, does
not cut prompts, and names the experts' backend CUTLASS, which has no dispatch on Hopper. What it ran is 1.1.0rc2, which
takes the kernels measured of the line 1.0.
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
UNSAID = "1.1.0rc2"  # what TensorRT-LLM's rows without a version ran
# what the launch scripts set and the rows do not repeat; the client warms the server up since pull 480, January 2026
# source: SemiAnalysisAI/InferenceX, benchmarks/dsr1_fp8_h200_slurm.sh and dsr1_fp8_h200_trt_slurm.sh, the latter
# from commits ec90f3fe7 (2025-09) to 2ee1e0018 (2026-01)
LAUNCH: dict[str, dict[str, Any]] = {
    "sglang": {"engine": "sglang", "kv_dtype": "bf16", "memory_fraction": 0.82, "era": "2026-03", "warmed": True},
    "trtllm": {"engine": "trtllm", "kv_dtype": "fp8", "memory_fraction": 0.75, "era": "2025-10", "warmed": False},
}
CHUNK = 32768  # SGLang's --chunked-prefill-size
HOLD = 60  # TensorRT-LLM's timeout_iters with attention data parallelism


def strategy_of(backend: str, isl: int, concurrency: int) -> dict[str, Any]:
    """The strategy that the launch script runs for a row."""
    kv = {"kv_dtype": LAUNCH[backend]["kv_dtype"]}
    if backend == "sglang":
        return {"tp": 8, "ep": 1, "prefill_chunk": CHUNK, **kv}
    budget = (concurrency + isl + 64 + 63) // 64 * 64  # MAX_NUM_TOKENS
    ranks = {"tp": 1, "dp": 8} if isl == 8192 and concurrency > 32 else {"tp": 8}
    return {**ranks, "ep": 8, "prefill_chunk": budget, **kv}


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
    version = row["backend_version"] or f"{UNSAID}, autumn of 2025"
    release = row["backend_version"] or UNSAID
    given: dict[str, Any] = {name: launch[name] for name in ("memory_fraction", "warmed")}
    if backend == "trtllm":
        given |= {"whole_prompts": True, "gather_only": True}
        if "dp" in strategy_of(backend, isl, concurrency):
            given["hold_rounds"] = HOLD
    return [
        Point(
            id=f"silicon-{backend}-{isl}-{osl}-c{concurrency}-{metric}", set="served", group="silicon",
            value=float(row[f"silicon_{metric}_ms"]) / 1e3, metric=metric, measure="served",
            source="InferenceX rows in aiconfigurator-core 0.12.0, systems/silicon_sample.csv", grade="A",
            use="holdout", fitted=False, engine=launch["engine"], chip="h200-sxm", model="deepseek-r1",
            software=f"{backend} {version}", release=release, era=launch["era"], series=f"InferenceX, {backend}",
            strategy=strategy_of(backend, isl, concurrency), given=given,
            workload={"isl": isl, "osl": osl, "concurrency": concurrency, "shortest": 0.8},
        )
        for metric in ("tpot", "ttft")
    ]  # fmt: skip
