"""The engine's own client, loaded as the workload says: the measurement to hold a prediction against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.engines.request import EmitRequest

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile

BURSTS = 10  # requests sent per request in flight: the start and the end weigh a tenth each


def command(
    profile: Profile, request: EmitRequest, isl: int, osl: int, concurrency: int, prefix: int = 0
) -> str:
    """Requests of fixed lengths at fixed concurrency against the server on this host."""
    lengths = {"--random-input-len": isl, "--random-output-len": osl}
    if profile.name == "sglang":
        words = ["python3", "-m", "sglang.bench_serving", "--backend", "sglang", "--port", "30000"]
        lengths["--random-range-ratio"] = 1  # shortest request / longest request
    else:
        words = ["vllm", "bench", "serve", "--port", "8000", "--ignore-eos"]
        lengths["--random-range-ratio"] = 0  # half width of the lengths around their mean
        if prefix:
            lengths["--random-input-len"] = isl - prefix
            lengths["--random-prefix-len"] = prefix
    words += ["--model", request.model, "--dataset-name", "random"]
    for name, value in lengths.items():
        words += [name, str(value)]
    words += ["--max-concurrency", str(concurrency), "--num-prompts", str(concurrency * BURSTS)]
    return " ".join(words)
