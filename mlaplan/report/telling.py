"""Which of many families of structures tell a reader most: one for each way that people argue about."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlaplan.families import Family
    from mlaplan.strategy import Strategy


def telling(families: list[Family], best: Strategy, per_node: int) -> list[Family]:
    """The best family of each way, without the winner's own, by falling rank."""
    others = [f for f in families if f.strategy.shape != best.shape]
    chosen: list[Family] = []
    for is_way in _ways(per_node):
        found = next((f for f in sorted(others, key=lambda f: f.rank, reverse=True) if is_way(f.strategy)), None)
        if found is not None and found not in chosen:
            chosen.append(found)
    return sorted(chosen, key=lambda f: f.rank, reverse=True)


def _ways(per_node: int) -> list[Callable[[Strategy], bool]]:
    """TP across nodes, TP in a node, with a pipeline, DP with and without EP, and the ways to divide the cache."""

    def plain(s: Strategy) -> bool:
        return s.dcp == 1 and s.cp == 1 and s.kv_layout == "replicated"

    return [
        lambda s: s.tp > per_node and plain(s),
        lambda s: 1 < s.tp <= per_node and s.dp == 1 and s.pp == 1 and plain(s),
        lambda s: 1 < s.tp <= per_node and s.dp == 1 and s.pp > 1 and plain(s),
        lambda s: s.tp == 1 and s.dp > 1 and s.ep > 1 and s.pp == 1,
        lambda s: s.tp == 1 and s.dp > 1 and s.ep == 1 and s.pp == 1,
        lambda s: s.tp > 1 and s.dp > 1 and plain(s),
        lambda s: s.dcp > 1,
        lambda s: s.kv_layout == "latent_sharded",
        lambda s: s.tp == 1 and s.dp == 1 and s.pp > 1,
        lambda s: s.cp > 1,
    ]
