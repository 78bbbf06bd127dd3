"""Result files of serving benchmarks: vLLM's `bench serve` (one JSON object) and SGLang's bench_serving (JSON lines).

Both name their means in milliseconds and their totals in tokens; the last line of several is taken.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from mlaplan.errors import MlaplanError

MOST_BYTES = 1 << 28  # a result with every request's details; more is no benchmark result
TIMES = ("ttft", "tpot")
EXPECTED = "the JSON result of `vllm bench serve --save-result` or of `sglang.bench_serving --output-file`"


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One benchmark run. Times are means; shortest is the smallest length over the largest, 1 if all are equal."""

    tool: str
    requests: int
    seconds: float
    mean_isl: float
    mean_osl: float
    concurrency: int | None
    rate: float | None  # offered requests per second, None if unlimited
    shortest: float | None
    metrics: dict[str, float]  # ttft, tpot [s], output_tok_s, total_tok_s, requests_per_s
    medians: dict[str, float]  # ttft, tpot [s]


def read(file: str) -> BenchResult:
    """The last run in the file, or an error that names what is wrong with it."""
    data = _last_object(file)
    tool = "SGLang" if "random_range_ratio" in data or "total_throughput" in data else "vLLM"
    completed = _number(file, data, "completed")
    if completed < 1:
        raise MlaplanError(f"{file}: no request was completed")
    seconds = _number(file, data, "duration")
    inputs, outputs = _number(file, data, "total_input_tokens"), _number(file, data, "total_output_tokens")
    if seconds <= 0 or inputs <= 0 or outputs <= 0:
        raise MlaplanError(f"{file}: duration and token totals must be above 0")
    metrics = {name: _number(file, data, f"mean_{name}_ms") / 1e3 for name in TIMES}
    metrics["output_tok_s"] = outputs / seconds
    metrics["total_tok_s"] = (inputs + outputs) / seconds
    metrics["requests_per_s"] = completed / seconds
    medians = {
        name: float(data[f"median_{name}_ms"]) / 1e3 for name in TIMES if _is_number(data.get(f"median_{name}_ms"))
    }
    concurrency = data.get("max_concurrency")
    rate = data.get("request_rate")
    return BenchResult(
        tool, round(completed), seconds, inputs / completed, outputs / completed,
        round(concurrency) if _is_number(concurrency) and concurrency >= 1 else None,
        float(rate) if _is_number(rate) and math.isfinite(float(rate)) and float(rate) > 0 else None,
        _shortest(data), metrics, medians,
    )  # fmt: skip


def _last_object(file: str) -> dict[str, Any]:
    path = Path(file)
    try:
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise MlaplanError(f"{file}: is larger than {MOST_BYTES >> 20} MiB; expected {EXPECTED}")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise MlaplanError(f"{file}: is not UTF-8 text; expected {EXPECTED}") from None
    except (OSError, ValueError) as error:
        raise MlaplanError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        data = _last_line(file, text)
    if isinstance(data, list) and data:
        data = data[-1]
    if not isinstance(data, dict):
        raise MlaplanError(f"{file}: holds no benchmark result; expected {EXPECTED}")
    return data


def _last_line(file: str, text: str) -> Any:
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise MlaplanError(f"{file}: the file is empty; expected {EXPECTED}")
    found: Any = None
    for number, line in lines:
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise MlaplanError(
                f"{file}:{number}:{error.colno}: is not JSON: {error.msg}; expected {EXPECTED}"
            ) from None
        except RecursionError:
            raise MlaplanError(f"{file}:{number}: is nested too deeply; expected {EXPECTED}") from None
    return found


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(file: str, data: dict[str, Any], key: str) -> float:
    if key not in data:
        raise MlaplanError(f"{file}: has no '{key}'; expected {EXPECTED}")
    value = data[key]
    if not _is_number(value) or not math.isfinite(float(value)) or float(value) < 0:
        raise MlaplanError(f"{file}: '{key}' is {value!r}; expected a number of at least 0")
    return float(value)


def _shortest(data: dict[str, Any]) -> float | None:
    """Smallest over largest length: SGLang states it, vLLM writes every length down."""
    ratio = data.get("random_range_ratio")
    if _is_number(ratio) and 0 < float(ratio) <= 1:
        return float(ratio)
    for key in ("input_lens", "output_lens"):
        lengths = [x for x in data.get(key) or [] if _is_number(x) and x > 0] if isinstance(data.get(key), list) else []
        if lengths:
            return float(min(lengths) / max(lengths))
    return None
