"""The engine's own client, loaded as the workload says: the measurement to hold a prediction against."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mlaplan.engines.request import EmitRequest

if TYPE_CHECKING:
    from mlaplan.engines.profile import Profile

BURSTS = 10  # requests sent per request in flight: the start and the end weigh a tenth each


def command(
    profile: Profile, request: EmitRequest, isl: int, osl: int, concurrency: int, prefix: int = 0,
    port: int | None = None,
) -> str:  # fmt: skip
    """Requests of fixed lengths at fixed concurrency against the server on this host."""
    requests = concurrency * BURSTS
    if profile.name == "sglang":
        words = [f"python3 -m sglang.bench_serving --backend sglang --port {port or 30000}"]
        if prefix:
            words += ["--dataset-name generated-shared-prefix --gsp-num-groups 1"]
            words += [f"--gsp-prompts-per-group {requests}"]
            words += [f"--gsp-system-prompt-len {prefix} --gsp-question-len {isl - prefix} --gsp-output-len {osl}"]
        else:  # range ratio 1: the shortest request is as long as the longest
            words += [f"--dataset-name random-ids --random-input-len {isl} --random-output-len {osl}"]
            words += ["--random-range-ratio 1"]
    else:  # against any server of OpenAI's interface; range ratio 0: no request is longer or shorter than the mean
        words = [f"vllm bench serve --port {port or 8000} --dataset-name random --ignore-eos"]
        words += [f"--random-input-len {isl - prefix} --random-output-len {osl} --random-range-ratio 0"]
        words += [f"--random-prefix-len {prefix}"] if prefix else []
    words += [f"--model {shlex.quote(request.model)} --max-concurrency {concurrency} --num-prompts {requests}"]
    return " ".join(words)
