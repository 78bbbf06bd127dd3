"""Prompts at the edge of a chunk: what decoding tokens take of a mixed step is left over for a step more.

A step holds C tokens, of which sequences in decode take d. A prompt of n tokens so needs c = ceil(n / (C - d)) steps,
each of C - d but the last, and not the ceil(n / C) of equal size that prefill is priced in (T tokens, s seconds). Where
that is more, its steps are taken as linear between z, of hardly any token, and s:
    s_x = max( z + (s - z) x / T, host )      mean of c steps: ((c - 1) s_(C - d) + s_rest) / c
Where launches run ahead, `lockstep` says how long they hold up a step, and the last one here takes at least 2 H - s for
s = s_(C - d) of one rank above H, as the host was ahead of it by s - H; else as long as the others.
Who comes at any time meets long ones more often: the variance of the steps is (s_(C - d) - s_rest)^2 (c - 1) / c^2.
At least half the chunk is taken as left; prompts that find less room wait (`lockstep.Ranks.room`).
Source: vllm-project/vllm, vllm/v1/core/sched/scheduler.py (running requests first, then prompts in what is left of
max_num_batched_tokens).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.roofline import Numeric, ceil_div
from mlaplan.serving.lockstep import Ranks

LEAST_LEFT = 2  # part of a chunk that is left to prompts at least


def with_remainder(
    k: Ranks, new: int, step_tokens: NDArray[np.int64], chunk: NDArray[np.int64], decoding: Numeric
) -> Ranks:
    """The ranks with the steps that prompts of `new` tokens take beside so many decoding tokens of a rank."""
    left = np.maximum(chunk - decoding, ceil_div(chunk, LEAST_LEFT))
    steps = np.ceil(new / left)
    more = steps > ceil_div(new, chunk)
    if not more.any():
        return k
    floor, rest = k.floor_s, new - (steps - 1.0) * left
    one = floor + (k.lone_s - floor) * left / step_tokens
    least = np.minimum(one, 2.0 * k.host_s - one)

    def each_s(whole_s: Numeric) -> tuple[Numeric, Numeric]:
        """A whole step, and the last."""
        full, last = (floor + (whole_s - floor) * x / step_tokens for x in (left, rest))
        return np.maximum(full, np.where(k.ahead, 0.0, k.host_s)), np.maximum(last, np.where(k.ahead, least, k.host_s))

    def mean_s(whole_s: Numeric) -> Numeric:
        full, last = each_s(whole_s)
        return np.where(more, ((steps - 1.0) * full + last) / steps, whole_s)

    full, last = each_s(k.lone_s)
    return k._replace(
        all_s=mean_s(k.all_s), lone_s=mean_s(k.lone_s), units=np.where(more, steps, k.units),
        room=np.where(more, np.maximum(chunk - decoding, 1.0) * steps / new, k.room),
        # stages after the slowest have the last step to do
        drain_s=np.where(more, k.drain_s * last / k.lone_s, k.drain_s),
        uneven_s=np.where(more, (full - last) * np.sqrt(steps - 1.0) / steps, 0.0),
    )  # fmt: skip
