"""Which rank of a pool gets a request.

round_robin    one after the other
least_loaded   the rank with the fewest requests, of equals the one whose turn it is
cache_aware    the rank that last got a prompt with the longest equal start, where that is more than `MATCH` of the
               prompt and ranks are about evenly loaded; else least_loaded
Source: sgl-project/sglang, sgl-router, policy cache_aware with its defaults (threshold 0.3; uneven where the loads are
further apart than 64 and than a factor of 1.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.serving.simulator.requests import HASH_TOKENS

if TYPE_CHECKING:
    from mlaplan.serving.simulator.rank import Rank
    from mlaplan.serving.simulator.replica import Replica
    from mlaplan.serving.simulator.sequence import Sequence
    from mlaplan.serving.simulator.server import Routing

MATCH, APART, FACTOR = 0.3, 64, 1.5

Place = tuple["Replica", "Rank"]


class Router:
    """Knows where prompts went, not what caches hold."""

    def __init__(self, replicas: list[Replica], routing: Routing) -> None:
        # neighbours in turn belong to different replicas
        self.places: list[Place] = [
            (replica, replica.ranks[i]) for i in range(len(replicas[0].ranks)) for replica in replicas
        ]
        self.routing = routing
        self.turn = 0
        self.went: dict[int, int] = {}  # hash block to place

    def __call__(self, s: Sequence) -> Place:
        n = len(self.places)
        if n == 1:
            return self.places[0]
        if self.routing == "round_robin":
            chosen = self.turn % n
        elif self.routing == "cache_aware":
            chosen = self._matching(s)
            for i in s.full:
                self.went[i] = chosen
        else:
            chosen = self._least()
        self.turn += 1
        return self.places[chosen]

    def _loads(self) -> list[int]:
        return [rank.load for _, rank in self.places]

    def _least(self) -> int:
        loads, n = self._loads(), len(self.places)
        least, start = min(loads), self.turn % n
        return next(i % n for i in range(start, start + n) if loads[i % n] == least)

    def _matching(self, s: Sequence) -> int:
        loads = self._loads()
        low, high = min(loads), max(loads)
        if high - low > APART and high > FACTOR * low:
            return self._least()
        matched, home = 0, -1
        for i in s.full:
            place = self.went.get(i)
            if place is None:
                break
            matched, home = matched + 1, place
        return home if matched * HASH_TOKENS > MATCH * s.prompt else self._least()
