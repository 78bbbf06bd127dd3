"""How many sequences a request rate keeps in flight, and what a rank is like with them.

Slots that no request fills cost nothing, so rounds are those of the sequences that are there. A request that arrives
finds as many in decode as there are on average (Poisson arrivals see time averages) and is one more, of D ranks a
D-th on each:

    g = 1/D + l n tau(g)      l: requests per second and rank, n: rounds of a request, tau: a round, prompts included

tau is priced at the numbers of `nodes`; between two of them the load is taken as linear. Below one sequence a rank
there is a rank that alone has one (the first node, 1/D).
Sources: Little, Operations Research 9 (1961); Wolff, Operations Research 30 (1982), for what arrivals see.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.roofline import Numeric
from mlaplan.serving.load import Load, either

LEAST_NODES_TO = 4096


def nodes(most: int) -> NDArray[np.int64]:
    """Sequences a rank at which rounds are priced: 1, 2, 3, 4, 6, 8, 12... up to `most` and at least 4096."""
    powers = 1 << np.arange(max(most - 1, LEAST_NODES_TO - 1).bit_length() + 1)
    return np.sort(np.concatenate([powers, powers[1:-1] * 3 // 2]))


def settle(
    load_at: Callable[[NDArray[np.int64], NDArray[np.bool_]], Load], rate: Numeric, rounds: Numeric, ranks: Numeric,
    most: int,
) -> tuple[Load, Numeric]:  # fmt: skip
    """(the load that keeps itself up, sequences in flight); infinitely many where the largest node is not enough.

    load_at: the load of every row with so many sequences a rank, and whether on one rank alone. rate, rounds,
    ranks: l, n and D of every row. most: slots of a rank, at most.
    """
    grid, lone_part = nodes(most), 1.0 / np.asarray(ranks, dtype=float)

    def at(place: NDArray[np.int64]) -> tuple[Load, Numeric]:
        """The load, and how many more sequences it brings than there are."""
        alone, sequences = place == 0, grid[np.maximum(place - 1, 0)]
        load = load_at(sequences, alone)
        return load, lone_part + rate * rounds * load.round_s - np.where(alone, lone_part, sequences)

    rows = len(lone_part)
    low, high = np.zeros(rows, dtype=np.int64), np.full(rows, len(grid), dtype=np.int64)
    below, above = at(low), at(high)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        load, excess = at(middle)
        more = excess > 0.0
        low, high = np.where(more, middle, low), np.where(more, high, middle)
        below = either(more, load, below[0]), np.where(more, excess, below[1])
        above = either(~more, load, above[0]), np.where(more, above[1], excess)
    apart = below[1] - above[1]
    part = np.where(above[1] > 0.0, 1.0, below[1] / np.where(apart > 0.0, apart, 1.0))
    load = below[0].towards(above[0], part)
    flying = rate * (load.service_s + rounds * load.round_s)
    return load, np.where(above[1] > 0.0, np.inf, flying)
