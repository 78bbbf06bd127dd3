"""What a load means for one strategy: sequences in flight per rank, and the chips that would hold it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy


def with_batch(q: Question, s: Strategy, tokens_per_step: float | None) -> tuple[Strategy, list[str]]:
    """The batch that the load brings, as far as the cache holds it.

    Closed loop: concurrency over the attention-DP ranks. Open loop: the smallest batch that completes as many
    requests as arrive, else the one that completes most.
    """
    room = held(q, s)
    work = q.workload
    if work.concurrency is not None:
        wanted = -(-work.concurrency // (s.dp * s.replicas))
        if room < 1 or wanted <= room:
            return replace(s, batch=wanted), []
        waits = f"{wanted:,} sequences a rank are offered and the cache holds {room:,}: the rest waits"
        return replace(s, batch=room), [waits]
    if room < 1:
        return s, []
    return replace(s, batch=_for_rate(q, s, room, tokens_per_step)), []


def held(q: Question, s: Strategy) -> int:
    """Sequences of the longest context that the cache of one rank holds; 0 where it holds none."""
    from mlaplan.explain import explain
    from mlaplan.report.cache import sequences

    room = 1
    for _ in range(3):  # more sequences leave less memory for the cache: their logits
        found = sequences(q, s, explain(q, replace(s, batch=room), served=False).memory.kv_tokens)
        if found <= room:
            return found
        room = found
    return room


def _for_rate(q: Question, s: Strategy, room: int, tokens_per_step: float | None) -> int:
    import numpy as np

    from mlaplan.plan import price
    from mlaplan.search import MOST_SEQUENCES
    from mlaplan.space import batch_grid
    from mlaplan.strategy import to_table

    most = min(room, MOST_SEQUENCES)
    batches = [*(int(b) for b in batch_grid(most)), most]
    completed = price(q, to_table([replace(s, batch=b) for b in batches]), tokens_per_step)["capacity_per_s"]
    enough = np.flatnonzero(completed >= (q.workload.rate or 0.0))
    return batches[int(enough[0]) if len(enough) else int(np.argmax(completed))]


def chips_that_hold(q: Question, s: Strategy) -> list[str]:
    """The smallest multiple of the chips on which some strategy in the same dtypes holds a sequence."""
    from mlaplan.plan import MORE_CHIPS
    from mlaplan.search import holds

    pins = {"weight_dtype": s.weight_dtype, "kv_dtype": s.kv_dtype, "block_size": s.block_size}
    for factor in MORE_CHIPS:
        if holds(q, s.devices * factor, pins):
            return [f"{s.devices * factor} chips would hold it in the same dtypes"]
    return []
